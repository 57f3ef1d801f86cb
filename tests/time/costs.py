"""Compute the costs of a recorded run of the suite, and what each test covers that no cheaper one does."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.time.tracing import Branch


@dataclass(frozen=True, slots=True)
class Test:
    """seconds: of processors, its children's among them. taken: bit i for branch i of the recorded run."""

    __test__ = False  # for pytest: not one to run

    name: str
    seconds: float
    outcome: str
    taken: int = 0

    @property
    def room(self) -> str:
        return "/".join(self.name.split("::")[0].split("/")[1:-1]) or "."


@dataclass(frozen=True, slots=True)
class Alone:
    """Lines and branches that no cheaper test reaches."""

    lines: set[tuple[str, int]]
    branches: list[Branch]


@dataclass(frozen=True, slots=True)
class Recorded:
    """tests: the dearest first. rest: processor seconds outside of tests (imports, collection)."""

    tests: list[Test]
    rest: float
    branches: list[Branch] = field(default_factory=list)

    def by_room(self) -> dict[str, tuple[float, int]]:
        """Room -> processor seconds and number of tests, the dearest first."""
        rooms: dict[str, list[float]] = defaultdict(list)
        for test in self.tests:
            rooms[test.room].append(test.seconds)
        return {room: (sum(costs), len(costs)) for room, costs in sorted(rooms.items(), key=lambda row: -sum(row[1]))}

    def reaching(self, path: str, first: int, last: int) -> list[Test]:
        """Return the tests that reach one of these lines, the cheapest first."""
        mask = 0
        for number, (file, *ends) in enumerate(self.branches):
            if file == path and any(first <= end <= last for end in ends):
                mask |= 1 << number
        return [test for test in reversed(self.tests) if test.taken & mask]

    def held_alone(self, heaviest: int) -> dict[str, Alone]:
        """Return what each of the `heaviest` tests reaches and no cheaper test does."""
        reached = 0
        for test in self.tests[heaviest:]:
            reached |= test.taken
        lines = self._lines(reached)
        alone = {}
        for test in reversed(self.tests[:heaviest]):
            fresh = test.taken & ~reached
            own = self._lines(fresh)
            alone[test.name] = Alone(own - lines, [self.branches[number] for number in _bits(fresh)])
            reached |= fresh
            lines |= own
        return alone

    def taken_by(self, tests: Iterable[Test]) -> set[Branch]:
        """The branches that one of these tests takes."""
        union = 0
        for test in tests:
            union |= test.taken
        return {self.branches[number] for number in _bits(union)}

    def _lines(self, taken: int) -> set[tuple[str, int]]:
        ends = (self.branches[number] for number in _bits(taken))
        return {(file, end) for file, *both in ends for end in both if end > 0}


def read(folder: Path) -> Recorded:
    """A run that `tests.time.recording` wrote there."""
    rows: dict[str, dict] = {}
    numbers: dict[Branch, int] = {}
    taken: dict[str, int] = defaultdict(int)
    rest = 0.0
    for path in sorted(folder.glob("*.pickle")):
        content = pickle.loads(path.read_bytes())
        if path.name.startswith("rest-"):
            rest += content
        elif path.name.startswith("branches-"):
            branches, by_test = content
            new = np.array([numbers.setdefault(branch, len(numbers)) for branch in branches], dtype=np.int64)
            for name, own in by_test.items():
                taken[name] |= _from_bits(new[np.frombuffer(own, dtype=np.uint32)])
        else:
            rows |= content
    tests = [Test(name, row.get("seconds", 0.0), row["outcome"], taken.get(name, 0)) for name, row in rows.items()]
    return Recorded(sorted(tests, key=lambda test: (-test.seconds, test.name)), rest, list(numbers))


def _from_bits(numbers: Sequence[int] | np.ndarray) -> int:
    if len(numbers) == 0:
        return 0
    bits = np.zeros(int(np.max(numbers)) + 1, dtype=np.uint8)
    bits[numbers] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _bits(value: int) -> Iterator[int]:
    if value:
        content = np.frombuffer(value.to_bytes((value.bit_length() + 7) // 8, "little"), dtype=np.uint8)
        yield from np.flatnonzero(np.unpackbits(content, bitorder="little")).tolist()
