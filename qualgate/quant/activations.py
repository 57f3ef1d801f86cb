"""Inputs of a quantized layer, rounded as its checkpoint says: by fixed scales, or by scales of each token's own.

Every token is rounded by itself, whatever rows it comes with. A scale over a whole batch (dynamic and per tensor) has
no place here: a row's result would depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from qualgate.quant.floating import E2M1_MAX, FP8, MAX_EXPONENT, e2m1_numbers
from qualgate_kernels.activations import divisor, half_range, integers
from qualgate_kernels.packed import MXFP4_BLOCK, NVFP4_BLOCK

ScaleRule = Literal["float", "e4m3", "e8m0 rounded", "e8m0 ceiling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How an input x [..., in_features] becomes numbers of a small format: number = nearest(x / scale) * scale.

    code: "int" of `bits`, or the small floats "e2m1", "e4m3", "e5m2". Halves go to the even code; the ends saturate.
    scale: fixed by calibration; None: each group's own, absmax / the format's end (of integers: half their range,
    which for 8 bits is 127.5), put into a format of scales by `rule`:

        float         as it is
        e4m3          NVFP4: (tensor_scale's share, absmax / 6) as e4m3, times tensor_scale
        e8m0 rounded  2**(floor(log2(absmax, rounded to one mantissa bit)) - the end's exponent): llm-compressor's MX
        e8m0 ceiling  2**ceil(log2(absmax / end)): DeepSeek's ue8m0

    Asymmetric integers count from a zero point: the lowest code stands for the group's least number, 0 among them.
    """

    code: Literal["int", "e2m1", "e4m3", "e5m2"]
    bits: int
    group_size: int = 0  # in_features that share a scale; 0 = the whole token. The last group may be shorter
    symmetric: bool = True
    rule: ScaleRule = "float"
    least: float = 0.0  # of a scale
    most: float = 0.0  # of the absmax that a scale is made of; larger inputs saturate. 0 = no bound
    scale: float | None = None
    zero_point: int = 0  # beside a fixed scale
    tensor_scale: float = 1.0  # over all scales of the rule e4m3, multiplied or, with `tensor_divides`, divided by
    tensor_divides: bool = False

    @property
    def label(self) -> str:
        """What a report calls it: "int8", "int8 asym, fixed scale", "fp8 g128", "nvfp4", "mxfp8"."""
        name = {"int": f"int{self.bits}", "e2m1": "fp4", "e4m3": "fp8", "e5m2": "fp8 e5m2"}[self.code]
        if self.scale is not None:
            return f"{name}{' asym' if self.zero_point else ''}, fixed scale"
        if self.rule == "e4m3" and self.group_size == NVFP4_BLOCK:
            return "nvfp4"
        if self.rule == "e8m0 rounded" and self.group_size == MXFP4_BLOCK:
            return f"mx{name}"
        name += "" if self.symmetric else " asym"
        name += f" g{self.group_size}" if self.group_size else ""
        name += f" up to {self.most:g}" if self.most else ""
        return name if self.rule == "float" else f"{name} ({self.rule} scales)"


PER_TOKEN = {"": None, "int8": Rounding(code="int", bits=8), "fp8": Rounding(code="e4m3", bits=8)}
"""What a recipe's `activations` mean."""


def round_inputs(x: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """Round x as `rounding` says, computed in float32, in x's dtype. Zeros stay zeros."""
    if rounding.scale is not None:
        # A tensor, because torch multiplies by a plain number's reciprocal on some devices.
        scale = torch.full((), rounding.scale, dtype=torch.float32, device=x.device)
        return _nearest(x.float(), scale, rounding.zero_point, rounding).to(x.dtype)
    width = x.shape[-1]
    size = rounding.group_size or width
    groups = nn.functional.pad(x.float(), (0, -width % size)).unflatten(-1, (-1, size))
    if rounding.symmetric:
        scale, zero_point = _scale(groups.abs().amax(-1, keepdim=True), rounding), 0
    else:
        low, high = groups.amin(-1, keepdim=True).clamp_(max=0), groups.amax(-1, keepdim=True).clamp_(min=0)
        scale = ((high - low) / (2**rounding.bits - 1)).clamp_(min=rounding.least)
        lowest = -(2 ** (rounding.bits - 1))
        zero_point = (lowest - low / divisor(scale)).round_().clamp_(lowest, -lowest - 1)
    return _nearest(groups, scale, zero_point, rounding).flatten(-2)[..., :width].to(x.dtype)


def _scale(absmax: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """Return the scale of each group, shaped like `absmax`; 0 where the rule's format cannot tell it from 0."""
    if rounding.rule == "e8m0 rounded":
        mantissa, power = torch.frexp(absmax)  # absmax = mantissa * 2**power, mantissa in [0.5, 1)
        shared = power - 1 - MAX_EXPONENT[rounding.code] + (mantissa >= 0.875).int()
        return torch.ldexp(torch.ones_like(absmax), shared.clamp_(-127, 127))
    scale = (absmax.clamp(max=rounding.most) if rounding.most else absmax) / _end(rounding)
    if rounding.rule == "e8m0 ceiling":
        mantissa, power = torch.frexp(scale)
        scale = torch.ldexp(torch.ones_like(scale), power - (mantissa == 0.5).int())
    if rounding.rule == "e4m3":
        tensor_scale = torch.full((), rounding.tensor_scale, dtype=torch.float32, device=absmax.device)
        scale = scale * tensor_scale if rounding.tensor_divides else scale / tensor_scale
        scale = scale.clamp_(rounding.least, torch.finfo(FP8["e4m3"]).max).to(FP8["e4m3"]).float()
        return scale / tensor_scale if rounding.tensor_divides else scale * tensor_scale
    return scale.clamp_(min=rounding.least)


def _end(rounding: Rounding) -> float:
    """Return the largest number of the format; of integers half their range."""
    if rounding.code == "int":
        return half_range(rounding.bits)
    return E2M1_MAX if rounding.code == "e2m1" else torch.finfo(FP8[rounding.code]).max


def _nearest(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | int, rounding: Rounding) -> torch.Tensor:
    """Round `x` to the nearest number that a code under its scale stands for, and return those numbers."""
    if rounding.code == "int":
        return integers(x, scale, rounding.bits, zero_point) * scale
    steps = x / divisor(scale)
    if rounding.code == "e2m1":
        return e2m1_numbers(steps) * scale
    largest = _end(rounding)
    return steps.clamp_(-largest, largest).to(FP8[rounding.code]).float() * scale
