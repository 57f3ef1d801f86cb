"""The effect of two changes together beyond their effects alone."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.records import Interaction
from qualgate.report.arms import interaction_numbers, too_few
from qualgate.report.plots.drawing import FAR, ROW, SIGNS, Axis, line, mark, number, scaled, svg, text


def interactions(found: Sequence[Interaction]) -> str:
    """What two changes do together beyond what each does alone: one scale for points, one for ratios of costs.

    HTML whose rows are as high as the numbers beside them, so no Picture."""
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
    axis = Axis(low=-most, high=most)
    rows = [_interaction(one, axis, scale) for one in found]
    return f'<div class="plot">{"".join(rows)}<div class="label"></div>{axis.ticks() if reach else ""}</div>'


def _interaction(one: Interaction, axis: Axis, scale: float) -> str:
    status, middle = "broken" if one.found else "undecided", ROW / 2
    sign = f'<span class="sign {status}">{SIGNS["broken"] if one.found else ""}</span>'
    numbers = f"<span class=quiet>{text(interaction_numbers(one))}</span>"
    label = f'<div class="label">{sign} {text(one.metric)} · {text(one.slice)}{numbers}</div>'
    if too_few(one):
        return f"{label}<div></div>"
    estimate, low, high = scaled(one.estimate, one.lower, one.upper, scale)
    ends = (axis.low if low is None else low), (axis.high if high is None else high)
    parts = [
        line(50, 0, 50, ROW, "zero"),
        line(axis.at(ends[0]), middle, axis.at(ends[1]), middle, f"bar {status}"),
    ]
    for end in (low, high):
        if end is not None and axis.low <= end <= axis.high:
            parts.append(line(axis.at(end), middle - 5, axis.at(end), middle + 5, f"bar {status}"))
    if ends[0] < axis.low:
        parts.append(_beyond(ends[0], 0, "start", "◂ {}"))
    if ends[1] > axis.high:
        parts.append(_beyond(ends[1], 100, "end", "{} ▸"))
    parts.append(mark(axis.at(estimate), middle, status))
    return label + svg(ROW, f"{one.metric} {interaction_numbers(one)}", "".join(parts))


def _beyond(value: float, at: float, anchor: str, form: str) -> str:
    """A value that the axis does not reach, at its edge."""
    said = form.format(number(round(value, 2)))
    return f'<text x="{at:g}%" y="{ROW / 2 - 4:g}" text-anchor="{anchor}">{said}</text>'
