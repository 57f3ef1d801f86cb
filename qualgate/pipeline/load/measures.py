"""Measures of one arm at one level, from its requests in one round or several."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qualgate.pipeline.load.definitions import Definition
from qualgate.pipeline.load.sent import Sent, Stage
from qualgate.records import Slo
from qualgate.stats.intervals import binomial_lower, binomial_upper
from qualgate.stats.order_statistics import Quantile, quantile

PERCENTILES = (0.5, 0.95, 0.99)
TIMES = ("ttft", "tpot", "gap", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile of one time, in seconds. pooled: over all rounds, with its 95 % interval. rounds: each round's."""

    p: float
    pooled: Quantile
    rounds: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Numbers of one arm at one level. seconds: length of all windows. requests: due in the windows, then by result.

    retried, failed: retried attempts and failed requests, by cause. throughput: answers per second that ended in a
    window; tokens: per second in a window, None if the server does not count them. goodput: answers per second within
    all limits; good: their share of the requests, with 95 % bounds; both None without limits, or if some answer's time
    is unknown. late: p99 of the delay between due and sent. drained: share of the requests that ended after the last
    arrivals. prompts: distinct ones asked.
    """

    seconds: float
    requests: int
    answered: int
    closed: int
    failed: tuple[tuple[str, int], ...]
    retried: tuple[tuple[str, int], ...]
    times: tuple[tuple[str, tuple[Percentile, ...]], ...]
    throughput: float
    throughputs: tuple[float, ...]
    tokens: float | None
    goodput: float | None
    good: tuple[float, float, float] | None
    late: float | None
    drained: float
    prompts: int


def measured(stages: Sequence[Stage], by: Definition, slo: Slo | None) -> Measured:
    """Measure the rounds of one arm at one level, in their order, by the definitions `by`."""
    spans = [_span(stage, by) for stage in stages]
    due_by_round = [
        [sent for sent in stage.sent if _in(sent.due, *span)] for stage, span in zip(stages, spans, strict=True)
    ]
    answered_by_round = [
        [sent for sent in stage.sent if sent.how == "answered" and _in(sent.ended, *span, whole=not by.windowed)]
        for stage, span in zip(stages, spans, strict=True)
    ]
    requests = [request for round_ in due_by_round for request in round_]
    answered = [request for request in requests if request.how == "answered"]
    lengths = [closes - opens for opens, closes in spans]
    seconds = sum(lengths)
    goods = [_good(request, by, slo) for round_ in answered_by_round for request in round_]
    share = _good_per([_good(request, by, slo) for request in answered], 1.0) if slo else None
    return Measured(
        seconds=seconds,
        requests=len(requests),
        answered=len(answered),
        closed=sum(request.how == "closed" for request in requests),
        failed=_counts(request.failures[-1] for request in requests if request.how == "failed"),
        retried=_counts(  # the last failure of a failed request was not tried again
            cause for sent in requests for cause in (sent.failures[:-1] if sent.how == "failed" else sent.failures)
        ),
        times=tuple((name, _percentiles(name, due_by_round, by)) for name in TIMES),
        throughput=sum(map(len, answered_by_round)) / seconds,
        throughputs=tuple(len(round_) / length for round_, length in zip(answered_by_round, lengths, strict=True)),
        tokens=_tokens(stages, spans, by),
        goodput=_good_per(goods, seconds) if slo else None,
        good=None if share is None else _share(round(share), sum(request.how != "closed" for request in requests)),
        late=by.percentile([request.began - request.due for request in requests], 0.99),
        drained=sum(
            request.ended > stage.end for stage, round_ in zip(stages, due_by_round, strict=True) for request in round_
        )
        / max(1, len(requests)),
        prompts=len({request.prompt for request in requests}),
    )


def _span(stage: Stage, by: Definition) -> tuple[float, float]:
    """Return (start, end) of the time that counts: the stage's window, else from its start to the last answer."""
    if by.windowed:
        return stage.opens, stage.closes
    return stage.start, max((request.ended for request in stage.sent), default=stage.end)


def _in(moment: float, opens: float, closes: float, whole: bool = False) -> bool:
    """Whether a moment is in the window. whole: its end belongs to it."""
    return opens <= moment < closes or (whole and moment == closes)


def _counts(causes: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(causes).items()))


def _values(name: str, sent: Sequence[Sent], by: Definition) -> list[tuple[float, int]]:
    """Return the answers' values of a time, each with its weight."""
    weight = by.weights.get(name)
    weighted = []
    for request in sent:
        if request.how == "answered":
            values = by.gaps(request) if name == "gap" else (getattr(by, name)(request),)
            weighted += [(value, weight(request) if weight else 1) for value in values if value is not None]
    return weighted


def _percentiles(name: str, rounds: Sequence[Sequence[Sent]], by: Definition) -> tuple[Percentile, ...]:
    """Return the percentiles of a time over all rounds and for each; () if one of them is unknown.

    A value of weight n counts n times, except for the interval, which is by ranks.
    """
    weighted = [_values(name, values, by) for values in rounds]
    pooled_once = [value for values in weighted for value, _ in values]
    repeated = [[value for value, count in values for _ in range(count)] for values in weighted]
    pooled_repeated = [value for values in repeated for value in values]
    percentiles = []
    for p in PERCENTILES:
        estimate, value = quantile(pooled_once, p), by.percentile(pooled_repeated, p)
        if estimate is None or value is None:
            return ()
        # The ranks of an interval are unknown for weighted values.
        bounds = (None, None) if name in by.weights else (estimate.low, estimate.high)
        percentiles.append(
            Percentile(
                p=p,
                pooled=Quantile(value=value, low=bounds[0], high=bounds[1], count=estimate.count),
                rounds=tuple(by.percentile(values, p) for values in repeated),
            )
        )
    return tuple(percentiles)


def _tokens(stages: Sequence[Stage], spans: Sequence[tuple[float, float]], by: Definition) -> float | None:
    """Return tokens per second; an answer counts by the share of its pieces that came in the window."""
    total = 0.0
    for stage, (opens, closes) in zip(stages, spans, strict=True):
        for request in stage.sent:
            if request.how != "answered":
                continue
            if request.tokens is None:
                return None
            times = request.pieces or (request.ended,)
            inside = bisect_left(times, closes) - bisect_left(times, opens) if by.windowed else len(times)
            total += request.tokens * inside / len(times)
    return total / sum(closes - opens for opens, closes in spans)


def _good(request: Sent, by: Definition, slo: Slo | None) -> bool | None:
    """Whether an answer is within every limit; an answer of one token has no TPOT and breaks no limit on it. None if a
    limited time is unknown."""
    if slo is None:
        return None
    limits = [(by.ttft(request), slo.ttft), (by.e2e(request), slo.e2e)]
    if request.tokens is None or request.tokens > 1:
        limits.append((by.tpot(request), slo.tpot))
    limited = [(value, limit) for value, limit in limits if limit is not None]
    if any(value is None for value, _ in limited):
        return None
    return all(value is not None and value <= limit for value, limit in limited)


def _good_per(goods: Sequence[bool | None], divisor: float) -> float | None:
    """Return the number of good answers divided by `divisor`; None if any is unknown."""
    return None if None in goods else sum(map(bool, goods)) / divisor


def _share(good: int, count: int) -> tuple[float, float, float] | None:
    """Return (share of good answers, 95 % exact bounds); None if there are no answers."""
    return (good / count, binomial_lower(good, count, 0.025), binomial_upper(good, count, 0.025)) if count else None
