"""Quantization of a model folder, tensor by tensor, on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from qualgate.report import screen
from qualgate.report.blocks import Note, Section, Table
from qualgate.report.terminal_blocks import print_sections
from qualgate.text.numbers import counted, size_text

if TYPE_CHECKING:
    from qualgate.quant.inspect import Difference, ModelReport, TensorReport

HEADS = ("tensor", "format", "layout", "shape", "bytes", "bits", "min", "max", "mean", "std", "zeros", "saturated")
UNMATCHED_SHOWN = 10


def inspection_as_json(
    report: ModelReport, differences: tuple[Difference, ...] = (), unmatched: tuple[str, ...] = ()
) -> str:
    """Return the report as one JSON object; infinite SQNRs (equal tensors) are null."""
    value: dict[str, Any] = asdict(report) | {"nbytes": report.nbytes, "effective_bits": report.effective_bits}
    value["kernels"] = [{"kernel": kernel, "layers": count} for kernel, count in report.kernels]
    value["oddities"] = [{"what": what, "tensors": count} for what, count in report.oddities]
    if differences or unmatched:
        value["differences"] = [_finite(asdict(difference)) for difference in differences]
        value["unmatched"] = list(unmatched)
    return json.dumps(value, indent=2)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite and NaN numbers by None, since JSON has none."""
    return {key: value if not isinstance(value, float) or isfinite(value) else None for key, value in row.items()}


def print_inspection(
    report: ModelReport, differences: tuple[Difference, ...] = (), unmatched: tuple[str, ...] = ()
) -> None:
    """Print the report to stdout, with colours only on a terminal."""
    title = f"{report.folder}  {report.method}, {size_text(report.nbytes)}, {report.effective_bits:.2f} bits a number"
    notes = _notes(report, unmatched)
    print_sections(screen.console(), [Section(title, (_tensors(report, differences), *notes))])


def _tensors(report: ModelReport, differences: tuple[Difference, ...]) -> Table:
    by_name = {difference.name: difference for difference in differences}
    rows = []
    for tensor in report.tensors:
        difference = by_name.get(tensor.name)
        extra = (f"{difference.relative_error:.4f}", _decibels(difference.sqnr)) if difference else ("–", "–")
        rows.append((*_row(tensor), *(extra if differences else ())))
    heads = (*HEADS, "rel. error", "SQNR") if differences else HEADS
    return Table(heads=heads, rows=tuple(rows), numbers=range(3, len(heads)))


def _notes(report: ModelReport, unmatched: tuple[str, ...]) -> Iterator[Note]:
    yield from (Note(f"inputs: {text}") for text in report.inputs)
    yield from (Note(f"kernel here: {kernel} ({counted(count, 'layer')})") for kernel, count in report.kernels)
    yield from (Note(f"odd: {what} ({counted(count, 'tensor')})") for what, count in report.oddities)
    if report.unused_keys:
        yield Note(f"keys of the config that no weight is read by: {', '.join(report.unused_keys)}")
    if report.refused:
        yield Note(f"plan and run refuse it: {report.refused}")
    if unmatched:
        more = f" and {len(unmatched) - UNMATCHED_SHOWN} more" if len(unmatched) > UNMATCHED_SHOWN else ""
        shown = ", ".join(unmatched[:UNMATCHED_SHOWN])
        yield Note(f"not compared, as only one has them or shapes differ: {shown}{more}")


def _row(tensor: TensorReport) -> tuple[str, ...]:
    """Return the cells below HEADS; "–" for a number that was not measured."""
    numbers = (tensor.min, tensor.max, tensor.mean, tensor.std)
    return (
        tensor.name,
        tensor.format,
        tensor.layout,
        " x ".join(map(str, tensor.shape)) or "scalar",
        f"{tensor.nbytes:,}",
        f"{tensor.effective_bits:.2f}",
        *("–" if number is None else f"{number:.4g}" for number in numbers),
        *("–" if share is None else f"{share:.1%}" for share in (tensor.zeros, tensor.saturated)),
    )


def _decibels(sqnr: float) -> str:
    return f"{sqnr:.1f} dB" if isfinite(sqnr) else "equal"
