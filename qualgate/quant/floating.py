"""From float weights to small floats: FP8, MXFP4, MXFP8, NVFP4. Nearest, halves to the even code, saturating.

FP8 and NVFP4 scale in the weight's own dtype, because llm-compressor does: only so the codes agree with its bit for
bit. MX formats share an exponent, so nothing is lost on the way.
"""

from __future__ import annotations

import torch

from qualgate_kernels.packed import MXFP4_BLOCK, NVFP4_BLOCK

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FP8_TILE = 128  # rows and columns that share a scale in block FP8
E2M1_MAX = 6.0
MAX_EXPONENT = {"e2m1": 2, "e4m3": 8, "e5m2": 15}  # of the largest numbers, 6, 448 and 57344
_NEIGHBOURS = range(-10, 5)  # e4m3 codes around the scale that fits the largest weight: x 0.4 to x 1.5


def cast_fp8(weight: torch.Tensor, element: str = "e4m3", granularity: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """Codes as uint8 of the weight's shape, and scales in the weight's dtype: weight = number * scale.

    granularity: "" one scale a row, [out_features, 1]; "tensor" [1, 1]; "block" one for each 128 x 128 weights,
    [ceil(out_features / 128), ceil(in_features / 128)], the last ones smaller.
    """
    number = FP8[element]
    largest = torch.finfo(number).max
    rows, columns = weight.shape
    if granularity == "block":
        tiles = torch.nn.functional.pad(weight.abs(), (0, -columns % FP8_TILE, 0, -rows % FP8_TILE))
        tiles = tiles.view(tiles.shape[0] // FP8_TILE, FP8_TILE, -1, FP8_TILE)
        absmax = tiles.amax((1, 3))
    else:
        absmax = weight.abs().amax((0, 1) if granularity == "tensor" else 1, keepdim=True)
    scales = absmax / torch.tensor(largest, dtype=weight.dtype, device=weight.device)
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    spread = scales
    if granularity == "block":
        spread = scales.repeat_interleave(FP8_TILE, 0)[:rows].repeat_interleave(FP8_TILE, 1)[:, :columns]
    return (weight / spread).clamp_(-largest, largest).to(number).view(torch.uint8), scales


def cast_mxfp4(weight: torch.Tensor, exponent: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """OCP Microscaling 1.0, section 6.3: shared exponent floor(log2(absmax)) - 2, then E2M1.

    weight: [out_features, in_features]; returns codes 0..15 as uint8 of that shape and E8M0 exponents (bias 127) as
    uint8 [out_features, in_features / 32]. A block of zeros has the smallest exponent. exponent: "rounded" rounds
    absmax to one mantissa bit first, as llm-compressor does, so that a block whose absmax is 7 or more before
    saturation gets the next exponent instead.
    """
    magnitude, shared = _to_shared_exponent(weight, "e2m1", exponent)
    codes = _e2m1(magnitude.double())
    return codes.view(weight.shape), (shared + 127).to(torch.uint8).squeeze(-1)


def cast_mxfp8(weight: torch.Tensor, exponent: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """Cast like `cast_mxfp4` to e4m3: codes are the bytes, the shared exponent is floor(log2(absmax)) - 8."""
    scaled, shared = _to_shared_exponent(weight, "e4m3", exponent)
    largest = torch.finfo(torch.float8_e4m3fn).max
    codes = scaled.float().clamp_(-largest, largest).to(torch.float8_e4m3fn).view(torch.uint8)
    return codes.view(weight.shape), (shared + 127).to(torch.uint8).squeeze(-1)


def cast_nvfp4(
    weight: torch.Tensor, importance: torch.Tensor | None = None, absmax: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes 0..15 as uint8, scales e4m3 [out_features, in_features / 16], and a float32 scalar that divides them.

    weight = number * scale / tensor_scale; tensor_scale = 448 * 6 / absmax lets the scales use all of e4m3's range.
    absmax: the weight's own by default; servers that run layers as one matrix (q, k, v; gate, up) want theirs alike.
    importance: float [in_features], the mean square of each input: every block then takes, of 15 e4m3 neighbours of
    its scale, the one with the least error in the layer's output as far as inputs are uncorrelated.
    """
    largest = torch.finfo(torch.float8_e4m3fn).max
    absmax = (weight.abs().amax() if absmax is None else absmax.to(weight)).clamp(min=torch.finfo(weight.dtype).tiny)
    tensor_scale = torch.nan_to_num(largest * E2M1_MAX / absmax, posinf=1.0).float()
    blocks = weight.view(weight.shape[0], -1, NVFP4_BLOCK)
    block_scales = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX
    scales = (tensor_scale.view(1) * block_scales).clamp_(max=largest).to(torch.float8_e4m3fn)
    scales = torch.where(scales.float() == 0, torch.full_like(scales.float(), 0.125), scales.float())
    if importance is not None:
        weights = importance.float().view(1, -1, NVFP4_BLOCK)
        scales = _best_neighbour(blocks.float(), scales, tensor_scale, weights)
    codes = _e2m1(blocks.float() / (scales / tensor_scale))
    return codes.view(weight.shape), scales.to(torch.float8_e4m3fn).squeeze(-1), tensor_scale


def _best_neighbour(
    blocks: torch.Tensor, scales: torch.Tensor, tensor_scale: torch.Tensor, importance: torch.Tensor
) -> torch.Tensor:
    """Return, for each block, the neighbour of its e4m3 scale with the least error weighted by `importance`."""
    code_of_scale = scales.to(torch.float8_e4m3fn).view(torch.uint8).int()
    best, least = scales, torch.full_like(scales, float("inf"))
    for step in _NEIGHBOURS:
        code = (code_of_scale + step).clamp_(1, 126)  # 0 is zero, 127 is NaN
        tried = code.to(torch.uint8).view(torch.float8_e4m3fn).float()
        scale = tried / tensor_scale
        error = ((e2m1_numbers(blocks / scale) * scale - blocks).square_() * importance).sum(-1, keepdim=True)
        best, least = torch.where(error < least, tried, best), torch.minimum(error, least)
    return best


def _to_shared_exponent(weight: torch.Tensor, element: str, exponent: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 32 divided by 2**shared, and `shared` as int32 [out_features, blocks, 1].

    In double, so that neither 2**127 nor a subnormal weight loses anything on the way.
    """
    blocks = weight.float().view(weight.shape[0], -1, MXFP4_BLOCK)
    absmax = blocks.abs().amax(-1, keepdim=True)
    mantissa, power = torch.frexp(absmax)  # absmax = mantissa * 2**power, mantissa in [0.5, 1)
    shared = power - 1 - MAX_EXPONENT[element]
    if exponent == "rounded":
        shared = shared + (mantissa >= 0.875).int()
    shared = torch.where(absmax == 0, -127, shared.clamp(-127, 127))
    return torch.ldexp(blocks.double(), -shared), shared


def _e2m1(numbers: torch.Tensor) -> torch.Tensor:
    """Codes 0..15 as uint8. One mantissa bit: steps of 0.5 below 2 (0 to 1 is subnormal), 1 below 4, 2 up to 6."""
    magnitude = numbers.abs()
    code = torch.signbit(numbers).to(torch.uint8) << 3
    for halfway in (0.25, 1.25, 2.5, 5.0):  # between an even code and the next: down
        code += magnitude > halfway
    for halfway in (0.75, 1.75, 3.5):  # up
        code += magnitude >= halfway
    return code


def e2m1_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Return the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the dtype of `numbers`."""
    magnitude = numbers.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0)).to(numbers.dtype)
    # torch rounds halves to even, as the codes do.
    return ((magnitude / step).round_() * step).clamp_(max=E2M1_MAX).copysign_(numbers)
