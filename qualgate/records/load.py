"""Load on served arms to time them, and rules on it."""

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
"""Metric of one arm, level and round → meaning."""
HIGHER = ("throughput.answers", "throughput.tokens", "throughput.good")  # metrics whose higher values are better
RELATIVE = (*HIGHER, "ttft.p95", "tpot.p95", "e2e.p95")  # metrics that rules may compare with the baseline's


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRule:
    """A limit on one metric. max_drop, max_increase: shares of the baseline's value; min, max: in the metric's unit."""

    metric: str
    max_drop: float | None = None
    max_increase: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def relative(self) -> bool:
        """Whether the limit is relative to the baseline's value."""
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
    """Settings of a load; times in seconds.

    concurrency: levels of a closed loop, requests in flight. rate: levels of an open loop, requests per second.
    burstiness: shape of the gamma distribution of the gaps between these; 1 is Poisson. trace: a file with arrival
    times, "" without one; speed: its replay factor. seconds: length of one stage (a trace has its own); requests in
    warmup and cooldown are not counted. rounds: stages of each arm at each level. retries: of one request. cancel:
    share of requests closed after their first piece. rules: on variants.
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
