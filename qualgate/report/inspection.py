"""The report of `qualgate inspect`, as JSON and as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted, size_text
from qualgate.report import screen
from qualgate.report.screen import fit, indented

if TYPE_CHECKING:
    from qualgate.quant.inspect import Difference, ModelReport, TensorReport

_COLUMNS = (
    ("tensor", "left"), ("format", "left"), ("layout", "left"), ("shape", "right"), ("bytes", "right"),
    ("bits", "right"), ("min", "right"), ("max", "right"), ("mean", "right"), ("std", "right"), ("zeros", "right"),
    ("saturated", "right"),
)  # fmt: skip
WIDE = 135  # columns for the table; on narrower screens each tensor has its numbers on lines of their own


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
    """Print the report to stdout, with colours only on a terminal. Names come from files, so they are made visible."""
    columns = screen.width()
    console = Console(highlight=False, width=columns or 1000)  # nothing is cut in a file or a pipe
    by_name = {difference.name: difference for difference in differences}
    heads = _COLUMNS + ((("rel. error", "right"), ("SQNR", "right")) if differences else ())
    rows: list[tuple[Text | str, ...]] = []
    for tensor in report.tensors:
        extra = ()
        if differences:
            difference = by_name.get(tensor.name)
            extra = (f"{difference.relative_error:.4f}", _decibels(difference.sqnr)) if difference else ("–", "–")
        rows.append((*_row(tensor), *extra))
    console.print(
        Text.assemble(
            (visible_line(report.folder), "bold"),
            f"  {report.method}, {size_text(report.nbytes)}, {report.effective_bits:.2f} bits a number",
        )
    )
    if columns is None or columns >= WIDE:
        console.print(_table(heads, rows))
    else:
        for name, *cells in rows:
            cells_with_heads = [f"{head} {cell}" for (head, _), cell in zip(heads[1:], cells, strict=True)]
            console.print(name, indented(Text("   ".join(cells_with_heads), style="dim"), 4), sep="\n")
    for text in report.inputs:
        console.print(Text(fit(f"inputs: {visible_line(text)}")))
    for kernel, count in report.kernels:
        console.print(Text(f"kernel here: {visible_line(kernel)} ({counted(count, 'layer')})"))
    for what, count in report.oddities:
        console.print(Text(f"odd: {visible_line(what)} ({counted(count, 'tensor')})", style="yellow"))
    if report.unused_keys:
        console.print(
            Text(f"keys of the config that no weight is read by: {visible_line(', '.join(report.unused_keys))}")
        )
    if report.refused:
        console.print(Text(fit(f"plan and run refuse it: {visible_line(report.refused)}"), style="yellow"))
    if unmatched:
        shown = ", ".join(visible_line(name) for name in unmatched[:10])
        more = f" and {len(unmatched) - 10} more" if len(unmatched) > 10 else ""
        console.print(Text(f"not compared, as only one has them or shapes differ: {shown}{more}", style="yellow"))


def _table(columns: tuple[tuple[str, str], ...], rows: Sequence[tuple[Text | str, ...]]) -> Table:
    """Return a table with these columns; the first wraps, if the screen is too narrow, the others do not."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=name != "tensor", overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def _row(tensor: TensorReport) -> list[Text | str]:
    """Return the table row of one tensor, in the order of _COLUMNS; "–" for a number that was not measured."""
    numbers = (tensor.min, tensor.max, tensor.mean, tensor.std)
    return [
        Text(visible_line(tensor.name)),
        tensor.format,
        tensor.layout,
        " x ".join(map(str, tensor.shape)) or "scalar",
        f"{tensor.nbytes:,}",
        f"{tensor.effective_bits:.2f}",
        *("–" if number is None else f"{number:.4g}" for number in numbers),
        *("–" if share is None else f"{share:.1%}" for share in (tensor.zeros, tensor.saturated)),
    ]


def _decibels(sqnr: float) -> str:
    return f"{sqnr:.1f} dB" if isfinite(sqnr) else "equal"
