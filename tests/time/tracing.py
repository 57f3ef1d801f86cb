"""Trace a process of a test: which branches of the product it takes.

A branch is a pair of lines of a file, as coverage has them; below zero is where a function is entered or left.
"""

from __future__ import annotations

import atexit
import os
import pickle
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "QUALGATE_TIME_FOLDER"  # variables of the environment, for children too
TRACED = "QUALGATE_TRACED"
CURRENT = "now-{}"  # of each worker of pytest: the test that it runs
Branch = tuple[str, int, int]


def folder() -> Path:
    return Path(os.environ[FOLDER])


def current_test() -> Path:
    return folder() / CURRENT.format(os.environ.get("PYTEST_XDIST_WORKER", "main"))


class Tracer:
    """The branches that this process took since it was last asked."""

    def __init__(self) -> None:
        from coverage import Coverage

        rooms = [f"{ROOT}/{name}/*" for name in ("qualgate", "kernels", "app", "migrations", "evalsets")]
        self._coverage = Coverage(data_file=None, branch=True, include=rooms, messages=False)
        self._coverage.start()

    def take(self) -> list[Branch]:
        self._coverage.stop()
        data = self._coverage.get_data()
        taken = [(file, *arc) for file in data.measured_files() for arc in data.arcs(file) or ()]
        self._coverage.erase()
        self._coverage.start()
        return taken

    def drop(self) -> None:
        """Forget what was inherited over a fork."""
        self._coverage.stop()
        self._coverage.erase()


class Taken:
    """Branches taken by each test, as indices into a list of all."""

    def __init__(self) -> None:
        self.numbers: dict[Branch, int] = {}
        self.rows: dict[str, bytes] = {}

    def add(self, test: str, branches: list[Branch]) -> None:
        numbers = {self.numbers.setdefault(branch, len(self.numbers)) for branch in branches}
        self.rows[test] = array("I", sorted(numbers)).tobytes()

    def write(self, name: str) -> None:
        write(name, ([(os.path.relpath(file, ROOT), *arc) for file, *arc in self.numbers], self.rows))


def write(name: str, rows: Any) -> None:
    """Write a pickle atomically."""
    path = folder() / f"{name}-{os.getpid()}-{time.monotonic_ns()}.pickle"
    path.with_suffix(".part").write_bytes(pickle.dumps(rows))
    path.with_suffix(".part").rename(path)


def trace_children() -> None:
    """Trace a child process and its forks; at its end, write the branches for the test that ran at its start."""
    tracer = Tracer()
    test = current_test().read_text()

    def end() -> None:
        taken = Taken()
        taken.add(test, tracer.take())
        taken.write("branches")

    def forked() -> None:
        nonlocal tracer, test
        tracer.drop()
        tracer = Tracer()
        test = current_test().read_text()

    leave: Callable[[int], Any] = os._exit

    def leaving(status: int) -> None:
        end()
        leave(status)

    atexit.register(end)
    os.register_at_fork(after_in_child=forked)
    os._exit = leaving
