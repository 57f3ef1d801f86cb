"""Numbers → what is kept of them, and back: in torch, the specification of cpu/c/attend_keep.c and attend_kept.h."""

from __future__ import annotations

import torch

from qualgate_kernels.kept import Form

FP8_MOST = 448.0
INT8_MOST = 127.0
INT4_MOST = 15.0


def kept(form: Form, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    """float32 [..., dim] → elements [..., dim / packed] of the form's dtype, and its scales, bfloat16 [..., scales] or
    None. scale: fp8's."""
    if form.name == "float32":
        return x, None
    if form.name == "bfloat16":
        return _halves(x), None
    if form.name == "fp8":
        codes = (x / torch.tensor(scale, dtype=torch.float32)).clamp(-FP8_MOST, FP8_MOST)
        return codes.to(torch.float8_e4m3fn).view(torch.uint8).masked_fill(x.isnan(), 0x7F), None
    return _int8(x) if form.name == "int8" else _int4(x)


def numbers(form: Form, elements: torch.Tensor, scales: torch.Tensor | None, scale: float, axis: int) -> torch.Tensor:
    """Return the float32 numbers of `elements`.

    axis: along which a position's numbers lie, -1 or -2; scales: bfloat16, shaped like elements without `axis`, and
    for int4 [.., 2, positions].
    """
    if scales is None:
        if form.name != "fp8":
            return elements.float()
        return elements.view(torch.float8_e4m3fn).float() * torch.tensor(scale, dtype=torch.float32)
    if form.name == "int8":
        return elements.float() * scales.float().unsqueeze(axis)
    steps, least = (part.float().unsqueeze(axis) for part in scales.unbind(-2))
    return least + torch.cat([elements & 15, elements >> 4], axis).float() * steps


def _int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = _up(x.abs().amax(-1, keepdim=True) / INT8_MOST)
    scale = scale.masked_fill(~(scale * INT8_MOST).isfinite(), torch.nan)
    codes = _codes(x, scale).clamp(-INT8_MOST, INT8_MOST)
    return codes.to(torch.int8), _halves(scale)


def _int4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    least = _down(x.amin(-1, keepdim=True) + 0.0)  # of a zero and a negative one, whichever was found, the zero
    scale = _up((x.amax(-1, keepdim=True) - least) / INT4_MOST)
    lost = ~(least + scale * INT4_MOST).isfinite()
    scale, least = scale.masked_fill(lost, torch.nan), least.masked_fill(lost, 0.0)
    low, high = _codes(x - least, scale).clamp(0, INT4_MOST).to(torch.uint8).chunk(2, -1)
    return low | high << 4, _halves(torch.cat([scale, least], -1))


def _halves(x: torch.Tensor) -> torch.Tensor:
    """The nearest bfloat16, ties to even; one NaN for all, which torch has several of."""
    return x.bfloat16().masked_fill(x.isnan(), torch.nan)


def _codes(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the nearest codes of `x`; 0 for all of a position and head whose scale is 0 or NaN."""
    there = scale > 0
    return torch.where(there, torch.round(x / torch.where(there, scale, 1.0)), 0.0)


def _up(x: torch.Tensor) -> torch.Tensor:
    """Numbers of 0 or more, or NaN: the next that bfloat16 holds, as float32."""
    bits = x.view(torch.int32)
    return torch.where(x.isnan(), x, (bits + 0xFFFF & -0x10000).view(torch.float32))


def _down(x: torch.Tensor) -> torch.Tensor:
    bits = x.view(torch.int32)
    return torch.where(x < 0, _up(-x).neg(), torch.where(x.isnan(), x, (bits & -0x10000).view(torch.float32)))
