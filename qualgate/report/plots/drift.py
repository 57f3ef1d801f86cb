"""Plot drift along the answers, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.report.plots.drawing import Picture, number, step, svg, text
from qualgate.store.queries import PositionDrift

CAPTION = "Mean KL, in nats, by token of the baseline's answer; paler where under half of them are that long"
TOP, BOTTOM, HEIGHT = 8, 180, 202  # px: the curve's box, and the picture with the numbers below it
LEFT = 7  # per cent of the width, for the numbers beside the curve
READ = 150  # most columns with a tooltip


def drift(points: Sequence[PositionDrift]) -> Picture | None:
    """Draw the mean KL at each token of the baseline's answers, paler if under half of the answers are that long."""
    if len(points) < 2:
        return None
    last = points[-1].position
    largest = max(point.mean for point in points) or 1.0
    gap = step(largest / 4)
    ceiling = max(largest * 1.05, gap)
    many = [point for point in points if 2 * point.answers >= points[0].answers]
    few = points[len(many) - 1 :]  # from the last of `many`, so that the two lines join
    lines = f"{_path(many, 'many', last, ceiling)}{_path(few, 'few', last, ceiling)}"
    box = f'x="{LEFT}%" y="{TOP}" width="{100 - LEFT}%" height="{BOTTOM - TOP}" viewBox="0 0 100 100"'
    inner = f'<svg {box} preserveAspectRatio="none">{lines}{_columns(points)}</svg>'
    peak = max(points, key=lambda point: (point.mean, -point.position))
    title = f"mean KL by token, largest {peak.mean:.4g} nats at token {peak.position} of {last}"
    grid, labels = _scale(gap, ceiling)
    return Picture(svg(HEIGHT, title, f"{grid}{inner}{labels}{_ticks(last)}", "line"), HEIGHT)


def _path(points: Sequence[PositionDrift], kind: str, last: int, ceiling: float) -> str:
    places = (f"{100 * p.position / (last or 1):.2f},{100 - 100 * p.mean / ceiling:.2f}" for p in points)
    return f'<polyline class="{kind}" points="{" ".join(places)}"/>' if len(points) > 1 else ""


def _columns(points: Sequence[PositionDrift]) -> str:
    """Draw invisible columns whose tooltips give the measured value; over several tokens, the largest."""
    end = points[-1].position + 1
    size = -(-len(points) // READ)  # rounded up, so at most READ columns
    columns = []
    for first in range(0, len(points), size):
        bucket = points[first : first + size]
        left, right = (100 * edge / end for edge in (bucket[0].position, bucket[-1].position + 1))
        peak = max(bucket, key=lambda point: point.mean)
        title = text(f"token {peak.position}: {peak.mean:.4g} nats over {peak.answers:,} answers")
        box = f'x="{left:.2f}" y="0" width="{right - left:.2f}" height="100"'
        columns.append(f'<g class="read"><title>{title}</title><rect {box}/></g>')
    return "".join(columns)


def _scale(gap: float, ceiling: float) -> tuple[str, str]:
    """Return the grid lines, one each `gap` nats up to `ceiling`, and the numbers beside them, as SVG."""
    grid, labels, value = [], [], 0.0
    while value <= ceiling:
        y = TOP + (BOTTOM - TOP) * (1 - value / ceiling)
        grid.append(f'<line class="grid" x1="{LEFT}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        if value:
            labels.append(f'<text x="0" y="{y + 4:.1f}">{number(value)}</text>')
        value += gap
    return "".join(grid), "".join(labels)


def _ticks(last: int) -> str:
    width = 100 - LEFT
    return "".join(
        f'<text x="{LEFT + width * share:g}%" y="{BOTTOM + 16}" text-anchor="{anchor}">{round(last * share)}</text>'
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
