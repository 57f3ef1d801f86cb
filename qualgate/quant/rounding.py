"""From float weights to codes and scales: symmetric round-to-nearest integers and the MXFP4 direct cast."""

from __future__ import annotations

import torch

from qualgate_kernels.packed import MXFP4_BLOCK

_E2M1_MAX_EXPONENT = 2  # of 6.0 = 1.5 * 2**2


def round_to_nearest(weight: torch.Tensor, bits: int, group_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric rounding: q = clamp(round(weight / scale)), scale = absmax / ((2**bits - 1) / 2).

    weight: [out_features, in_features]; returns q as int8 of that shape, in -2**(bits-1) .. 2**(bits-1) - 1, and
    scales as bfloat16 [out_features, groups]. All codes are used (for int2: -2, -1, 0, 1), as in GPTQ's and
    compressed-tensors' symmetric formats; with absmax / qmax int2 would be ternary and round most weights to zero.
    The error is at most about scale / 2. A group of zeros has scale 0.
    """
    grouped = weight.float().view(weight.shape[0], -1, group_size or weight.shape[1])
    scales = (grouped.abs().amax(-1, keepdim=True) / ((2**bits - 1) / 2)).bfloat16()
    # The codes belong to the scale as stored. A zero scale gives 0 / 1 instead of 0 / 0.
    step = scales.float()
    q = (grouped / torch.where(step == 0, 1.0, step)).round_().clamp_(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return q.to(torch.int8).view(weight.shape), scales.squeeze(-1)


def cast_mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """OCP Microscaling 1.0, section 6.3: shared exponent floor(log2(absmax)) - 2, then E2M1, nearest even, saturating.

    weight: [out_features, in_features]; returns codes 0..15 as uint8 of that shape and E8M0 exponents (bias 127) as
    uint8 [out_features, in_features / 32]. A block of zeros has the smallest exponent.
    """
    blocks = weight.float().view(weight.shape[0], -1, MXFP4_BLOCK)
    absmax = blocks.abs().amax(-1, keepdim=True)
    exponent = (torch.frexp(absmax).exponent - 1 - _E2M1_MAX_EXPONENT).clamp(-127, 127)  # frexp: absmax in [.5, 1)
    exponent = torch.where(absmax == 0, -127, exponent)
    # In double, so that neither 2**127 nor a subnormal weight loses anything on the way.
    magnitude = torch.ldexp(blocks.double().abs(), -exponent)
    # E2M1 has one mantissa bit: steps of 0.5 below 2 (0 to 1 is subnormal), 1 below 4, 2 up to 6.
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    rounded = ((magnitude / step).round_() * step).clamp_(max=6.0)  # torch rounds halves to even, as the codes do
    halves = (rounded * 2).long()  # 0, 1, 2, 3, 4, 6, 8, 12
    code = torch.tensor([0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7], device=weight.device).take(halves)
    code = code + 8 * torch.signbit(blocks)
    return code.to(torch.uint8).view(weight.shape), (exponent + 127).to(torch.uint8).squeeze(-1)
