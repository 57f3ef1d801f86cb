"""Runs inside a backend's interpreter: load quantized folders with the library, write what it makes of each.

    python -I read_with_library.py LIBRARY

Standard input carries orders, one JSON object a line: {"folder", "out", "prompt", "new_tokens"}; standard output an
answer to each: {} or {"error": text}. OUT.safetensors holds every quantized layer's weight, float32 [out, in], as the
library dequantizes it, and `tokens`: its greedy continuation of the prompt's ids.
"""

from __future__ import annotations

import json
import os
import sys
import traceback


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


def auto_gptq_without_a_gpu(folder: str):
    import torch
    from auto_gptq import AutoGPTQForCausalLM

    return AutoGPTQForCausalLM.from_quantized(
        folder, device="cpu", use_triton=False, disable_exllama=True, torch_dtype=torch.float32, use_safetensors=True,
        model_basename="model",
    ).model  # fmt: skip


LIBRARIES = {"gptqmodel": with_gptqmodel, "transformers": with_transformers, "auto-gptq": auto_gptq_without_a_gpu}


def read(library: str, folder: str, out: str, prompt: list[int], new_tokens: int) -> None:
    import torch
    from safetensors.torch import save_file

    model = LIBRARIES[library](folder)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(new_tokens):
            ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        tensors = {name: weight.detach().float().contiguous() for name, weight in weights_of(model)}
    assert tensors, "no quantized layer was found"
    save_file({**tensors, "tokens": ids[0]}, out)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print
    for line in sys.stdin:
        answer = {}
        try:
            read(sys.argv[1], **json.loads(line))
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # gptqmodel leaves threads that never end


if __name__ == "__main__":
    main()
