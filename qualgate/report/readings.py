"""Text on each reading of tool calls: how many are right by it, and how many it forgave."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.store.queries import Readings

HEADS = ("read", "asked", "baseline right", "variant right", "baseline forgiven", "variant forgiven")


def headline(results: Readings) -> str:
    """Return the heading with the evalset's name."""
    return f"{results.evalset}: the same tool calls by each reading"


def rows(results: Readings) -> list[tuple[str, ...]]:
    """Return the cells under HEADS, one row per reading. Forgiven: right by the reading but wrong strictly."""
    return [
        (
            reading.reading, f"{reading.asked:,}", f"{reading.baseline:,}", f"{reading.variant:,}",
            f"{reading.baseline_forgiven:,}", f"{reading.variant_forgiven:,}",
        )
        for reading in results.lines
    ]  # fmt: skip


def lines(sets: Sequence[Readings]) -> list[str]:
    """Return lines for a terminal: right answers by each reading, baseline → variant, and how many it forgave."""
    text_lines = []
    for results in sets:
        parts = []
        for reading in results.lines:
            forgave = f" (forgave {reading.baseline_forgiven:,} → {reading.variant_forgiven:,})"
            any_ = reading.baseline_forgiven or reading.variant_forgiven
            rates = f"{reading.baseline:,} → {reading.variant:,} of {reading.asked:,}"
            parts.append(f"{reading.reading} {rates}{forgave if any_ else ''}")
        text_lines.append(f"tool calls of {results.evalset} right as read: {', '.join(parts)}")
    return text_lines
