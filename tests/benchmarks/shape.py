"""The one shape of a benchmark's result, and of what it says while it runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark and its goal table. A row that was not run stays in it, with `met: null` and the reason."""

    name: str
    about: str  # in a line, for the list
    goals: Mapping[str, str]  # row id → goal
    in_parts: bool = False  # a long one: some of its rows can be asked for alone

    def row(
        self,
        id: str,
        measured: Any,
        *,
        met: bool | None,
        spread: Any = None,
        unmet_because: str | None = None,
        few: str | None = None,
        by_chance: bool = False,
    ) -> dict[str, Any]:
        """One row of the table. `unmet_because` (not run, no data) makes `met` null; few, by_chance: see `of_few`."""
        row = {"id": id, "goal": self.goals[id], "measured": measured, "spread": spread, "met": met}
        why = {} if unmet_because is None else {"met": None, "reason": unmet_because}
        return of_few(row | why, few, by_chance=by_chance)

    def not_run(self, id: str, why: str) -> dict[str, Any]:
        """A row that nothing measured."""
        return self.row(id, None, met=None, unmet_because=why)

    def result(
        self, *, rounds: list[dict[str, Any]], rows: list[dict[str, Any]], few: str | None = None
    ) -> dict[str, Any]:
        """The result, with device and versions: every row of the table, in its order. few: draws of rows of speed."""
        found = tuple(row["id"] for row in rows)
        assert found == tuple(self.goals), f"{self.name}: its goals are {', '.join(self.goals)}"
        packages = ("qualgate", "torch", "transformers", "numpy", "scipy")
        versions = {package: importlib.metadata.version(package) for package in packages if find_spec(package)}
        versions["python"] = platform.python_version()
        rows = [of_few(row, few, by_chance=True) for row in rows]
        return {"bench": self.name, "device": device(), "versions": versions, "rounds": rounds, "goals": rows}


def of_few(row: dict[str, Any], few: str | None, *, by_chance: bool) -> dict[str, Any]:
    """The row as far as a quick run of `few` draws decides it: one miss is enough, unless so few can miss `by_chance`,
    as a rate or a time. None: there are as many as the goal asks."""
    if few is None or "reason" in row or (row["met"] is False and not by_chance):
        return row
    return row | {"met": None, "reason": f"too few draws: {few}", "too_few_draws": few, "so_far": row["met"]}


def told(bench: str, parts: Sequence[T], name: Callable[[T], object] = str) -> Iterator[T]:
    """The parts, one by one; a line on stderr says how many are done, after how many seconds, and which runs now."""
    start = time.monotonic()

    def say(done: int, more: str = "") -> None:
        seconds = time.monotonic() - start
        print(f"{bench}: {done} of {len(parts)} done, {seconds:,.0f} s{more}", file=sys.stderr, flush=True)

    for done, part in enumerate(parts):
        say(done, f"; now {name(part)}")
        yield part
    say(len(parts))


def device() -> str:
    """The processor and how many of its cores this process may use."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return f"{found.group(1) if found else platform.processor()}, {len(os.sched_getaffinity(0))} cores"
