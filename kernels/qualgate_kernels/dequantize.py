"""From a PackedWeight back to float32: the torch twin, which is the specification and the CPU path.

It runs in every forward, so each format is unpacked with few passes over the weight (a 704 x 256 int4 weight:
0.22 ms on one AVX-512 core, as long as its matmul with 64 rows).
"""

from __future__ import annotations

import torch

from qualgate_kernels.packed import PackedWeight, unpack_codes

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# The float32 levels of QLoRA as bitsandbytes stores them.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
# Both values of a byte at once: one look-up of 8 bytes instead of two of 4.
_PAIRS = {
    code: torch.tensor([(levels[byte & 15], levels[byte >> 4]) for byte in range(256)]).view(torch.int64).flatten()
    for code, levels in (("e2m1", E2M1), ("nf4", NF4))
}


def dequantize_torch(packed: PackedWeight) -> torch.Tensor:
    """Return the weight as float32 [out_features, in_features], each step rounded to float32.

    Exact for symmetric integers with bfloat16 scales (a code has at most 8 significant bits, the scale 8) and for the
    MX formats (their scales are powers of two).
    """
    weight = _code_values(packed)
    scales = scales_float(packed)
    grouped = _grouped(weight, packed)
    if packed.code == "int" and packed.offsets is None:
        if packed.zero_points is None:
            weight.sub_(2 ** (packed.bits - 1))
        else:
            grouped.sub_(_spread(packed.zero_points.float(), packed))
    grouped.mul_(_spread(scales, packed))
    if packed.offsets is not None:
        grouped.add_(_spread(packed.offsets.float(), packed))
    return weight


def scales_float(packed: PackedWeight) -> torch.Tensor:
    """Return every scale as the float32 number it stands for, the tensor's own included: [row_blocks, groups]."""
    scales = packed.scales
    scales = (scales.view(torch.float8_e8m0fnu) if scales.dtype == torch.uint8 else scales).float()
    if packed.tensor_scale is None:
        return scales
    return scales / packed.tensor_scale if packed.tensor_divides else scales * packed.tensor_scale


def _code_values(packed: PackedWeight) -> torch.Tensor:
    """Return the number that each code stands for, float32 [out_features, in_features], as a new tensor."""
    columns = packed.shape[1]
    if packed.code in _PAIRS:
        pairs = _PAIRS[packed.code].to(packed.codes.device).take(packed.codes.long())
        values = pairs.view(torch.float32)
        return values if values.shape[1] == columns else values[:, :columns].contiguous()
    if packed.code == "int":
        return unpack_codes(packed.codes, packed.bits, columns, torch.float32)
    return packed.codes.view(torch.float8_e4m3fn if packed.code == "e4m3" else torch.float8_e5m2).float()


def _in_whole_groups(packed: PackedWeight) -> bool:
    return packed.g_idx is None and packed.shape[1] % (packed.group_size or 1) == 0


def _grouped(weight: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """A view of `weight` that `_spread` scales fit: [out, groups, group_size], or [out, in] where groups are uneven."""
    return weight.view(packed.shape[0], packed.groups, -1) if _in_whole_groups(packed) else weight


def _spread(per_scale: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """Reshape values [row_blocks, groups] to what broadcasts over `_grouped` weights."""
    rows, columns = packed.shape
    if packed.block_rows > 1:
        per_scale = per_scale[torch.arange(rows, device=per_scale.device) // packed.block_rows]
    if _in_whole_groups(packed):
        return per_scale.unsqueeze(-1)
    if packed.g_idx is not None:
        return per_scale[:, packed.g_idx.long()]
    return per_scale[:, torch.arange(columns, device=per_scale.device) // packed.group_size]
