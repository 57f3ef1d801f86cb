"""A model with its feed-forward layers widened: the same function, in weights too many for a cache.

Decoding is bound by memory only where weights are large, and the shipped reference model is not. So each of its inner
features is there k times, and each copy counts for 1/k (Net2Net, 1511.05641). k is a power of two: the copies' weights
are exact in bfloat16, and formats that scale by powers of two round them as they round the originals. What a widened
model answers is the reference's, and so is what its quantized self accepts; its times are those of a model so large.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

LEAST = 128 * 2**20  # bytes of weights in bfloat16, which no cache holds


def write_widened(model: Path, out: Path, least: int = LEAST) -> int:
    """`model`, a Llama in bfloat16, in folder `out` with at least `least` bytes of weights; how often each of its inner
    features is there. ValueError for one that is not made so."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(model / "model.safetensors")
    inner = [name for name in tensors if name.endswith(("gate_proj.weight", "up_proj.weight", "down_proj.weight"))]
    if len(inner) != 3 * config["num_hidden_layers"] or config.get("mlp_bias"):
        raise ValueError(f"{model}: expected gate, up and down in each layer, without biases")
    if strange := {str(tensor.dtype) for tensor in tensors.values()} - {"torch.bfloat16"}:
        raise ValueError(f"{model}: expected bfloat16 weights, got {', '.join(sorted(strange))}")
    mine = sum(tensors[name].nbytes for name in inner)
    others, times = sum(tensor.nbytes for tensor in tensors.values()) - mine, 1
    while others + mine * times < least:
        times *= 2
    for name in inner:
        weight = tensors[name]
        copies = weight.repeat(1, times) / times if name.endswith("down_proj.weight") else weight.repeat(times, 1)
        tensors[name] = copies.contiguous()
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors*", "*.md", "config.json"))
    config["intermediate_size"] *= times
    (out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return times
