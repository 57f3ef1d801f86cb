"""A tiny model and its quantized forms as a user's folders would be: GPTQ written by hand, and the same as floats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tests.quant.readers.made import words


def gptq_folder(model: Path, out: Path, *, bits: int = 4, group_size: int = 32, head: bool = False) -> Path:
    """`model` with every linear layer (and the output head, with `head`) in GPTQ v1, rounded to nearest, 0-biased as
    AutoGPTQ does it where the layer has none.
    """
    shutil.copytree(model, out)
    tensors = load_file(out / "model.safetensors")
    for name in [name for name in tensors if _is_linear(name) or (head and name == "lm_head.weight")]:
        module = name.removesuffix(".weight")
        q, scales = _rounded(tensors.pop(name).float(), bits, group_size)
        zeros = np.full(scales.shape, 2 ** (bits - 1) - 1)
        tensors[f"{module}.qweight"] = torch.tensor(words(q, bits).T.copy())
        tensors[f"{module}.qzeros"] = torch.tensor(words(zeros.T, bits))
        tensors[f"{module}.scales"] = scales.T.contiguous()
        tensors.setdefault(f"{module}.bias", torch.zeros(len(q)))
    (out / "model.safetensors").unlink()
    save_file(tensors, out / f"gptq_model-{bits}bit-{group_size}g.safetensors", {"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    settings = {"quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": False, "sym": True,
                "lm_head": head}  # fmt: skip
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    (out / "quantize_config.json").write_text(json.dumps(settings))
    return out


def rounded_folder(model: Path, out: Path, *, bits: int = 4, group_size: int = 32, head: bool = False) -> Path:
    """The same numbers as `gptq_folder` stands for, as a plain float32 model."""
    shutil.copytree(model, out)
    tensors = load_file(out / "model.safetensors")
    for name in [name for name in tensors if _is_linear(name) or (head and name == "lm_head.weight")]:
        q, scales = _rounded(tensors[name].float(), bits, group_size)
        spread = scales.float().repeat_interleave(tensors[name].shape[1] // scales.shape[1], 1)
        tensors[name] = torch.tensor(q - 2 ** (bits - 1)).float() * spread
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors", {"format": "pt"}
    )
    return out


def _is_linear(name: str) -> bool:
    return name.endswith("proj.weight")


def _rounded(weight: torch.Tensor, bits: int, group_size: int) -> tuple[np.ndarray, torch.Tensor]:
    """(codes [N, K], float16 scales [N, groups])."""
    groups = weight.view(len(weight), -1, group_size)
    scales = (groups.abs().amax(-1) / (2 ** (bits - 1) - 1)).half()
    q = (groups / scales.float().unsqueeze(-1)).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (q.view(weight.shape).long() + 2 ** (bits - 1)).numpy(), scales
