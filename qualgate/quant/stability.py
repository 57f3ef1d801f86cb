"""Numerical stability of a quantized weight: what overflowed, what vanished, how much noise was added.

Counters of one layer, from the float weight as it was given to the quantizer and the PackedWeight that came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import floor, isfinite, log2, log10
from typing import Any, NamedTuple

import torch

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight

FORMULA = "stability/1"  # raised when a number's meaning changes
AT_ONCE = 2**17  # elements that are counted at a time: their float32 numbers stay in a cache
SATURATED = 1e-6  # of a layer's elements, the most that needs no declaration
# Bytes whose codes all stand at the lowest and the highest number the format spells.
_ENDS = {"int": (0x00, 0xFF), "e2m1": (0xFF, 0x77), "e4m3": (0xFE, 0x7E), "e5m2": (0xFB, 0x7B), "nf4": (0x00, 0xFF)}
# Half the spacing of numbers below the highest, over the highest: beyond it rounding finds no code (e4m3: 448 and 16).
_HALF_STEP = {"e2m1": 1 / 6, "e4m3": 16 / 448, "e5m2": 4096 / 57344, "nf4": (1 - 0.7229568362236023) / 2}
SQNR_FLOOR = {"e4m3": 26.0, "e5m2": 20.0, "e2m1": 14.0, "nf4": 14.0}  # dB; int: see `sqnr_floor`


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStability:
    """Counters of one layer's weight. Shares are 0..1."""

    format: str
    elements: int
    nan: int  # in the weight the codes and scales spell, or in the one that was quantized
    inf: int
    at_limit: int  # codes at either end of the format; with a scale from the largest weight, some always are
    saturated: int  # weights more than half a step beyond the ends: rounding to the nearest found no code
    exponent_clamps: int | None  # E8M0 scales at an end that their block asked to be beyond; None: other scales
    zero_scales: int  # scales that are 0 though their weights are not (NVFP4's e4m3 scales underflow)
    underflow: float | None  # share of the weights other than 0 that became 0
    sqnr: float | None  # dB, 10 log10(sum w^2 / sum (w - w')^2); None: exact, or no signal
    sqnr_floor: float

    @property
    def counted(self) -> bool:
        """Whether saturation and noise were: of NaN and infinities neither is."""
        return not (self.nan or self.inf)

    @property
    def steady(self) -> bool:
        """Whether every suggested bound holds: no NaN or infinity, hardly any saturation, noise above the floor."""
        clean = self.counted and not (self.zero_scales or self.exponent_clamps)
        return (
            clean
            and self.saturated <= SATURATED * self.elements
            and (self.sqnr is None or self.sqnr >= self.sqnr_floor)
        )


def weight_stability(weight: torch.Tensor, packed: PackedWeight) -> WeightStability:
    """Measure what quantizing did to one weight.

    weight: float [out_features, in_features], as it was quantized (scales folded in); packed: the result.
    """
    step = -(-AT_ONCE // weight.shape[1])
    step += -step % (packed.block_rows or 1)
    parts = [
        _counted(weight[first : first + step].detach().float(), packed.rows(first, first + step))
        for first in range(0, weight.shape[0], step)
    ]
    counts = _Counts._make(map(sum, zip(*parts, strict=True)))
    signal, noise = counts.signal, counts.noise
    return WeightStability(
        format=packed.format,
        elements=weight.numel(),
        nan=counts.nan,
        inf=counts.inf,
        at_limit=counts.at_limit,
        saturated=counts.saturated,
        exponent_clamps=_exponent_clamps(weight, packed),
        zero_scales=_zero_scales(weight, packed),
        underflow=counts.vanished / counts.alive if counts.alive else None,
        sqnr=10 * log10(signal / noise) if signal and noise and isfinite(signal / noise) else None,
        sqnr_floor=sqnr_floor(packed),
    )


class _Counts(NamedTuple):
    """Sums over some rows. alive: weights other than 0; vanished: those of them that became 0; signal, noise: sums of
    squares."""

    nan: int
    inf: int
    at_limit: int
    saturated: int
    alive: int
    vanished: int
    signal: float
    noise: float


def _counted(weight: torch.Tensor, packed: PackedWeight) -> _Counts:
    """Count in a few rows, whose numbers stay in a cache through all steps. weight: float32."""
    values = dequantize_torch(packed)
    lowest, highest = _ends(packed)
    half = (highest - lowest) / (2**packed.bits - 1) / 2 if packed.code == "int" else highest * _HALF_STEP[packed.code]
    noise, signal = _squares(weight - values), _squares(weight)
    nan = inf = 0
    finite = None
    if not (isfinite(noise) and isfinite(signal)):
        nan, inf = _count(values.isnan() | weight.isnan()), _count(values.isinf() | weight.isinf())
        finite = values.isfinite()
        noise = _squares((weight - values)[finite])
    by_group = (weight.shape[0], lowest.shape[1], -1)  # as the ends are spread
    in_groups, values_in_groups = weight.view(by_group), values.view(by_group)
    at_limit = (values_in_groups == lowest) | (values_in_groups == highest)
    if finite is not None or not bool((lowest != highest).all()):
        at_limit &= (lowest != highest) & values_in_groups.isfinite()
    alive = weight != 0
    return _Counts(
        nan=nan,
        inf=inf,
        at_limit=_count(at_limit),
        saturated=_count((in_groups > highest + half) | (in_groups < lowest - half)),
        alive=_count(alive),
        vanished=_count((values == 0) & alive),
        signal=signal,
        noise=noise,
    )


def _squares(values: torch.Tensor) -> float:
    """Return the sum of squares, in float64."""
    flat = values.double().flatten()
    return float(flat @ flat)


def _count(marks: torch.Tensor) -> int:
    return int(marks.sum(dtype=torch.int32))


def sqnr_floor(packed: PackedWeight) -> float:
    """A bound to look below at, in dB: integers gain 6.02 dB a bit, less what outliers cost a shared scale."""
    return SQNR_FLOOR.get(packed.code, 6.02 * packed.bits - 13)


def stability_section(layers: Mapping[str, WeightStability]) -> dict[str, Any]:
    """Plain JSON for a model card: totals, the worst layers, every layer."""
    total = {
        name: sum(getattr(layer, name) or 0 for layer in layers.values())
        for name in ("elements", "nan", "inf", "at_limit", "saturated", "exponent_clamps", "zero_scales")
    }
    noisy = {name: layer.sqnr for name, layer in layers.items() if layer.sqnr is not None}
    least = min(noisy, key=lambda name: noisy[name], default=None)
    return {
        "formula": FORMULA,
        **total,
        "sqnr_min": noisy[least] if least else None,
        "sqnr_min_layer": least,
        "unsteady_layers": [name for name, layer in layers.items() if not layer.steady],
        "layers": {name: asdict(layer) for name, layer in layers.items()},
    }


def _ends(packed: PackedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lowest and highest number that each element could have been under its own scale, which may be
    negative: [rows, groups, 1], or [rows, in_features, 1] where groups are not of one size."""
    even = packed.g_idx is None and packed.shape[1] % (packed.group_size or 1) == 0
    rows, columns = packed.shape[0], packed.groups if even else packed.shape[1]
    group_size = min(packed.group_size, 1) if even else packed.group_size

    def all_at(byte: int) -> torch.Tensor:
        codes = packed.codes.new_full((rows, (columns * packed.bits + 7) // 8), byte)
        return dequantize_torch(replace(packed, shape=(rows, columns), group_size=group_size, codes=codes)).unsqueeze(2)

    one_end, other_end = map(all_at, _ENDS[packed.code])
    return torch.minimum(one_end, other_end), torch.maximum(one_end, other_end)


def _blocks(weight: torch.Tensor, packed: PackedWeight) -> torch.Tensor | None:
    """[rows, groups]: the largest magnitude under each scale; None where scales lie in another pattern."""
    if packed.block_rows != 1 or packed.g_idx is not None:
        return None
    return weight.abs().view(weight.shape[0], packed.groups, -1).amax(-1)


def _exponent_clamps(weight: torch.Tensor, packed: PackedWeight) -> int | None:
    """Return how many blocks needed an exponent outside e8m0's range; None for other scales."""
    if packed.scales.dtype != torch.uint8 or (largest := _blocks(weight, packed)) is None:
        return None
    # A block that is all zeros has the lowest exponent by right; one above 2**127 times the format's end has none.
    clamped_below = (packed.scales == 0) & (largest > 0)
    clamped_above = (packed.scales >= 254) & (largest >= 2.0**127)
    return int((clamped_below | clamped_above).sum())


def _zero_scales(weight: torch.Tensor, packed: PackedWeight) -> int:
    if packed.scales.dtype == torch.uint8 or packed.offsets is not None:
        return 0
    zero = packed.scales.float() == 0
    if not zero.any() or (largest := _blocks(weight, packed)) is None:
        return 0
    return int((zero & (largest > 0)).sum())


# ---------------------------------------------------------------------------------------------- near ties


def ulp(value: float) -> float:
    """The spacing of float32 at the magnitude of `value`."""
    return 2.0 ** (floor(log2(abs(value))) - 23) if value else 2.0**-149


def softmax_sum_error(logits: Iterable[torch.Tensor]) -> float | None:
    """How far the probabilities of a position are from a sum of 1, at worst: softmax in float32, as the logits are,
    summed in float64. logits: [positions, vocabulary] each. Infinite where they are no numbers; None without positions.
    """
    sums = [text.float().softmax(-1).double().sum(-1) for text in logits if len(text)]
    return max((float((total - 1).abs().nan_to_num(torch.inf).max()) for total in sums), default=None)


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the most float32 numbers that lie between two elements of the same place; 0 = the same bits, but for signs
    of 0.

    NaN on both sides counts as 0, on one side as 2**31.
    """
    if not left.numel():
        return 0
    distance = (_ordered(left) - _ordered(right)).abs()
    broken = left.isnan() | right.isnan()
    distance = torch.where(broken, torch.where(left.isnan() & right.isnan(), 0, 2**31), distance)
    return int(distance.max())


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """float32 → int64 in the same order, neighbours one apart."""
    bits = values.contiguous().view(torch.int32).long()
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
