"""Plot throughput against latency as a self-contained SVG file: a line per arm, a mark per level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qualgate.report.plots.drawing import Picture, number, step, text

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 720, 150, 64, 24, 34, 50  # px
LINES = ("", "7 4", "2 4", "10 3 2 3")  # dashes of the arms' lines, so that colour is not needed
COLOURS = ("#0b5cad", "#b3480a", "#1a7f37", "#7a3fb0", "#4f6679")
SHAPES = (
    '<circle r="4.5"/>', '<rect x="-4.5" y="-4.5" width="9" height="9"/>', '<path d="M0-6 6 5-6 5Z"/>',
    '<path d="M0-6 6 0 0 6-6 0Z"/>',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A level of an arm. x: throughput. y: latency in ms, with its interval (None: unknown). kind: points to join."""

    label: str
    kind: str
    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The plot of one latency. points: by arm. limit: in ms, None if there is none."""

    title: str
    points: Mapping[str, Sequence[Point]]
    limit: float | None = None


def throughput_and_latency(panels: Sequence[Panel], across: str, caption: str) -> Picture:
    """Draw one SVG with all panels. across: label of the x axis."""
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.points))
    largest_x = max((point.x for panel in panels for points in panel.points.values() for point in points), default=0.0)
    right = 1.05 * largest_x or 1.0
    height = TOP + 20 * len(arms) + len(panels) * (PANEL + GAP) + 20
    parts = [f'<text x="8" y="18" class="title">{text(caption)}</text>', *_legend(arms)]
    top = TOP + 20 * len(arms)
    for panel in panels:
        parts += _panel(panel, arms, top + GAP - 12, right)
        top += PANEL + GAP
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:g}" y="{height - 4:g}" text-anchor="middle">{text(across)}</text>')
    svg_text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{text(caption)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    return Picture(svg_text, height, _STYLE)


def as_file(picture: Picture) -> str:
    """Return a whole SVG document with its style inside; pages keep the style where their security policy needs it."""
    return picture.html.replace("</title>", f"</title><style>{picture.style}</style>", 1)


_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-weight:600;font-size:13px;fill:#1f2328}"
    ".grid{stroke:#d0d7de}.axis{stroke:#57606a}.limit{stroke:#1f2328;stroke-width:1.5;stroke-dasharray:5 3}"
    ".level{font-size:10.5px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "polyline{fill:none;stroke-width:2}.bar{stroke-width:1.2}"
)


def _legend(arms: Sequence[str]) -> Iterator[str]:
    for index, arm in enumerate(arms):
        y = TOP + 20 * index
        yield f'<polyline points="{LEFT},{y} {LEFT + 36},{y}" {_pen(index)}/>{_mark(LEFT + 18, y, index)}'
        yield f'<text x="{LEFT + 46}" y="{y + 4}">{text(arm)}</text>'


def _panel(panel: Panel, arms: Sequence[str], top: float, right: float) -> Iterator[str]:
    """Yield the SVG elements of one panel: grid, limit, a line for each arm and kind of level, points with intervals.

    arms: all of the picture, since an arm's index gives its colour and shape. top: y of the panel. right: largest x.
    """
    all_points = [point for points in panel.points.values() for point in points]
    latencies = [value for point in all_points for value in (point.y, point.high or point.y)]
    ceiling = 1.08 * max([*latencies, 0.0]) or 1.0
    if panel.limit is not None and panel.limit < 3 * ceiling:
        ceiling = max(ceiling, 1.08 * panel.limit)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / right

    def y(value: float) -> float:
        return top + PANEL * (1 - value / ceiling)

    yield f'<text x="{LEFT}" y="{top - 7:g}" class="title">{text(panel.title)}</text>'
    for tick in _ticks(ceiling):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{number(tick)}</text>'
    for tick in _ticks(right):
        yield f'<text x="{x(tick):.1f}" y="{top + PANEL + 14:.1f}" text-anchor="middle">{number(tick)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>'
    if panel.limit is not None and panel.limit <= ceiling:
        y_limit = y(panel.limit)
        yield f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_limit:.1f}" y2="{y_limit:.1f}"/>'
        yield f'<text x="{WIDTH - RIGHT}" y="{y_limit - 4:.1f}" text-anchor="end">limit</text>'
    for index, arm in enumerate(arms):
        points = panel.points.get(arm, ())
        for kind in dict.fromkeys(point.kind for point in points):
            line = " ".join(f"{x(point.x):.1f},{y(point.y):.1f}" for point in points if point.kind == kind)
            yield f'<polyline points="{line}" {_pen(index)}/>'
        for point in points:
            low, high = 0.0 if point.low is None else point.low, ceiling if point.high is None else point.high
            ends = f'x1="{x(point.x):.1f}" x2="{x(point.x):.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"'
            open_ = ' stroke-dasharray="1 3"' if None in (point.low, point.high) else ""
            yield f'<line class="bar" {ends} {_pen(index, dashed=False)}{open_}/>{_mark(x(point.x), y(point.y), index)}'
            anchor, offset = ('text-anchor="end" ', -8) if point.x > 0.85 * right else ("", 8)
            aside = f'{anchor}x="{x(point.x) + offset:.1f}"'
            yield f'<text class="level" {aside} y="{y(point.y) - 7:.1f}">{text(point.label)}</text>'


def _ticks(ceiling: float) -> Iterator[float]:
    gap, count = step(ceiling / 4), 0
    while count * gap <= ceiling:
        yield count * gap
        count += 1


def _pen(index: int, dashed: bool = True) -> str:
    dashes = LINES[index % len(LINES)] if dashed else ""
    return f'stroke="{COLOURS[index % len(COLOURS)]}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _mark(x: float, y: float, index: int) -> str:
    shape = SHAPES[index % len(SHAPES)]
    return f'<g transform="translate({x:.1f} {y:.1f})" fill="{COLOURS[index % len(COLOURS)]}">{shape}</g>'
