"""Benchmark `service`: what a store that many share bears, and what it costs to run on engines of others."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from qualgate.bench.shape import told
from tests.verification.goals import SERVICE

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ingest", ("ingest", "writers")),
    ("pages", ("pages",)),
    ("resume", ("resume",)),
    ("kills", ("kills",)),
    ("migrations", ("migrations",)),
    ("scale", ("scale",)),
    ("overhead", ("overhead.ray",)),
)
"""(module, the rows that it measures), each by `measure(quick) -> (rounds, rows)`."""


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices."""
    parts = [part for part in PARTS if not only or set(only) & set(part[1])]
    rounds, found = [], {}
    for name, _ in told("service", parts, lambda part: ", ".join(part[1])):
        of_part, rows = importlib.import_module(f"tests.verification.service.{name}").measure(quick)
        rounds += [{"part": name, **one} for one in of_part]
        found |= {row["id"]: row for row in rows}
    rows = [found.get(id) or SERVICE.not_run(id, "not asked for") for id in SERVICE.goals]
    return SERVICE.result(rounds=rounds, rows=rows)
