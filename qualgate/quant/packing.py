"""From a float weight and a recipe to a PackedWeight."""

from __future__ import annotations

import torch

from qualgate.errors import UsageError
from qualgate.quant.recipes import BITS
from qualgate.quant.rounding import cast_mxfp4, round_to_nearest
from qualgate.quant.shapes import check_divides
from qualgate.records import QuantizeRecipe
from qualgate_kernels.packed import PackedWeight, pack_codes


def quantize_weight(weight: torch.Tensor, recipe: QuantizeRecipe, name: str = "weight") -> PackedWeight:
    """Quantize `weight` [out_features, in_features] by `recipe`; `name` is for messages.

    Raises UsageError for a shape the recipe does not fit and for weights that are not finite.
    """
    out_features, in_features = weight.shape
    bits = BITS[recipe.method]
    check_divides(name, in_features, recipe.group_size, bits)
    if not weight.isfinite().all():
        raise UsageError(f"{name} holds NaN or infinite values: the checkpoint is damaged, fetch it again.")
    if recipe.method == "mxfp4":
        codes, scales = cast_mxfp4(weight)
    else:
        q, scales = round_to_nearest(weight, bits, recipe.group_size)
        codes = (q.to(torch.int16) + 2 ** (bits - 1)).to(torch.uint8)
    return PackedWeight(
        code="e2m1" if recipe.method == "mxfp4" else "int",
        bits=bits,
        shape=(out_features, in_features),
        group_size=recipe.group_size,
        codes=pack_codes(codes, bits),
        scales=scales,
    )
