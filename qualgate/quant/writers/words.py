"""Codes in 32-bit words: one dense bitstream, lowest bits first, as GPTQ and compressed-tensors pack them."""

from __future__ import annotations

import torch

from qualgate.errors import UsageError
from qualgate_kernels.packed import PackedWeight, pack_codes


def words(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [lines, bytes], already packed, as int32 [lines, ceil(bytes / 4)]; what is left of a line's end is 0."""
    padded = torch.nn.functional.pad(packed, (0, -packed.shape[1] % 4))
    return padded.reshape(-1).view(torch.int32).view(packed.shape[0], -1)  # flat first: one line may have any stride


def packed_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 codes [lines, n] as int32 [lines, ceil(n * bits / 32)]."""
    return words(pack_codes(codes.contiguous(), bits))


def zero_points(weight: PackedWeight) -> torch.Tensor:
    """Return the zero point of each scale, uint8 [out_features, groups]: the middle code where none is stored."""
    if weight.zero_points is None:
        return torch.full(weight.scales.shape, 2 ** (weight.bits - 1), dtype=torch.uint8)
    return weight.zero_points.to(torch.uint8)


def require_integers(name: str, weight: PackedWeight, bits: tuple[int, ...], format: str) -> None:
    """Raise UsageError unless `weight` is what formats of grouped integers can say."""
    if weight.code != "int" or weight.bits not in bits or weight.block_rows != 1 or weight.offsets is not None:
        widths = " or ".join(map(str, bits))
        raise UsageError(
            f"{name} is {weight.format}, but the {format} format holds integers of {widths} bits with a scale a row or "
            "a group. Write it as compressed-tensors."
        )


def half_scales(name: str, weight: PackedWeight) -> torch.Tensor:
    """Return the scales as float16 [out_features, groups]. UsageError where float16 cannot hold one."""
    scales = weight.scales.half()
    if not scales.isfinite().all() or (scales == 0).any():
        raise UsageError(
            f"{name} has scales from {float(weight.scales.min()):.3g} to {float(weight.scales.max()):.3g}, but this "
            "format stores float16, which cannot hold them. Write it as compressed-tensors."
        )
    return scales


def require_whole_words(name: str, weight: PackedWeight, format: str, *, along_in: int, along_out: int) -> None:
    """Raise UsageError unless in_features and out_features are multiples of what fills whole words."""
    for extent, what, multiple in (
        (weight.shape[1], "in_features", along_in),
        (weight.shape[0], "out_features", along_out),
    ):
        if extent % multiple:
            raise UsageError(
                f"{name} has {extent} {what}, but the {format} format packs them in multiples of {multiple}. Write it "
                "as compressed-tensors, or keep this layer a float."
            )
