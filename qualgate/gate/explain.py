"""Explain in one line why a rule is proven, broken or undecided. Rates are in points, 0..100."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, log, log1p

from qualgate.gate.rules import Slice
from qualgate.records import Comparison
from qualgate.records.metrics import METRICS, unit_of
from qualgate.text.numbers import counted, unit_text

MOST_BETTER = 1.2  # times, by which a variant's perplexity may be under the baseline's without a word
MANY_FLIPS, FEW_FLIPS = 0.05, 20  # of the answers to compare, and in number, beyond which an approval says so

JUDGES_CHANGES = f"; {{metric: parity.scores, min: {1 - MANY_FLIPS:g}}} would judge the changes"


def explain(slice_: Slice, c: Comparison, alpha: float) -> str:
    """The reason of a comparison that was measured and has its status."""
    if slice_.rule.max_drop is not None or slice_.rule.max_relative_drop is not None:
        return _quality(slice_, c, alpha)
    by_kind = {"latency": _ratio, "cost": _cost, "arm": _by_value, "likelihood": _likelihood}
    return by_kind.get(METRICS[c.metric].kind, _level)(slice_, c, alpha)


def _quality(slice_: Slice, c: Comparison, alpha: float) -> str:
    """Explain a rule on `max_drop` or `max_relative_drop`: the change, its bound and the flips, or what would
    decide.
    """
    if slice_.rule.max_relative_drop is not None:
        return _relative(slice_, c, alpha)
    allowed = 100 * (slice_.rule.max_drop or 0.0)
    change, low, high = 100 * (c.difference or 0.0), 100 * (c.lower or 0.0), 100 * (c.upper or 0.0)
    moved = (
        f"fell {-change:.1f} points" if change < 0 else f"rose {change:.1f} points" if change > 0 else "is unchanged"
    )
    flips = f"{c.lost} lost, {c.gained} gained of {c.n:,}"
    level = f"{100 * (1 - alpha):g} % bound"
    if c.status == "broken":
        return f"{slice_.head} {moved} ({level}: at least {floor(-10 * high) / 10:.1f}; allowed {allowed:.1f}), {flips}"
    if c.status == "proven":
        lost = ceil(-10 * low) / 10  # rounded away from the claim
        bound = f"at most {lost:.1f} lost" if lost > 0 else f"at least {-lost:.1f} gained"
        return f"{slice_.head} {moved} ({level}: {bound}; allowed {allowed:.1f}), {flips}"
    if (c.p_broken or 1.0) <= alpha:
        return (
            f"{slice_.head} {moved}, {flips}: beyond {allowed:g} points alone, not after correction for several rules"
        )
    if c.needed is None and c.clusters is None:
        return f"{slice_.head}: the loss is too near {allowed:g} points to tell from {counted(c.n, 'case')} ({flips})"
    claim = f"show a loss beyond {allowed:g} points" if -change > allowed else f"exclude a loss of {allowed:g} points"
    return f"{slice_.head}: {counted(c.n, 'case')} cannot {claim}{_cases_that_decide(slice_, c, alpha)}"


def many_flips(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """A line for each critical rule that is proven although many answers changed, as many for the better."""
    return tuple(
        f"{c.head}: {c.lost + c.gained:,} of {counted(c.n, 'answer')} "
        f"({(c.lost + c.gained) / c.n:.0%}) changed, {c.lost:,} lost and {c.gained:,} gained: the rule judges their "
        f"sum alone{'' if c.against else JUDGES_CHANGES}"
        for c in comparisons
        if c.tier == "critical" and c.status == "proven" and c.lost and c.gained
        and c.lost + c.gained > max(FEW_FLIPS, MANY_FLIPS * c.n)
    )  # fmt: skip


def far_better(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """A line for each perplexity that fell further than quantization makes it fall."""
    return tuple(
        f"{c.head} is {c.variant / c.baseline:.3g} times {c.against or 'the baseline'}'s: quantization does not make a "
        "perplexity so much better. Look whether both logs are of the same model and the same texts"
        for c in comparisons
        if METRICS[c.metric].kind == "likelihood" and c.baseline and c.variant is not None
        and c.variant * MOST_BETTER < c.baseline
    )  # fmt: skip


def _cases_that_decide(slice_: Slice, c: Comparison, alpha: float) -> str:
    """Say how many cases would decide; if no answer flipped and cases are few, the least number that could."""
    flips = f" ({c.lost} lost, {c.gained} gained)"
    margin = slice_.rule.max_drop or 0.0
    least = ceil(log(alpha) / log1p(-margin)) if 0 < margin < 1 else 0
    if c.lost == c.gained == 0 and c.n < least:
        return f"; {least:,} would, if none flips{flips}"
    return (f"; about {c.needed:,} would" if c.needed else "") + flips


def _relative(slice_: Slice, c: Comparison, alpha: float) -> str:
    low, high = (f"{100 * (bound or 0.0):+.1f} %" for bound in (c.lower, c.upper))
    return (
        f"{slice_.head} changed by {100 * (c.difference or 0.0):+.1f} % of {slice_.base}'s rate ({100 * (1 - alpha):g} "
        f"% bounds {low} to {high}; allowed -{100 * (slice_.rule.max_relative_drop or 0.0):g} %), "
        f"{c.lost} lost, {c.gained} gained of {c.n:,}{_outcome(c)}"
    )


def _level(slice_: Slice, c: Comparison, alpha: float) -> str:
    limit = f"at most {slice_.rule.max:g}" if slice_.rule.max is not None else f"at least {slice_.rule.min:g}"
    unit = {"nats": " nats"}.get(METRICS[c.metric].unit, "")
    over = f"over {counted(c.n, 'case')}{_outcome(c)}"
    value = "known as an interval" if c.variant is None else f"{c.variant:.4g}{unit}"
    return f"{slice_.head} is {value} ({_between(c, alpha)}; allowed {limit}) {over}"


def _by_value(slice_: Slice, c: Comparison, alpha: float) -> str:
    """Explain a rule on a measured value: the ratio to the baseline's for `max_ratio`, else the value and its limit."""
    rule = slice_.rule
    if rule.max_ratio is not None:
        sizes = f"{_value_text(c.metric, c.variant)} and {_value_text(c.metric, c.baseline)}"
        finding = f"{c.lower:.3g} times {slice_.base}'s ({sizes}; allowed {rule.max_ratio:g})"
    else:
        limit = _value_text(c.metric, rule.max if rule.max is not None else rule.min)
        bound = "at most" if rule.max is not None else "at least"
        finding = f"{_value_text(c.metric, c.variant)} (allowed {bound} {limit})"
    return f"{slice_.head} is {finding}{_outcome(c)}"


def _ratio(slice_: Slice, c: Comparison, alpha: float) -> str:
    ratio = (c.variant or 0.0) / c.baseline if c.baseline else float("inf")
    return (
        f"{slice_.head} is {ratio:.3g} times {slice_.base}'s ({_between(c, alpha)}; "
        f"allowed {slice_.rule.max_ratio:g}) over {counted(c.n, 'case')}{_outcome(c)}"
    )


def _cost(slice_: Slice, c: Comparison, alpha: float) -> str:
    if c.variant is None and c.baseline is not None:
        no_answer = f"none of {counted(c.n, 'answer')} was accepted"
        return f"{slice_.head}: {no_answer}, so there is no cost at which one could be had"
    return _ratio(slice_, c, alpha)


def _likelihood(slice_: Slice, c: Comparison, alpha: float) -> str:
    ratio, sides = (c.variant or 0.0) / (c.baseline or 1.0), f"{c.variant:.4g} against {c.baseline:.4g}"
    return (
        f"{slice_.head} is {ratio:.5g} times {slice_.base}'s ({sides}; {_between(c, alpha)}; allowed "
        f"{slice_.rule.max_ratio:g}) over {counted(c.n, 'text')}{_outcome(c)}"
    )


def _between(c: Comparison, alpha: float) -> str:
    low, high = (f"{value:.4g}" if value is not None else "unknown" for value in (c.lower, c.upper))
    return f"{100 * (1 - alpha):g} % bounds {low} to {high}"


def _outcome(c: Comparison) -> str:
    if c.status == "undecided" and c.needed:
        return f": too few to tell (at least {c.needed} independent ones needed)"
    return {"proven": "", "broken": ": limit breached", "undecided": ": the limit is between the bounds"}[c.status]


def _value_text(metric: str, value: float | None) -> str:
    return unit_text(value, unit_of(metric))
