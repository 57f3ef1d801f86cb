"""Plot the effect of two changes together beyond their effects alone."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.records import Interaction
from qualgate.report.comparison_text import interaction_numbers, too_few
from qualgate.report.plots.drawing import FAR, ROW, SIGNS, Axis, Picture, line, mark, number, scaled, svg, text


def interactions(estimates: Sequence[Interaction]) -> Picture | None:
    """Draw the interactions, with one scale for points and one for cost ratios; None if there are none.

    Its height is 0, not known, since each row is as high as the numbers beside it."""
    costs = [interaction for interaction in estimates if interaction.metric == "cost_per_accepted_answer"]
    points = [interaction for interaction in estimates if interaction not in costs]
    html = "".join(_interactions(rows, scale) for rows, scale in ((points, 100.0), (costs, 1.0)) if rows)
    return Picture(html, 0) if html else None


def _interactions(estimates: Sequence[Interaction], scale: float) -> str:
    """Draw one scale; values beyond 4 times the narrowest go to the edge. scale: stored value to the axis's unit."""
    reach = [
        scale
        * max(abs(value) for value in (interaction.estimate, interaction.lower, interaction.upper) if value is not None)
        for interaction in estimates
        if not too_few(interaction)
    ]
    extent = 1.15 * min(max(reach, default=0.0), FAR * min((r for r in reach if r), default=0.0)) or 1.0
    axis = Axis(low=-extent, high=extent)
    rows = [_interaction(interaction, axis, scale) for interaction in estimates]
    return f'<div class="plot">{"".join(rows)}<div class="label"></div>{axis.ticks() if reach else ""}</div>'


def _interaction(interaction: Interaction, axis: Axis, scale: float) -> str:
    """Draw one interaction: its estimate with bounds. An end beyond the axis gets an arrow with its value; with too few
    cases only the label remains."""
    status, middle = "broken" if interaction.found else "undecided", ROW / 2
    sign = f'<span class="sign {status}">{SIGNS["broken"] if interaction.found else ""}</span>'
    numbers = f"<span class=quiet>{text(interaction_numbers(interaction))}</span>"
    label = f'<div class="label">{sign} {text(interaction.metric)} · {text(interaction.slice)}{numbers}</div>'
    if too_few(interaction):
        return f"{label}<div></div>"
    estimate, low, high = scaled(interaction.estimate, interaction.lower, interaction.upper, scale)
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
    return label + svg(ROW, f"{interaction.metric} {interaction_numbers(interaction)}", "".join(parts))


def _beyond(value: float, x: float, anchor: str, form: str) -> str:
    """Write a value beyond the axis at its edge."""
    label = form.format(number(round(value, 2)))
    return f'<text x="{x:g}%" y="{ROW / 2 - 4:g}" text-anchor="{anchor}">{label}</text>'
