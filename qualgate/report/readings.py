"""Each reading of tool calls as people read it: what is right by it, and what it forgave."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.store.queries import Readings

HEADS = ("read", "asked", "baseline right", "variant right", "baseline forgiven", "variant forgiven")


def headline(found: Readings) -> str:
    """Of which set they are."""
    return f"{found.evalset}: the same tool calls by each reading"


def rows(found: Readings) -> list[tuple[str, ...]]:
    """Cells under HEADS, a row a reading; forgiven is right by it and wrong strictly."""
    return [
        (
            one.reading, f"{one.asked:,}", f"{one.baseline:,}", f"{one.variant:,}",
            f"{one.baseline_forgiven:,}", f"{one.variant_forgiven:,}",
        )
        for one in found.lines
    ]  # fmt: skip


def lines(sets: Sequence[Readings]) -> list[str]:
    """For a terminal: right by each reading, baseline → variant, and of those what was wrong strictly."""
    told = []
    for found in sets:
        said = []
        for one in found.lines:
            forgave = f" (forgave {one.baseline_forgiven:,} → {one.variant_forgiven:,})"
            any_ = one.baseline_forgiven or one.variant_forgiven
            said.append(f"{one.reading} {one.baseline:,} → {one.variant:,} of {one.asked:,}{forgave if any_ else ''}")
        told.append(f"tool calls of {found.evalset} right as read: {', '.join(said)}")
    return told
