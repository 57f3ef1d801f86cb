"""The scales of a quantized layer held against the weights that they make of its codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import UsageError
from qualgate_kernels.dequantize import dequantize_torch, scales_float
from qualgate_kernels.packed import PackedWeight

if TYPE_CHECKING:
    from qualgate.quant.readers.source import Layer

_ROWS = 64  # of a weight that are looked at
_LOUD = 100.0  # no trained matrix has half of its weights above that: inverted scales of 4 bits give 1e2 to 1e3
_MOST = 1e4  # nor does one that was made loud on purpose: inverted scales of 8 bits give 1e4 to 1e6
_LEAST = 1e-6
_FULL = 0.75  # of the format's largest code: a quantizer's scale brings the largest weight of a row up to there
_LARGEST = {"e2m1": 6.0, "e4m3": 448.0, "e5m2": 57344.0, "nf4": 1.0}
_DAMAGED = "Its scales are damaged: fetch or save this checkpoint again."


def with_scales_checked(file: Path, name: str, layer: Layer) -> Layer:
    """Return the layer, with doubts about its scales among its oddities.

    UsageError for scales that are inverted or lost: they cannot be what a quantizer wrote.
    """
    weight = layer.weight
    if weight.codes.is_meta or weight.offsets is not None:
        return layer
    numbers = dequantize_torch(_first_rows(weight)).abs()
    middle, most = float(numbers.median()), float(numbers.max())
    if middle > _MOST:
        raise UsageError(
            f"{file}: by its scales, half of the weights of {name} are above {middle:.3g}, which no trained model has. "
            f"Scales that were stored inverted (1 / scale) look like this. {_DAMAGED}"
        )
    oddity = f"half of its weights above {_LOUD:g}, as scales give that were inverted" if middle > _LOUD else ""
    if bool((scales_float(weight) == 1).all()):
        code_end = _LARGEST.get(weight.code, float(2 ** (weight.bits - 1) - 1))
        if most >= _FULL * code_end:
            raise UsageError(
                f"{file}: every scale of {name} is 1, but its codes reach {most:.3g}: the scales that a quantizer "
                f"would have used are missing. {_DAMAGED}"
            )
        oddity = "scales of 1 alone: its weights were cast and not scaled, so most of the codes are not used"
    elif 0 < most < _LEAST:
        oddity = f"weights below {_LEAST:g} alone, as its scales have it"
    return replace(layer, oddities=(*layer.oddities, oddity)) if oddity else layer


def _first_rows(weight: PackedWeight) -> PackedWeight:
    """Return the same weight, cut to its first rows, or to its first block of rows."""
    rows = min(weight.shape[0], max(_ROWS, weight.block_rows))
    blocks = rows if weight.block_rows == 1 else -(-rows // weight.block_rows) if weight.block_rows else 1
    zeros = weight.zero_points
    return replace(
        weight,
        shape=(rows, weight.shape[1]),
        codes=weight.codes[:rows],
        scales=weight.scales[:blocks],
        zero_points=zeros if zeros is None else zeros[:blocks],
    )
