"""Measures of one arm at one level, from its requests in one round or several."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qualgate.load.definitions import Definition
from qualgate.load.sent import Sent, Stage
from qualgate.records import Slo
from qualgate.stats.intervals import binomial_lower, binomial_upper
from qualgate.stats.order_statistics import Quantile, quantile

PERCENTILES = (0.5, 0.95, 0.99)
TIMES = ("ttft", "tpot", "gap", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """Of one time, in seconds. found: of all rounds, with its 95 % interval. rounds: the value of each round alone."""

    p: float
    found: Quantile
    rounds: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one arm at one level. seconds: of all windows. requests: that came in them, and of these what became.

    retried, failed: attempts that were followed by another, and requests that failed for good, by cause. throughput:
    answers that ended in a window, a second; tokens: those that came in one, a second, None where the server does not
    count them. goodput: answers within all limits, a second; good: share of the requests that came to such an answer,
    with 95 % bounds; both None without limits, and where one cannot be told of some answer. late: p99 of how long after
    it was due a request was sent. drained: share of those counted that ended when no new ones came. prompts: asked at
    least once.
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
    """Of the rounds of one arm at one level, in their order; `by` says what the words mean."""
    spans = [_span(stage, by) for stage in stages]
    came = [[one for one in stage.sent if _in(one.due, *span)] for stage, span in zip(stages, spans, strict=True)]
    ended = [
        [one for one in stage.sent if one.how == "answered" and _in(one.ended, *span, whole=not by.windowed)]
        for stage, span in zip(stages, spans, strict=True)
    ]
    everyone = [one for round_ in came for one in round_]
    answered = [one for one in everyone if one.how == "answered"]
    lengths = [closes - opens for opens, closes in spans]
    seconds = sum(lengths)
    goods = [_good(one, by, slo) for some in ended for one in some]
    share = _sum([_good(one, by, slo) for one in answered], 1.0) if slo else None
    return Measured(
        seconds=seconds,
        requests=len(everyone),
        answered=len(answered),
        closed=sum(one.how == "closed" for one in everyone),
        failed=_counts(one.failures[-1] for one in everyone if one.how == "failed"),
        retried=_counts(
            cause for one in everyone for cause in (one.failures[:-1] if one.how == "failed" else one.failures)
        ),
        times=tuple((name, _percentiles(name, came, by)) for name in TIMES),
        throughput=sum(map(len, ended)) / seconds,
        throughputs=tuple(len(some) / length for some, length in zip(ended, lengths, strict=True)),
        tokens=_tokens(stages, spans, by),
        goodput=_sum(goods, seconds) if slo else None,
        good=None if share is None else _share(round(share), sum(one.how != "closed" for one in everyone)),
        late=by.percentile([one.began - one.due for one in everyone], 0.99),
        drained=sum(one.ended > stage.end for stage, some in zip(stages, came, strict=True) for one in some)
        / max(1, len(everyone)),
        prompts=len({one.prompt for one in everyone}),
    )


def _span(stage: Stage, by: Definition) -> tuple[float, float]:
    if by.windowed:
        return stage.opens, stage.closes
    return stage.start, max((one.ended for one in stage.sent), default=stage.end)


def _in(at: float, opens: float, closes: float, whole: bool = False) -> bool:
    """Whether a moment counts. whole: the last counts too, at which everything ended."""
    return opens <= at < closes or (whole and at == closes)


def _counts(causes: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(causes).items()))


def _values(name: str, sent: Sequence[Sent], by: Definition) -> list[tuple[float, int]]:
    """Each with how many times it counts."""
    weight = by.weights.get(name)
    found = []
    for one in sent:
        if one.how == "answered":
            values = by.gaps(one) if name == "gap" else (getattr(by, name)(one),)
            found += [(value, weight(one) if weight else 1) for value in values if value is not None]
    return found


def _percentiles(name: str, rounds: Sequence[Sequence[Sent]], by: Definition) -> tuple[Percentile, ...]:
    each = [_values(name, some, by) for some in rounds]
    plain = [value for some in each for value, _ in some]
    weighed = [[value for value, count in some for _ in range(count)] for some in each]
    pooled = [value for some in weighed for value in some]
    found = []
    for p in PERCENTILES:
        one, value = quantile(plain, p), by.percentile(pooled, p)
        if one is None or value is None:
            return ()
        # Of values that count several times the ranks of an interval are not known.
        bounds = (None, None) if name in by.weights else (one.low, one.high)
        found.append(
            Percentile(
                p=p,
                found=Quantile(value=value, low=bounds[0], high=bounds[1], count=one.count),
                rounds=tuple(by.percentile(some, p) for some in weighed),
            )
        )
    return tuple(found)


def _tokens(stages: Sequence[Stage], spans: Sequence[tuple[float, float]], by: Definition) -> float | None:
    """Tokens a second: of each answer as many as the share of its pieces that came in the window."""
    total = 0.0
    for stage, (opens, closes) in zip(stages, spans, strict=True):
        for one in stage.sent:
            if one.how != "answered":
                continue
            if one.tokens is None:
                return None
            times = one.pieces or (one.ended,)
            inside = bisect_left(times, closes) - bisect_left(times, opens) if by.windowed else len(times)
            total += one.tokens * inside / len(times)
    return total / sum(closes - opens for opens, closes in spans)


def _good(one: Sent, by: Definition, slo: Slo | None) -> bool | None:
    """Whether an answer is within every limit; a TPOT that there is none of, of one token, breaks none. None: what a
    limit is about is not known."""
    if slo is None:
        return None
    limits = [(by.ttft(one), slo.ttft), (by.e2e(one), slo.e2e)]
    if one.tokens is None or one.tokens > 1:
        limits.append((by.tpot(one), slo.tpot))
    asked = [(value, limit) for value, limit in limits if limit is not None]
    if any(value is None for value, _ in asked):
        return None
    return all(value is not None and value <= limit for value, limit in asked)


def _sum(goods: Sequence[bool | None], by: float) -> float | None:
    """None where one is not known: what might be good is not counted for it, nor against it."""
    return None if None in goods else sum(map(bool, goods)) / by


def _share(good: int, of: int) -> tuple[float, float, float] | None:
    return (good / of, binomial_lower(good, of, 0.025), binomial_upper(good, of, 0.025)) if of else None
