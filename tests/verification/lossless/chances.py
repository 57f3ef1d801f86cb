"""Every way that chances may fall, each with its probability: what draws is run once for each of them.

Chances are those of a run, `HashedChance`, of which only the numbers are not hashed but taken in every way. A number is
known by its key; what was asked of it narrows it down, so noise that is used again is enumerated as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import fsum, inf
from typing import TypeVar

import torch

from qualgate.engine.speculation.chance import HashedChance

T = TypeVar("T")


@dataclass(slots=True)
class Numbers:
    """One way that numbers fall. way: which of the parts each question found its number in, as far as it is set."""

    way: list[int]
    others: list[list[int]] = field(default_factory=list)  # ways that part from this one behind what was set
    probability: float = 1.0
    reused: bool = False  # some number was asked twice
    _known: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _asked: int = 0

    def part(self, key: Hashable, bounds: Sequence[float]) -> int:
        """In which of the parts from 0 to bounds[0], to bounds[1], …, to 1 the number of this key lies."""
        self.reused |= key in self._known
        low, high = self._known.get(key, (0.0, 1.0))
        edges = [min(max(edge, low), high) for edge in (0.0, *bounds, 1.0)]
        widths = [above - below for below, above in pairwise(edges)]
        if self._asked == len(self.way):
            possible = [part for part, width in enumerate(widths) if width > 0.0]
            self.others += [[*self.way, part] for part in possible[1:]]
            self.way.append(possible[0])
        part = self.way[self._asked]
        self._asked += 1
        self._known[key] = edges[part], edges[part + 1]
        self.probability *= widths[part] / (high - low)
        return part


@dataclass(slots=True, kw_only=True)
class Enumerated(HashedChance):
    """A round's chances, answered as `HashedChance` does, but for the numbers."""

    numbers: Numbers

    def uniform(self) -> float:
        """A number is never one value here."""
        raise NotImplementedError

    def accepts(self, probability: float) -> bool:
        return self.numbers.part(self.next_key(), [probability]) == 0

    def token(self, weights: torch.Tensor) -> int:
        some = weights.tolist()
        *sums, whole = accumulate(some)
        if min(some) < 0.0 or not 0.0 < whole < inf:
            raise ValueError(f"weights: no distribution: {some}")
        return self.numbers.part(self.next_key(), [one / whole for one in sums])


def every_way(drawing: Callable[[Enumerated], T]) -> Iterator[tuple[T, Numbers]]:
    """What came of it, for each way that the chances of `drawing` may fall; on nothing else that changes may it
    depend."""
    ways: list[list[int]] = [[]]
    while ways:
        numbers = Numbers(ways.pop())
        result = drawing(Enumerated(seed=0, case=0, round=(), numbers=numbers))
        ways += numbers.others
        yield result, numbers


def law(drawing: Callable[[Enumerated], T]) -> dict[T, float]:
    """What may come of it, with its probability."""
    found: dict[T, list[float]] = {}
    for result, numbers in every_way(drawing):
        found.setdefault(result, []).append(numbers.probability)
    return {result: fsum(some) for result, some in found.items()}


def total_variation(one: Mapping[T, float], other: Mapping[T, float]) -> float:
    """Half the sum of what two laws differ by, from 0 to 1."""
    return fsum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2
