"""Benchmark `served`: are arms that are served judged by what they are, by answers that are theirs, and by all of them?
Each row is another module's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.shape import Benchmark, told
from tests.verification.goals import SERVED

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("chaos", ("chaos",)),
    ("killed", ("killed",)),
    ("faults", ("faults",)),
    ("identity", ("identity",)),
    ("client_cost", ("client",)),
    ("lists", ("verdict.same", "wire.drafted", "kl.bounds")),
    ("laws", ("power",)),
    ("endpoints", ("endpoints",)),
    ("load_agrees", ("metrics.agree",)),
)
"""(module, the rows that it measures), each by `measure(quick) -> (rounds, rows)`."""


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices, under 20 s each."""
    return run_parts(SERVED, PARTS, "tests.verification.served", quick, only)


def run_parts(
    bench: Benchmark, parts: Sequence[tuple[str, tuple[str, ...]]], package: str, quick: bool, only: Sequence[str]
) -> dict[str, Any]:
    """Of a benchmark whose parts are modules of `package`, those that measure a row of `only`, or all."""
    wanted = [part for part in parts if not only or set(only) & set(part[1])]
    rounds, found = [], {}
    for name, _ in told(bench.name, wanted, lambda part: ", ".join(part[1])):
        of_part, rows = importlib.import_module(f"{package}.{name}").measure(quick)
        rounds += [{"part": name, **one} for one in of_part]
        found |= {row["id"]: row for row in rows}
    rows = [found.get(id) or bench.not_run(id, "not asked for") for id in bench.goals]
    return bench.result(rounds=rounds, rows=rows)
