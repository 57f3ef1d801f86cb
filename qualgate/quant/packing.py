"""From a float weight and a recipe that needs no data to a PackedWeight."""

from __future__ import annotations

import torch

from qualgate.errors import UsageError
from qualgate.quant.floating import FP8_TILE, cast_fp8, cast_mxfp4, cast_mxfp8, cast_nvfp4
from qualgate.quant.recipes import bits_of
from qualgate.quant.rounding import round_to_nearest
from qualgate.quant.shapes import check_divides
from qualgate.records import QuantizeRecipe
from qualgate_kernels.packed import PackedWeight, pack_codes


def quantize_weight(
    weight: torch.Tensor,
    recipe: QuantizeRecipe,
    name: str = "weight",
    *,
    dtype: torch.dtype = torch.bfloat16,
    scale_dtype: torch.dtype = torch.bfloat16,
    importance: torch.Tensor | None = None,
    absmax: torch.Tensor | None = None,
) -> PackedWeight:
    """Quantize `weight` [out_features, in_features], float, by `recipe`; `name` is for messages.

    dtype: the model's own, in which FP8 and NVFP4 are scaled as the library that defines them does; scale_dtype: of
    integer scales. NVFP4: importance, [in_features], is the mean square of each input, for the search; absmax the
    largest weight of all layers that share a tensor scale. Calibrated methods are rounded to nearest on their grid.
    Raises UsageError for a shape the recipe does not fit and for weights that are not
    finite.
    """
    out_features, in_features = weight.shape
    bits = bits_of(recipe)
    check_divides(name, in_features, recipe.group_size, bits)
    if not weight.isfinite().all():
        raise UsageError(f"{name} holds NaN or infinite values: the checkpoint is damaged, fetch it again.")
    shape = (out_features, in_features)
    if recipe.method == "fp8":
        codes, scales = cast_fp8(weight.to(dtype), recipe.element or "e4m3", recipe.granularity)
        tiled = recipe.granularity == "block"
        return PackedWeight(
            code="e5m2" if recipe.element == "e5m2" else "e4m3", bits=8, shape=shape, codes=codes, scales=scales,
            group_size=FP8_TILE if tiled else 0, block_rows=FP8_TILE if tiled else 0 if recipe.granularity else 1,
        )  # fmt: skip
    if recipe.method == "mxfp4":
        codes, scales = cast_mxfp4(weight, recipe.exponent)
        return PackedWeight(
            code="e2m1", bits=4, shape=shape, codes=pack_codes(codes, 4), scales=scales, group_size=recipe.group_size
        )
    if recipe.method == "mxfp8":
        codes, scales = cast_mxfp8(weight, recipe.exponent)
        return PackedWeight(
            code="e4m3", bits=8, shape=shape, codes=codes, scales=scales, group_size=recipe.group_size
        )  # fmt: skip
    if recipe.method == "nvfp4":
        codes, scales, tensor_scale = cast_nvfp4(weight.to(dtype), importance, absmax)
        return PackedWeight(
            code="e2m1", bits=4, shape=shape, codes=pack_codes(codes, 4), scales=scales, group_size=recipe.group_size,
            tensor_scale=tensor_scale, tensor_divides=True,
        )  # fmt: skip
    per_tensor = recipe.granularity == "tensor"
    codes, scales, zeros = round_to_nearest(
        weight, bits, recipe.group_size, symmetric=recipe.symmetric, clip=recipe.clip, dtype=scale_dtype,
        per_tensor=per_tensor,
    )  # fmt: skip
    return PackedWeight(
        code="int", bits=bits, shape=shape, codes=pack_codes(codes, bits), scales=scales, zero_points=zeros,
        group_size=recipe.group_size, block_rows=0 if per_tensor else 1,
    )  # fmt: skip
