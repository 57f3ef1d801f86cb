"""Plot measured values between their bounds, beside what the rules allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.records import Comparison, Policy, Rule
from qualgate.records.metrics import METRICS
from qualgate.report.comparison_text import difference_and_bounds
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
    """Return (heading, picture) pairs: quality rules as differences in points, others as multiples of their limit."""
    rules = {rule.id: rule for rule in policy.rules}
    quality, multiples = [], []
    for comparison in comparisons:
        rule = rules.get(comparison.rule)
        if rule is None or (_kind(comparison) == "quality" and comparison.difference is None):
            continue
        if rule.max_drop is not None and comparison.difference is not None:
            estimate, low, high = scaled(comparison.difference, comparison.lower, comparison.upper, 100)
            quality.append(_Row(comparison, estimate, low, high, limit=-100 * rule.max_drop, good_above=True))
        elif (limit := _limit(rule)) and (value := _value(comparison, rule)) is not None:
            estimate, low, high = scaled(value, comparison.lower, comparison.upper, 1 / limit)
            multiples.append(_Row(comparison, estimate, low, high, limit=1.0, good_above=rule.min is not None))
    pictures = []
    if quality:
        pictures.append((QUALITY, _intervals(quality, 0.0)))
    if multiples:
        beyond = max(row.span[1] for row in multiples) > FAR
        note = f"; what is beyond {FAR:g} stands at the edge" if beyond else ""
        pictures.append(
            (f"Other rules: the measured value as a multiple of its limit{note}", _intervals(multiples, None))
        )
    return pictures


QUALITY = "Quality: variant − baseline, in points; the thick bar is the allowed drop, what is allowed is shaded"


@dataclass(frozen=True, slots=True)
class _Row:
    """A comparison with its value and bounds in the axis's unit."""

    comparison: Comparison
    at: float
    low: float | None
    high: float | None
    limit: float
    good_above: bool

    @property
    def span(self) -> tuple[float, float]:
        values = [value for value in (self.at, self.low, self.high, self.limit) if value is not None]
        return min(values), max(values)


def _intervals(rows: Sequence[_Row], zero: float | None) -> Picture:
    """Draw lines from bound to bound with a mark at the measured value; the allowed range is shaded."""
    low = min(row.span[0] for row in rows)
    high = max(row.span[1] for row in rows)
    low, high = min(low, 0.0), max(high, 0.0) if zero is not None else min(high, FAR)
    pad = 0.06 * (high - low or 1.0)
    axis = Axis(low=low - pad if low < 0 else 0.0, high=high + pad)
    lines = [_interval(row, axis, zero) for row in rows]
    html = f'<div class="plot">{"".join(lines)}<div class="label"></div>{axis.ticks()}</div>'
    return Picture(html, len(rows) * LINED + TICKS)


def _interval(row: _Row, axis: Axis, zero: float | None) -> str:
    """Draw one rule: what its limit allows, the value with its bounds (an unknown bound reaches the edge), and its
    label.

    zero: where a line marks "no difference"; None for no line.
    """
    comparison, middle = row.comparison, ROW / 2
    status = comparison.status
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
    title = f"{comparison.metric}, {comparison.slice}: {difference_and_bounds(comparison)}, {status}; {comparison.rule}"
    where = "" if comparison.slice == "pooled" else f" · {text(comparison.slice)}"
    where += f" · against {text(comparison.against)}" if comparison.against else ""
    label = f'<span class="sign {status}">{SIGNS.get(status, "")}</span> {text(comparison.metric)}{where}'
    return f'<div class="label">{label}</div>{svg(ROW, title, "".join(parts))}'


def _kind(comparison: Comparison) -> str:
    return METRICS[comparison.metric].kind if comparison.metric in METRICS else ""


def _limit(rule: Rule) -> float | None:
    return next((bound for bound in (rule.max, rule.min, rule.max_ratio) if bound), None)


def _value(comparison: Comparison, rule: Rule) -> float | None:
    """Return the value that the rule limits: the ratio to the baseline for `max_ratio`, else the variant's value."""
    if rule.max_ratio is None:
        return comparison.variant
    return comparison.variant / comparison.baseline if comparison.variant is not None and comparison.baseline else None
