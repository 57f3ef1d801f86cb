"""The pictures of the HTML report, drawn as SVG: each says the same as a table beside it, never by colour alone.

Places along an axis are per cent of the picture's width, so it fits a phone and a sheet of paper with text of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

from qualgate.escaping import visible_line
from qualgate.formatting import difference_and_bounds
from qualgate.metrics import METRICS
from qualgate.records import Comparison, Interaction, Policy, Rule
from qualgate.report.arms import interaction_numbers, too_few
from qualgate.store.queries import FlipCount, PositionDrift

ROW = 30  # px, the height of one interval or bar
FAR = 4.0  # limits: an axis that reached further would squeeze everything else
LEFT = 7  # per cent of a curve's width, for the numbers beside it
FEW = 10  # answers that changed: fewer do not fill the picture
SIGNS = {"proven": "✓", "broken": "✗", "undecided": "?"}


def margins(comparisons: Sequence[Comparison], policy: Policy) -> list[tuple[str, str]]:
    """(heading, picture): quality rules as differences in points, all others as multiples of what is allowed."""
    rules = {rule.id: rule for rule in policy.rules}
    quality, others = [], []
    for one in comparisons:
        rule = rules.get(one.rule)
        if rule is None or (_kind(one) == "quality" and one.difference is None):
            continue
        if rule.max_drop is not None and one.difference is not None:
            scaled = _scaled(one.difference, one.lower, one.upper, 100)
            quality.append(_Row(one, *scaled, limit=-100 * rule.max_drop, good_above=True))
        elif (limit := _limit(rule)) and (value := _value(one, rule)) is not None:
            scaled = _scaled(value, one.lower, one.upper, 1 / limit)
            others.append(_Row(one, *scaled, limit=1.0, good_above=rule.min is not None))
    drawn = []
    if quality:
        drawn.append(
            (
                "Quality: variant − baseline, in points; the thick bar is the allowed drop, what is allowed is shaded",
                _intervals(quality, 0.0),
            )
        )
    if others:
        beyond = max(row.span[1] for row in others) > FAR
        said = f"; what is beyond {FAR:g} stands at the edge" if beyond else ""
        drawn.append((f"Other rules: the measured value as a multiple of its limit{said}", _intervals(others, None)))
    return drawn


class _Row:
    def __init__(
        self, one: Comparison, at: float, low: float | None, high: float | None, *, limit: float, good_above: bool
    ) -> None:
        self.one, self.at, self.low, self.high, self.limit, self.good_above = one, at, low, high, limit, good_above

    @property
    def span(self) -> tuple[float, float]:
        known = [value for value in (self.at, self.low, self.high, self.limit) if value is not None]
        return min(known), max(known)


def _intervals(rows: Sequence[_Row], zero: float | None) -> str:
    """A line from bound to bound with a mark at the measured value; what the rule allows is shaded."""
    low = min(row.span[0] for row in rows)
    high = max(row.span[1] for row in rows)
    low, high = min(low, 0.0), max(high, 0.0) if zero is not None else min(high, FAR)
    pad = 0.06 * (high - low or 1.0)
    axis = _Axis(low - pad if low < 0 else 0.0, high + pad)
    lines = [_interval(row, axis, zero) for row in rows]
    return f'<div class="plot">{"".join(lines)}<div class="label"></div>{axis.ticks()}</div>'


def _interval(row: _Row, axis: _Axis, zero: float | None) -> str:
    one, middle = row.one, ROW / 2
    status = one.status
    allowed = (row.limit, axis.high) if row.good_above else (axis.low, row.limit)
    parts = [_rect(axis.at(allowed[0]), axis.at(allowed[1]), 3, ROW - 6, "allowed")]
    if zero is not None:
        parts.append(_line(axis.at(zero), 0, axis.at(zero), ROW, "zero"))
    parts.append(_line(axis.at(row.limit), 2, axis.at(row.limit), ROW - 2, "limit"))
    ends = (axis.low if row.low is None else row.low), (axis.high if row.high is None else row.high)
    parts.append(_line(axis.at(ends[0]), middle, axis.at(ends[1]), middle, f"bar {status}"))
    for bound in (row.low, row.high):
        if bound is not None:
            parts.append(_line(axis.at(bound), middle - 5, axis.at(bound), middle + 5, f"bar {status}"))
    parts.append(_mark(axis.at(row.at), middle, status))
    said = f"{one.metric}, {one.slice}: {difference_and_bounds(one)}, {status}"
    where = "" if one.slice == "pooled" else f" · {_text(one.slice)}"
    label = f'<span class="sign {status}">{SIGNS.get(status, "")}</span> {_text(one.metric)}{where}'
    return f'<div class="label">{label}</div>{_svg(ROW, said, "".join(parts))}'


def interactions(found: Sequence[Interaction]) -> str:
    """What two changes do together beyond what each does alone: one scale for points, one for ratios of costs."""
    costs = [one for one in found if one.metric == "cost_per_accepted_answer"]
    points = [one for one in found if one not in costs]
    return "".join(_interactions(rows, scale) for rows, scale in ((points, 100.0), (costs, 1.0)) if rows)


def _interactions(found: Sequence[Interaction], scale: float) -> str:
    """scale: of a stored value to the axis's unit. What reaches beyond 4 times the narrowest is marked at the edge."""
    reach = [
        scale * max(abs(value) for value in (one.estimate, one.lower, one.upper) if value is not None)
        for one in found
        if not too_few(one)
    ]
    most = 1.15 * min(max(reach, default=0.0), FAR * min((r for r in reach if r), default=0.0)) or 1.0
    axis = _Axis(-most, most)
    rows = [_interaction(one, axis, scale) for one in found]
    return f'<div class="plot">{"".join(rows)}<div class="label"></div>{axis.ticks() if reach else ""}</div>'


def _interaction(one: Interaction, axis: _Axis, scale: float) -> str:
    status, middle = "broken" if one.found else "undecided", ROW / 2
    sign = f'<span class="sign {status}">{SIGNS["broken"] if one.found else ""}</span>'
    numbers = f"<span class=quiet>{_text(interaction_numbers(one))}</span>"
    label = f'<div class="label">{sign} {_text(one.metric)} · {_text(one.slice)}{numbers}</div>'
    if too_few(one):
        return f"{label}<div></div>"
    estimate, low, high = _scaled(one.estimate, one.lower, one.upper, scale)
    ends = (axis.low if low is None else low), (axis.high if high is None else high)
    parts = [
        _line(50, 0, 50, ROW, "zero"),
        _line(axis.at(ends[0]), middle, axis.at(ends[1]), middle, f"bar {status}"),
    ]
    for end in (low, high):
        if end is not None and axis.low <= end <= axis.high:
            parts.append(_line(axis.at(end), middle - 5, axis.at(end), middle + 5, f"bar {status}"))
    if ends[0] < axis.low:
        parts.append(_beyond(ends[0], 0, "start", "◂ {}"))
    if ends[1] > axis.high:
        parts.append(_beyond(ends[1], 100, "end", "{} ▸"))
    parts.append(_mark(axis.at(estimate), middle, status))
    return label + _svg(ROW, f"{one.metric} {interaction_numbers(one)}", "".join(parts))


def _beyond(value: float, at: float, anchor: str, form: str) -> str:
    """A value that the axis does not reach, at its edge."""
    said = form.format(_number(round(value, 2)))
    return f'<text x="{at:g}%" y="{ROW / 2 - 4:g}" text-anchor="{anchor}">{said}</text>'


def flips(counts: Sequence[FlipCount]) -> str:
    """Right → wrong to the left, wrong → right to the right. "" when no answer moved."""
    moved = [one for one in counts if one.lost or one.gained]
    if not moved:
        return ""
    most = max(FEW, *(max(one.lost, one.gained) for one in moved))
    rows = []
    for one in moved:
        left, right = 50 - 40 * one.lost / most, 50 + 40 * one.gained / most
        parts = [
            _rect(left, 50, 5, ROW - 10, "lost") + _rect(50, right, 5, ROW - 10, "gained"),
            _line(50, 0, 50, ROW, "zero"),
            f'<text x="{left - 1:.2f}%" y="{ROW / 2 + 4:g}" text-anchor="end">{one.lost:,}</text>',
            f'<text x="{right + 1:.2f}%" y="{ROW / 2 + 4:g}">{one.gained:,}</text>',
        ]
        name = f"{one.evalset} · {one.metric}"
        said = f"{name}: {one.lost} right to wrong, {one.gained} wrong to right, of {one.pairs}"
        rows.append(f'<div class="label">{_text(name)}</div>{_svg(ROW, said, "".join(parts))}')
    legend = (
        '<div class="label"></div><div class="legend"><span>← right, now wrong</span>'
        "<span>wrong, now right →</span></div>"
    )
    still = len(counts) - len(moved)
    note = f'<p class="quiet">{still} more without a change.</p>' if still else ""
    return f'<div class="plot">{"".join(rows)}{legend}</div>{note}'


def drift(points: Sequence[PositionDrift]) -> str:
    """Mean KL at each token of the baseline's answers. Paler where fewer than half of the answers are that long."""
    if len(points) < 2:
        return ""
    height, top, last = 180, 8, points[-1].position
    most = max(point.mean for point in points) or 1.0
    step = _step(most / 4)
    ceiling = max(most * 1.05, step)
    many = [point for point in points if 2 * point.answers >= points[0].answers]
    few = points[len(many) - 1 :]

    def path(chosen: Sequence[PositionDrift], kind: str) -> str:
        places = (f"{100 * p.position / (last or 1):.2f},{100 - 100 * p.mean / ceiling:.2f}" for p in chosen)
        return f'<polyline class="{kind}" points="{" ".join(places)}"/>' if len(chosen) > 1 else ""

    lines = f"{path(many, 'many')}{path(few, 'few')}"
    grid, labels, value = [], [], 0.0
    while value <= ceiling:
        y = top + (height - top) * (1 - value / ceiling)
        grid.append(f'<line class="grid" x1="{LEFT}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        if value:
            labels.append(f'<text x="0" y="{y + 4:.1f}">{_number(value)}</text>')
        value += step
    wide = 100 - LEFT
    box = f'x="{LEFT}%" y="{top}" width="{wide}%" height="{height - top}" viewBox="0 0 100 100"'
    box += ' preserveAspectRatio="none"'
    ticks = "".join(
        f'<text x="{LEFT + wide * share:g}%" y="{height + 16}" text-anchor="{anchor}">{round(last * share)}</text>'
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    peak = max(points, key=lambda point: (point.mean, -point.position))
    said = f"mean KL by token, largest {peak.mean:.4g} nats at token {peak.position} of {last}"
    return _svg(height + 22, said, f"{''.join(grid)}<svg {box}>{lines}</svg>{''.join(labels)}{ticks}", "line")


# --------------------------------------------------------------------------------------------------------- pieces


class _Axis:
    """From `low` to `high` over the picture's width."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """Per cent of the width; what lies outside is put at the edge."""
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))

    def ticks(self) -> str:
        step = _step((self.high - self.low) / 5)
        marks, number = [], -floor(-self.low / step)
        while number * step <= self.high:
            value = number * step
            at = self.at(value)
            anchor = "start" if at < 4 else "end" if at > 96 else "middle"
            marks.append(f'<text x="{at:.2f}%" y="13" text-anchor="{anchor}">{_number(value)}</text>')
            number += 1
        return f'<svg class="ticks" width="100%" height="18" aria-hidden="true">{"".join(marks)}</svg>'


def _step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _number(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{value:.6g}".replace("-", "−")


def _svg(height: float, said: str, inner: str, kind: str = "row") -> str:
    title = _text(said)
    return f'<svg class="{kind}" width="100%" height="{height:g}" role="img"><title>{title}</title>{inner}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:g}" x2="{x2:.2f}%" y2="{y2:g}"/>'


def _rect(left: float, right: float, top: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{left:.2f}%" y="{top:g}" width="{max(0.0, right - left):.2f}%" height="{height:g}"/>'
    )


def _mark(x: float, y: float, status: str) -> str:
    """A disc for proven, a square for broken, a hollow diamond for what is not decided."""
    shape = {
        "proven": '<circle r="5"/>',
        "broken": '<rect x="-5" y="-5" width="10" height="10"/>',
    }.get(status, '<path d="M0-7 7 0 0 7-7 0Z"/>')
    return f'<svg class="mark {_text(status)}" x="{x:.2f}%" y="{y:g}" overflow="visible">{shape}</svg>'


def _text(text: str) -> str:
    return escape(visible_line(text))


def _kind(one: Comparison) -> str:
    return METRICS[one.metric].kind if one.metric in METRICS else ""


def _limit(rule: Rule) -> float | None:
    return next((bound for bound in (rule.max, rule.min, rule.max_ratio) if bound), None)


def _value(one: Comparison, rule: Rule) -> float | None:
    """What the limit is put to: the ratio to the baseline where the rule asks for one, else the variant's own value."""
    if rule.max_ratio is None:
        return one.variant
    return one.variant / one.baseline if one.variant is not None and one.baseline else None


def _scaled(
    value: float | None, low: float | None, high: float | None, factor: float
) -> tuple[float, float | None, float | None]:
    return factor * (value or 0.0), None if low is None else factor * low, None if high is None else factor * high
