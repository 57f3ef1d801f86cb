"""GPTQ, as AutoGPTQ (v1) and GPT-QModel (v2) lay it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import torch

from qualgate.errors import UsageError
from qualgate.quant.writers.words import (
    half_scales,
    packed_words,
    require_integers,
    require_whole_words,
    words,
    zero_points,
)
from qualgate_kernels.packed import PackedWeight


def tensors(name: str, weight: PackedWeight, *, v2: bool) -> dict[str, torch.Tensor]:
    """Return a layer's tensors: qweight int32 [in * bits / 32, out], qzeros int32 [groups, out * bits / 32], scales
    float16 [groups, out],
    g_idx int32 [in].

    v1 stores zero points less one, so a zero point of 0 has no place in it: UsageError. Method gptq makes none.
    """
    require_integers(name, weight, (2, 3, 4, 8), "GPTQ")
    whole = 32 // gcd(32, weight.bits)
    require_whole_words(name, weight, "GPTQ", along_in=whole, along_out=whole)
    zeros = zero_points(weight)
    if not v2:
        if (zeros == 0).any():
            raise UsageError(
                f"{name} has a zero point of 0, which GPTQ v1 cannot store (it subtracts one, and AutoGPTQ "
                "would damage the columns beside it). Write it as gptq_v2, or quantize symmetrically."
            )
        zeros = zeros - 1
    g_idx = weight.g_idx
    if g_idx is None:
        g_idx = torch.arange(weight.shape[1], dtype=torch.int32) // (weight.group_size or weight.shape[1])
    return {
        f"{name}.qweight": words(weight.codes).T.contiguous(),
        f"{name}.qzeros": packed_words(zeros.T, weight.bits),
        f"{name}.scales": half_scales(name, weight).T.contiguous(),
        f"{name}.g_idx": g_idx.to(torch.int32),
    }


def config(weights: Mapping[str, PackedWeight], plain: Sequence[str], *, v2: bool, made_by: str) -> dict[str, Any]:
    """Return quantization_config, which is also quantize_config.json. plain: modules that stay floats.

    Most layers' settings stand on top; other layers, and those that stay floats, have `dynamic` rules by name.
    """
    layouts = [_layout(weight) for weight in weights.values()]
    common = max(layouts, key=layouts.count)
    dynamic: dict[str, dict[str, Any]] = {f"-:^{re.escape(name)}$": {} for name in plain}
    for name, layout in zip(weights, layouts, strict=True):
        if layout != common:
            dynamic[f"+:^{re.escape(name)}$"] = layout
    format = "gptq_v2" if v2 else "gptq"
    return {
        "quant_method": "gptq",
        **common,
        "lm_head": False,
        "method": "gptq",
        "format": format,
        "checkpoint_format": format,
        "pack_dtype": "int32",
        "meta": {"quantizer": [made_by]},
        **({"dynamic": dynamic} if dynamic else {}),
    }


def _layout(weight: PackedWeight) -> dict[str, Any]:
    return {
        "bits": weight.bits,
        "group_size": weight.group_size or -1,
        "desc_act": weight.g_idx is not None,
        "sym": weight.zero_points is None,
    }
