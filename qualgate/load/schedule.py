"""The schedule of a load, drawn before anything is sent: pure functions of a seed, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal

import numpy as np

from qualgate.load.trace import Arrival
from qualgate.records import Load

Kind = Literal["concurrency", "rate", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How hard an arm is asked. value: requests at once, requests a second, or how many times as fast as a trace."""

    kind: Kind
    value: float

    @property
    def label(self) -> str:
        """For people: "16 at once", "8/s", "trace", "trace x2"."""
        match self.kind:
            case "concurrency":
                return f"{self.value:g} at once"
            case "rate":
                return f"{self.value:g}/s"
        return "trace" if self.value == 1 else f"trace x{self.value:g}"


def levels_of(load: Load) -> tuple[Level, ...]:
    """In the order in which they are measured."""
    return (
        *(Level(kind="concurrency", value=value) for value in load.concurrency),
        *(Level(kind="rate", value=value) for value in load.rate),
        *([Level(kind="trace", value=load.speed)] if load.trace else []),
    )


def seeded(seed: int, *what: object) -> np.random.Generator:
    """Draws that belong to `what` alone: no other part of a schedule moves them."""
    return np.random.default_rng(int.from_bytes(_digest(seed, *what)[:16], "big"))


def _digest(seed: int, *what: object) -> bytes:
    return sha256("\0".join(map(str, (seed, *what))).encode()).digest()


def turns(arms: Sequence[str], rounds: int, levels: Sequence[Level], seed: int) -> list[tuple[int, Level, str]]:
    """(round, level, arm) in the order of measuring: at each level of each round the arms come right after each other,
    in a drawn order, so that what slows the machine for a while falls on any of them alike."""
    return [
        (number, level, arms[int(place)])
        for number in range(rounds)
        for level in levels
        for place in seeded(seed, "turn", number, level.label).permutation(len(arms))
    ]


def arrivals(rate: float, seconds: float, burstiness: float, seed: int, *what: object) -> tuple[float, ...]:
    """When requests come, in seconds from 0 to below `seconds`, at `rate` a second on average.

    Gaps are drawn from the gamma distribution of shape `burstiness`: at 1 these are exponential and the arrivals a
    Poisson process; below, the gaps' variance is 1/burstiness times as large.
    """
    draws, found, at = seeded(seed, "arrivals", rate, *what), list[float](), 0.0
    while at < seconds:
        gaps = draws.gamma(burstiness, 1 / (rate * burstiness), 1_000)
        for come in (at + np.cumsum(gaps)).tolist():
            if (at := come) >= seconds:
                break
            found.append(come)
    return tuple(found)


def replayed(trace: Sequence[Arrival], speed: float) -> tuple[float, ...]:
    """When a trace's requests come, in seconds from its first, played `speed` times as fast."""
    return tuple((arrival.at - trace[0].at) / speed for arrival in trace)


@lru_cache(maxsize=64)
def _shuffled(prompts: int, seed: int, what: tuple[object, ...], cycle: int) -> tuple[int, ...]:
    return tuple(seeded(seed, "prompts", *what, cycle).permutation(prompts).tolist())


def prompt_of(number: int, prompts: int, seed: int, *what: object) -> int:
    """Which of so many prompts the request of this number asks: all of them once before any comes again."""
    return _shuffled(prompts, seed, what, number // prompts)[number % prompts]


def is_closed(number: int, share: float, seed: int, *what: object) -> bool:
    """Whether the request of this number is closed early, as a share of all are."""
    drawn = int.from_bytes(_digest(seed, "closed", *what, number)[:8], "big") / 2**64  # a generator would cost more
    return drawn < share
