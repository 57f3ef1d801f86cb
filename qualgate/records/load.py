"""How served arms are loaded to time them, as a gate file says it."""

from __future__ import annotations

from dataclasses import dataclass

LOAD_METRICS: dict[str, str] = {
    "throughput.answers": "answers that ended in the window, a second",
    "throughput.tokens": "tokens of answers that came in it, a second",
    "throughput.good": "answers within every limit of `slo`, a second",
    "ttft.p95": "95th percentile of the time to the first piece, s",
    "tpot.p95": "95th percentile of the time per further token, s",
    "e2e.p95": "95th percentile of the time to the last piece, s",
    "retry.share": "attempts that were followed by another, of the requests",
    "failed.share": "requests that failed for good",
    "cancel.tokens": "tokens that the server writes in the 2 s after the last request was over, where some were closed",
}
"""What a rule on a load is about, of one arm, level and round."""
HIGHER = ("throughput.answers", "throughput.tokens", "throughput.good")  # is better
RELATIVE = (*HIGHER, "ttft.p95", "tpot.p95", "e2e.p95")  # may be held against the baseline's


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRule:
    """One of the limits. max_drop, max_increase: shares of the baseline's value; min, max: of the metric's unit."""

    metric: str
    max_drop: float | None = None
    max_increase: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def relative(self) -> bool:
        """Whether it is held against the baseline's."""
        return self.max_drop is not None or self.max_increase is not None

    @property
    def label(self) -> str:
        """For people: "throughput.answers max_drop 0.05"."""
        limits = (
            ("max_drop", self.max_drop),
            ("max_increase", self.max_increase),
            ("min", self.min),
            ("max", self.max),
        )
        return f"{self.metric} {next(f'{name} {value:g}' for name, value in limits if value is not None)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Times in seconds.

    concurrency: levels of a closed loop, so many requests under way at once. rate: levels of an open loop, requests a
    second whoever is still waiting. burstiness: of the gaps between these, the shape of their gamma distribution; 1 is
    Poisson. trace: a file with when requests come, "" without one; speed: how much faster than it says. seconds: of one
    stage (a trace's is its own); what comes in its warmup and its cooldown is not counted. rounds: stages of each arm
    at each level. retries: of one request. cancel: share of the requests that are closed after their first piece.
    rules: by which variants are judged; none where nothing is.
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
    rules: tuple[LoadRule, ...] = ()
