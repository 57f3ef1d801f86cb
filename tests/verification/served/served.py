"""Benchmark `served`: are arms that are served judged by what they are, by answers that are theirs, and by all of them?
Each row is another module's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from qualgate.bench.shape import told
from tests.verification.goals import SERVED

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("chaos", ("chaos",)),
    ("faults", ("faults",)),
    ("client_cost", ("client",)),
    ("verdict_same", ("verdict.same",)),
    ("lists", ("wire.drafted", "kl.bounds")),
    ("laws", ("power",)),
    ("load_agrees", ("metrics.agree",)),
)
"""(module, the rows that it measures), each by `measure(quick) -> (rounds, rows)`."""


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices, under 20 s each."""
    parts = [part for part in PARTS if not only or set(only) & set(part[1])]
    rounds, found = [], {}
    for name, _ in told("served", parts, lambda part: ", ".join(part[1])):
        of_part, rows = importlib.import_module(f"tests.verification.served.{name}").measure(quick)
        rounds += [{"part": name, **one} for one in of_part]
        found |= {row["id"]: row for row in rows}
    rows = [found.get(id) or SERVED.not_run(id, "not asked for") for id in SERVED.goals]
    return SERVED.result(rounds=rounds, rows=rows)
