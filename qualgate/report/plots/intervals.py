"""Measured values between their bounds, beside what the rules allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.formatting import difference_and_bounds
from qualgate.metrics import METRICS
from qualgate.records import Comparison, Policy, Rule
from qualgate.report.plots.drawing import (
    FAR,
    LINED,
    ROW,
    SIGNS,
    TICKS,
    Axis,
    Picture,
    line,
    mark,
    rect,
    scaled,
    svg,
    text,
)


def margins(comparisons: Sequence[Comparison], policy: Policy) -> list[tuple[str, Picture]]:
    """(heading, picture): quality rules as differences in points, all others as multiples of what is allowed."""
    rules = {rule.id: rule for rule in policy.rules}
    quality, others = [], []
    for one in comparisons:
        rule = rules.get(one.rule)
        if rule is None or (_kind(one) == "quality" and one.difference is None):
            continue
        if rule.max_drop is not None and one.difference is not None:
            at, low, high = scaled(one.difference, one.lower, one.upper, 100)
            quality.append(_Row(one, at, low, high, limit=-100 * rule.max_drop, good_above=True))
        elif (limit := _limit(rule)) and (value := _value(one, rule)) is not None:
            at, low, high = scaled(value, one.lower, one.upper, 1 / limit)
            others.append(_Row(one, at, low, high, limit=1.0, good_above=rule.min is not None))
    drawn = []
    if quality:
        drawn.append((QUALITY, _intervals(quality, 0.0)))
    if others:
        beyond = max(row.span[1] for row in others) > FAR
        said = f"; what is beyond {FAR:g} stands at the edge" if beyond else ""
        drawn.append((f"Other rules: the measured value as a multiple of its limit{said}", _intervals(others, None)))
    return drawn


QUALITY = "Quality: variant − baseline, in points; the thick bar is the allowed drop, what is allowed is shaded"


@dataclass(frozen=True, slots=True)
class _Row:
    """A comparison in its axis's unit."""

    one: Comparison
    at: float
    low: float | None
    high: float | None
    limit: float
    good_above: bool

    @property
    def span(self) -> tuple[float, float]:
        known = [value for value in (self.at, self.low, self.high, self.limit) if value is not None]
        return min(known), max(known)


def _intervals(rows: Sequence[_Row], zero: float | None) -> Picture:
    """A line from bound to bound with a mark at the measured value; what the rule allows is shaded."""
    low = min(row.span[0] for row in rows)
    high = max(row.span[1] for row in rows)
    low, high = min(low, 0.0), max(high, 0.0) if zero is not None else min(high, FAR)
    pad = 0.06 * (high - low or 1.0)
    axis = Axis(low=low - pad if low < 0 else 0.0, high=high + pad)
    lines = [_interval(row, axis, zero) for row in rows]
    html = f'<div class="plot">{"".join(lines)}<div class="label"></div>{axis.ticks()}</div>'
    return Picture(html, len(rows) * LINED + TICKS)


def _interval(row: _Row, axis: Axis, zero: float | None) -> str:
    one, middle = row.one, ROW / 2
    status = one.status
    allowed = (row.limit, axis.high) if row.good_above else (axis.low, row.limit)
    parts = [rect(axis.at(allowed[0]), axis.at(allowed[1]), 3, ROW - 6, "allowed")]
    if zero is not None:
        parts.append(line(axis.at(zero), 0, axis.at(zero), ROW, "zero"))
    parts.append(line(axis.at(row.limit), 2, axis.at(row.limit), ROW - 2, "limit"))
    ends = (axis.low if row.low is None else row.low), (axis.high if row.high is None else row.high)
    parts.append(line(axis.at(ends[0]), middle, axis.at(ends[1]), middle, f"bar {status}"))
    for bound in (row.low, row.high):
        if bound is not None:
            parts.append(line(axis.at(bound), middle - 5, axis.at(bound), middle + 5, f"bar {status}"))
    parts.append(mark(axis.at(row.at), middle, status))
    said = f"{one.metric}, {one.slice}: {difference_and_bounds(one)}, {status}; {one.rule}"
    where = "" if one.slice == "pooled" else f" · {text(one.slice)}"
    label = f'<span class="sign {status}">{SIGNS.get(status, "")}</span> {text(one.metric)}{where}'
    return f'<div class="label">{label}</div>{svg(ROW, said, "".join(parts))}'


def _kind(one: Comparison) -> str:
    return METRICS[one.metric].kind if one.metric in METRICS else ""


def _limit(rule: Rule) -> float | None:
    return next((bound for bound in (rule.max, rule.min, rule.max_ratio) if bound), None)


def _value(one: Comparison, rule: Rule) -> float | None:
    """What the limit is put to: the ratio to the baseline where the rule asks for one, else the variant's own value."""
    if rule.max_ratio is None:
        return one.variant
    return one.variant / one.baseline if one.variant is not None and one.baseline else None
