"""Plot a metric of an arm night by night, against the approved night."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.report.plots.drawing import Picture, line, number, step, svg, text

CAPTION = (
    "The mean, in per cent. Dashed: the night that the others are held against. A square: since when it has fallen"
)
TOP, BOTTOM, HEIGHT = 10, 130, 152  # px: the curve's box, and the picture with the dates below it
LEFT, RIGHT = 7, 99  # per cent of the width: the curve's, with room for the numbers beside it and the last mark
LEAST = 0.02  # smallest range of the y axis: a narrower one would make noise look like a change


def nights(means: Sequence[float], dates: Sequence[str], falls: Sequence[int]) -> Picture | None:
    """Draw the means (0 to 1, the approved night's first); falls: indices where one began. None for a single night."""
    if len(means) < 2:
        return None
    low, high = min(means), max(means)
    room = max(LEAST, 1.1 * (high - low))
    low = min(max(0.0, (low + high - room) / 2), 1.0 - room)
    spots = [(_across(index, len(means)), _down(mean, low, room)) for index, mean in enumerate(means)]
    path = " ".join(f"{x:.2f},{100 * (y - TOP) / (BOTTOM - TOP):.2f}" for x, y in spots)
    box = f'x="{LEFT}%" y="{TOP}" width="{RIGHT - LEFT}%" height="{BOTTOM - TOP}" viewBox="0 0 100 100"'
    curve = f'<svg {box} preserveAspectRatio="none"><polyline points="{path}"/></svg>'
    grid, labels = _scale(low, room)
    approved = line(LEFT, spots[0][1], RIGHT, spots[0][1], "approved")
    marks = "".join(_night(spots[k], f"{dates[k]}: {100 * mean:.1f} %", k in falls) for k, mean in enumerate(means))
    fallen = f", fallen since {', '.join(dates[k] for k in falls)}" if falls else ", no fall"
    title = f"{100 * means[0]:.1f} % on {dates[0]}, {100 * means[-1]:.1f} % on {dates[-1]}{fallen}"
    ends = f'<text x="{LEFT}%" y="{BOTTOM + 18}">{text(dates[0])}</text>' \
        f'<text x="{RIGHT}%" y="{BOTTOM + 18}" text-anchor="end">{text(dates[-1])}</text>'  # fmt: skip
    return Picture(svg(HEIGHT, title, f"{grid}{approved}{curve}{marks}{labels}{ends}", "line"), HEIGHT)


def _across(index: int, count: int) -> float:
    return 100 * index / (count - 1)


def _down(mean: float, low: float, room: float) -> float:
    return TOP + (BOTTOM - TOP) * (1 - (mean - low) / room)


def _night(spot: tuple[float, float], title: str, fell: bool) -> str:
    """Draw a square where a fall began, else a dot, both with a tooltip."""
    shape = '<rect x="-5" y="-5" width="10" height="10"/>' if fell else '<circle r="3"/>'
    kind = "mark broken" if fell else "night"
    x = LEFT + (RIGHT - LEFT) * spot[0] / 100
    inner = f"<title>{text(title)}</title>{shape}"
    return f'<svg class="{kind}" x="{x:.2f}%" y="{spot[1]:.1f}" overflow="visible">{inner}</svg>'


def _scale(low: float, room: float) -> tuple[str, str]:
    """Return the grid lines and the per cents beside them."""
    gap, grid, labels = step(100 * room / 4), [], []
    value = -(-100 * low // gap) * gap
    while value <= 100 * (low + room):
        y = _down(value / 100, low, room)
        grid.append(f'<line class="grid" x1="{LEFT}%" x2="{RIGHT}%" y1="{y:.1f}" y2="{y:.1f}"/>')
        labels.append(f'<text x="0" y="{y + 4:.1f}">{number(value)}</text>')
        value += gap
    return "".join(grid), "".join(labels)
