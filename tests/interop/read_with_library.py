# pyright: reportMissingImports=false
"""Runs inside a backend's interpreter: load a quantized folder with the library, write what it makes of it.

    python -I read_with_library.py LIBRARY FOLDER OUT.safetensors PROMPT_IDS NEW_TOKENS

OUT holds every quantized layer's weight, float32 [out, in], as the library dequantizes it, and `tokens`: its greedy
continuation of the prompt.
"""

from __future__ import annotations

import json
import os
import sys


def with_gptqmodel(folder: str):
    import torch
    from gptqmodel import BACKEND, GPTQModel

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        method = json.load(file)["quantization_config"]["quant_method"]
    backend = BACKEND.AWQ_TORCH if method == "awq" else BACKEND.GPTQ_TORCH
    return GPTQModel.load(folder, device="cpu", backend=backend, dtype=torch.float16).model


def with_transformers(folder: str):
    """transformers + compressed-tensors, of llm-compressor's environment."""
    import torch
    from transformers import AutoModelForCausalLM

    # bfloat16: the library decompresses its 4-bit floats to it, and refuses to multiply that with anything else.
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        dtype = torch.bfloat16 if "fp4" in file.read() else torch.float32
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()


def weights_of(model):
    """Of a model that has run: compressed-tensors decompresses its layers in the first forward pass."""
    import torch

    for name, module in model.named_modules():
        if hasattr(module, "qweight"):
            # What its kernel makes of the unit vectors: one product and no sum, so nothing is rounded but the weight.
            bias = 0 if getattr(module, "bias", None) is None else module.bias
            yield name, (module(torch.eye(module.in_features, dtype=torch.float16)) - bias).T
        elif hasattr(module, "weight_scale"):
            yield name, module.weight


def main() -> None:
    import torch
    from safetensors.torch import save_file

    library, folder, out, prompt, new_tokens = sys.argv[1:]
    model = {"gptqmodel": with_gptqmodel, "transformers": with_transformers}[library](folder)
    ids = torch.tensor([json.loads(prompt)])
    with torch.no_grad():
        for _ in range(int(new_tokens)):
            ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        tensors = {name: weight.detach().float().contiguous() for name, weight in weights_of(model)}
    assert tensors, "no quantized layer was found"
    save_file({**tensors, "tokens": ids[0]}, out)
    os._exit(0)  # gptqmodel leaves threads that never end


if __name__ == "__main__":
    main()
