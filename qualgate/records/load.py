"""How served arms are loaded to time them, as a gate file says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Times in seconds.

    concurrency: levels of a closed loop, so many requests under way at once. rate: levels of an open loop, requests a
    second whoever is still waiting. burstiness: of the gaps between these, the shape of their gamma distribution; 1 is
    Poisson. trace: a file with when requests come, "" without one; speed: how much faster than it says. seconds: of one
    stage (a trace's is its own); what comes in its warmup and its cooldown is not counted. rounds: stages of each arm
    at each level. retries: of one request. cancel: share of the requests that are closed after their first piece.
    """

    concurrency: tuple[int, ...] = (1, 4, 16)
    rate: tuple[float, ...] = ()
    burstiness: float = 1.0
    trace: str = ""
    speed: float = 1.0
    seconds: float = 30.0
    warmup: float = 5.0
    cooldown: float = 5.0
    rounds: int = 3
    retries: int = 0
    cancel: float = 0.0
