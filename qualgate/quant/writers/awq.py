"""AWQ GEMM, as AutoAWQ lays it out: 4 bits, packed along out_features in an order of its kernel's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from qualgate.errors import UsageError
from qualgate.quant.writers.words import (
    half_scales,
    packed_words,
    require_integers,
    require_whole_words,
    zero_points,
)
from qualgate_kernels.packed import PackedWeight, unpack_codes

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each nibble of a word holds, lowest first


def tensors(name: str, weight: PackedWeight) -> dict[str, torch.Tensor]:
    """Return a layer's tensors: qweight int32 [in, out / 8], qzeros int32 [groups, out / 8], scales float16 [groups,
    out]."""
    require_integers(name, weight, (4,), "AWQ")
    require_whole_words(name, weight, "AWQ", along_in=1, along_out=8)
    if weight.g_idx is not None:
        raise UsageError(f"{name} has act-order groups, which the AWQ format cannot hold. Write it as gptq.")
    codes = unpack_codes(weight.codes, 4, weight.shape[1])
    return {
        f"{name}.qweight": packed_words(_interleaved(codes.T), 4),
        f"{name}.qzeros": packed_words(_interleaved(zero_points(weight).T), 4),
        f"{name}.scales": half_scales(name, weight).T.contiguous(),
    }


def config(weights: Mapping[str, PackedWeight], plain: Sequence[str]) -> dict[str, Any]:
    """Return quantization_config. plain: modules that stay floats. UsageError for group sizes the format cannot tell
    apart."""
    sizes = {weight.group_size or weight.shape[1] for weight in weights.values()}
    rows = all(weight.group_size == 0 for weight in weights.values())
    if len(sizes) > 1 and not rows:
        raise UsageError(
            f"These layers have groups of {', '.join(map(str, sorted(sizes)))}, but the AWQ format has one group size "
            "for all. Write them as compressed-tensors."
        )
    # AutoAWQ and transformers read modules_to_not_convert; gptqmodel overlooks it and reads `dynamic`.
    overlooked = {"dynamic": {f"-:^{re.escape(name)}$": {} for name in plain}} if plain else {}
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": -1 if rows else sizes.pop(),
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": list(plain) or None,
        **overlooked,
    }


def _interleaved(codes: torch.Tensor) -> torch.Tensor:
    """[lines, out] with each eight columns in the order of the nibbles."""
    lines, columns = codes.shape
    return codes.reshape(lines, columns // 8, 8)[..., list(_ORDER)].reshape(lines, columns)
