"""Each reading of tool calls: how many are right by it, and how many it forgave."""

from __future__ import annotations

from collections.abc import Iterable

from qualgate.report.blocks import Section, Table
from qualgate.store.queries import Readings

HEADS = ("read", "asked", "baseline right", "variant right", "baseline forgiven", "variant forgiven")


def reading_sections(sets: Iterable[Readings]) -> list[Section]:
    """Return a table for each evalset, one row per reading. Forgiven: right by the reading but wrong strictly."""
    sections = []
    for results in sets:
        rows = tuple(
            (
                line.reading,
                *(f"{n:,}" for n in (line.asked, line.baseline, line.variant)),
                *(f"{n:,}" for n in (line.baseline_forgiven, line.variant_forgiven)),
            )
            for line in results.lines
        )
        table = Table(heads=HEADS, rows=rows, numbers=range(1, 6))
        sections.append(Section(f"{results.evalset}: the same tool calls by each reading", (table,)))
    return sections
