"""From a float weight and a recipe to a PackedWeight."""

from __future__ import annotations

import torch

from qualgate.errors import UsageError
from qualgate.quant.rounding import cast_mxfp4, round_to_nearest
from qualgate.quant.shapes import check_divides
from qualgate.records import QuantizeRecipe
from qualgate_kernels.packed import BITS, PackedWeight


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
        format=recipe.method,
        shape=(out_features, in_features),
        group_size=recipe.group_size,
        codes=pack_codes(codes, bits),
        scales=scales,
    )


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [rows, columns] with values below 2**bits → uint8 [rows, columns * bits / 8], lowest bits first."""
    per_byte = 8 // bits
    places = codes.view(codes.shape[0], -1, per_byte)
    packed = places[..., 0].clone()
    for place in range(1, per_byte):
        packed |= places[..., place] << (place * bits)
    return packed
