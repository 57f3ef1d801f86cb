"""Record what each test costs: a plugin of pytest, `-p tests.time.recording`.

Cost is processor seconds: the test's own process, the children it reaped, and those that live on (a pool's workers
stay for the next test). A fixture that several tests share is counted at the first of them. With QUALGATE_TRACED=1
each test's branches are recorded too (`tracing`), those of its children by `children/sitecustomize.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.time.tracing import TRACED, Taken, Tracer, current_test, write

TICK = os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # ended meanwhile
            continue
        for child in children:
            yield int(child)
            yield from _descendants(int(child))


def _process_seconds(pid: int) -> float:
    """Return the processor seconds of a process and of the children that it reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICK


def seconds_so_far() -> float:
    """Return the processor seconds of this process and of all that it started."""
    own = os.times()
    reaped = own.user + own.system + own.children_user + own.children_system
    return reaped + sum(_process_seconds(pid) for pid in _descendants(os.getpid()))


class Recording:
    """Pytest plug-in that records one process's tests."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.started = seconds_so_far()
        self.taken = Taken()
        self.tracer = Tracer() if os.environ.get(TRACED) == "1" else None
        if self.tracer is not None:
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        assert self.tracer is not None
        self.tracer.drop()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        current_test().write_text(item.nodeid)
        if self.tracer is not None:
            self.tracer.take()
        before = seconds_so_far()
        wall = time.monotonic()
        yield
        row = self.rows.setdefault(item.nodeid, {"outcome": "passed"})
        row |= {"seconds": seconds_so_far() - before, "wall": time.monotonic() - wall}
        if self.tracer is not None:
            self.taken.add(item.nodeid, self.tracer.take())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.rows.setdefault(report.nodeid, {})["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        rest = seconds_so_far() - self.started - sum(row.get("seconds", 0.0) for row in self.rows.values())
        write("tests", self.rows)
        write("rest", rest)
        self.taken.write("branches")


def pytest_configure(config: pytest.Config) -> None:
    """Record in each worker of xdist, or in the only process."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recording())
