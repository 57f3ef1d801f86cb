"""Benchmark `service`: what a store that many share bears, and what it costs to run on engines of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.verification.goals import SERVICE
from tests.verification.served.served import run_parts

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ingest", ("ingest", "writers")),
    ("pages", ("pages",)),
    ("shown", ("pages.shown", "pages.sessions")),
    ("resume", ("resume",)),
    ("kills", ("kills",)),
    ("scale", ("scale",)),
    ("overhead", ("overhead.ray",)),
)
"""(module, the rows that it measures), each by `measure(quick) -> (rounds, rows)`."""


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices."""
    return run_parts(SERVICE, PARTS, "tests.verification.service", quick, only)
