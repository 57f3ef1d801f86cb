"""Every way that chances may fall, each with its probability: what draws is run once for each of them.

A chance is a number between 0 and 1 that is known by a key, as the noise of a run is. What was asked of it narrows it
down, so that one asked twice answers by the same number: noise that is used again is enumerated as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from typing import TypeVar

import torch

T = TypeVar("T")
Key = tuple[Hashable, ...]


@dataclass(slots=True)
class Numbers:
    """One way that numbers fall. way: which of the parts each question found its number in, as far as it is set."""

    way: list[int]
    others: list[list[int]] = field(default_factory=list)  # ways that part from this one behind what was set
    probability: float = 1.0
    _known: dict[Key, tuple[float, float]] = field(default_factory=dict)
    _asked: int = 0

    def part(self, key: Key, bounds: Sequence[float]) -> int:
        """In which of the parts from 0 to bounds[0], to bounds[1], …, to 1 the number of this key lies."""
        low, high = self._known.get(key, (0.0, 1.0))
        edges = [min(max(edge, low), high) for edge in (0.0, *bounds, 1.0)]
        widths = [above - below for below, above in pairwise(edges)]
        possible = [part for part, width in enumerate(widths) if width > 0.0]
        if self._asked == len(self.way):
            self.others += [[*self.way, part] for part in possible[1:]]
            self.way.append(possible[0])
        part = self.way[self._asked]
        self._asked += 1
        self._known[key] = edges[part], edges[part + 1]
        self.probability *= widths[part] / (high - low)
        return part


@dataclass(slots=True)
class Enumerated:
    """`Chance` of a round, by numbers whose keys are the round's and how many it asked for before."""

    numbers: Numbers
    round: Key = ()
    _drawn: int = field(default=0, init=False)

    def within(self, *call: Hashable) -> Enumerated:
        """See `HashedChance`."""
        return Enumerated(self.numbers, (*self.round, *call))

    def accepts(self, probability: float) -> bool:
        """See `Chance`."""
        return self.numbers.part(self._key(), [min(max(probability, 0.0), 1.0)]) == 0

    def token(self, weights: torch.Tensor) -> int:
        """See `Chance`."""
        sums = weights.cumsum(0)
        return self.numbers.part(self._key(), (sums[:-1] / sums[-1]).tolist())

    def _key(self) -> Key:
        self._drawn += 1
        return (*self.round, self._drawn)


def every_way(drawing: Callable[[Enumerated], T]) -> Iterator[tuple[T, float]]:
    """(what came of it, probability) of each way that the chances of `drawing` may fall; other than by those it may
    depend on nothing that changes."""
    ways: list[list[int]] = [[]]
    while ways:
        numbers = Numbers(ways.pop())
        result = drawing(Enumerated(numbers))
        ways += numbers.others
        yield result, numbers.probability


def law(drawing: Callable[[Enumerated], T]) -> dict[T, float]:
    """What may come of it, with its probability."""
    found: dict[T, list[float]] = {}
    for result, probability in every_way(drawing):
        found.setdefault(result, []).append(probability)
    return {result: fsum(some) for result, some in found.items()}


def total_variation(one: dict[T, float], other: dict[T, float]) -> float:
    """Half the sum of what two laws differ by, from 0 to 1."""
    return fsum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2
