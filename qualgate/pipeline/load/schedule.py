"""Draw the schedule of a load before anything is sent: pure functions of a seed, so it can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal

import numpy as np

from qualgate.pipeline.load.trace import Arrival
from qualgate.records import Load

Kind = Literal["concurrency", "rate", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A load level. value: concurrent requests, requests per second, or the speed of a trace as a factor."""

    kind: Kind
    value: float

    @property
    def label(self) -> str:
        """A label for people: "16 at once", "8/s", "trace", "trace x2"."""
        match self.kind:
            case "concurrency":
                return f"{self.value:g} at once"
            case "rate":
                return f"{self.value:g}/s"
        return "trace" if self.value == 1 else f"trace x{self.value:g}"


def levels_of(load: Load) -> tuple[Level, ...]:
    """Return the levels in the order of measurement."""
    return (
        *(Level(kind="concurrency", value=value) for value in load.concurrency),
        *(Level(kind="rate", value=value) for value in load.rate),
        *([Level(kind="trace", value=load.speed)] if load.trace else []),
    )


def seeded(seed: int, *what: object) -> np.random.Generator:
    """Return a generator for `what` alone, independent of all other parts of a schedule."""
    return np.random.default_rng(int.from_bytes(_digest(seed, *what)[:16], "big"))


def _digest(seed: int, *what: object) -> bytes:
    return sha256("\0".join(map(str, (seed, *what))).encode()).digest()


def turns(arms: Sequence[str], rounds: int, levels: Sequence[Level], seed: int) -> list[tuple[int, Level, str]]:
    """Return (round, level, arm) in the order of measurement. At each level of each round the arms follow each other in
    a random order, so a temporary slowdown of the machine is equally likely to hit any of them."""
    return [
        (number, level, arms[int(index)])
        for number in range(rounds)
        for level in levels
        for index in seeded(seed, "turn", number, level.label).permutation(len(arms))
    ]


def arrivals(rate: float, seconds: float, burstiness: float, seed: int, *what: object) -> tuple[float, ...]:
    """Draw arrival times from 0 to below `seconds`, at `rate` per second on average.

    Gaps are drawn from the gamma distribution of shape `burstiness`: at 1 these are exponential and the arrivals a
    Poisson process; below, the gaps' variance is 1/burstiness times as large.
    """
    draws, times, time = seeded(seed, "arrivals", rate, *what), list[float](), 0.0
    while time < seconds:
        gaps = draws.gamma(burstiness, 1 / (rate * burstiness), 1_000)
        for arrival in (time + np.cumsum(gaps)).tolist():
            if (time := arrival) >= seconds:
                break
            times.append(arrival)
    return tuple(times)


def replayed(trace: Sequence[Arrival], speed: float) -> tuple[float, ...]:
    """Return the arrival times of a trace, in seconds from its first, played `speed` times as fast."""
    return tuple((arrival.at - trace[0].at) / speed for arrival in trace)


@lru_cache(maxsize=64)
def _shuffled(prompts: int, seed: int, what: tuple[object, ...], cycle: int) -> tuple[int, ...]:
    return tuple(seeded(seed, "prompts", *what, cycle).permutation(prompts).tolist())


def prompt_of(number: int, prompts: int, seed: int, *what: object) -> int:
    """Return the index of the prompt for a request number; every prompt is asked once before any is repeated."""
    return _shuffled(prompts, seed, what, number // prompts)[number % prompts]


def is_closed(number: int, share: float, seed: int, *what: object) -> bool:
    """Whether the request of this number is closed early; `share` of all are."""
    draw = int.from_bytes(_digest(seed, "closed", *what, number)[:8], "big") / 2**64  # a generator would cost more
    return draw < share
