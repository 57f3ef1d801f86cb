"""Throughput against latency: a line an arm, a mark a level, as an SVG file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qualgate.report.plots.drawing import Picture, number, step, text

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 720, 150, 64, 24, 34, 50  # px
LINES = ("", "7 4", "2 4", "10 3 2 3")  # of arms, dashed so that colour says nothing alone
COLOURS = ("#0b5cad", "#b3480a", "#1a7f37", "#7a3fb0", "#4f6679")
SHAPES = (
    '<circle r="4.5"/>', '<rect x="-4.5" y="-4.5" width="9" height="9"/>', '<path d="M0-6 6 5-6 5Z"/>',
    '<path d="M0-6 6 0 0 6-6 0Z"/>',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A level of an arm. x: its throughput, y: its latency in ms with the ends of an interval (None: none known).
    kind: points of one kind are joined."""

    label: str
    kind: str
    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One latency. points: by arm. limit: in ms, None where none was asked for."""

    title: str
    points: Mapping[str, Sequence[Point]]
    limit: float | None = None


def throughput_and_latency(panels: Sequence[Panel], across: str, caption: str) -> Picture:
    """One SVG; across: what its x axis shows."""
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.points))
    most = max((point.x for panel in panels for some in panel.points.values() for point in some), default=0.0)
    right = 1.05 * most or 1.0
    height = TOP + 20 * len(arms) + len(panels) * (PANEL + GAP) + 20
    parts = [f'<text x="8" y="18" class="title">{text(caption)}</text>', *_legend(arms)]
    top = TOP + 20 * len(arms)
    for panel in panels:
        parts += _panel(panel, arms, top + GAP - 12, right)
        top += PANEL + GAP
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:g}" y="{height - 4:g}" text-anchor="middle">{text(across)}</text>')
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{text(caption)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    return Picture(drawn, height, _STYLE)


def as_file(picture: Picture) -> str:
    """A whole SVG document: a page keeps the style where its security policy wants it, a file has but itself."""
    return picture.html.replace("</title>", f"</title><style>{picture.style}</style>", 1)


_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-weight:600;font-size:13px;fill:#1f2328}"
    ".grid{stroke:#d0d7de}.axis{stroke:#57606a}.limit{stroke:#1f2328;stroke-width:1.5;stroke-dasharray:5 3}"
    ".level{font-size:10.5px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "polyline{fill:none;stroke-width:2}.bar{stroke-width:1.2}"
)


def _legend(arms: Sequence[str]) -> Iterator[str]:
    for place, arm in enumerate(arms):
        y = TOP + 20 * place
        yield f'<polyline points="{LEFT},{y} {LEFT + 36},{y}" {_pen(place)}/>{_mark(LEFT + 18, y, place)}'
        yield f'<text x="{LEFT + 46}" y="{y + 4}">{text(arm)}</text>'


def _panel(panel: Panel, arms: Sequence[str], top: float, right: float) -> Iterator[str]:
    seen = [value for some in panel.points.values() for one in some for value in (one.y, one.high or one.y)]
    ceiling = 1.08 * max([*seen, 0.0]) or 1.0
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
        at = y(panel.limit)
        yield f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{WIDTH - RIGHT}" y="{at - 4:.1f}" text-anchor="end">limit</text>'
    for place, arm in enumerate(arms):
        points = panel.points.get(arm, ())
        for kind in dict.fromkeys(one.kind for one in points):
            line = " ".join(f"{x(one.x):.1f},{y(one.y):.1f}" for one in points if one.kind == kind)
            yield f'<polyline points="{line}" {_pen(place)}/>'
        for one in points:
            low, high = 0.0 if one.low is None else one.low, ceiling if one.high is None else one.high
            ends = f'x1="{x(one.x):.1f}" x2="{x(one.x):.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"'
            open_ = ' stroke-dasharray="1 3"' if None in (one.low, one.high) else ""
            yield f'<line class="bar" {ends} {_pen(place, dashed=False)}{open_}/>{_mark(x(one.x), y(one.y), place)}'
            aside = f'text-anchor="end" x="{x(one.x) - 8:.1f}"' if one.x > 0.85 * right else f'x="{x(one.x) + 8:.1f}"'
            yield f'<text class="level" {aside} y="{y(one.y) - 7:.1f}">{text(one.label)}</text>'


def _ticks(most: float) -> Iterator[float]:
    gap, at = step(most / 4), 0
    while at * gap <= most:
        yield at * gap
        at += 1


def _pen(place: int, dashed: bool = True) -> str:
    dashes = LINES[place % len(LINES)] if dashed else ""
    return f'stroke="{COLOURS[place % len(COLOURS)]}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _mark(x: float, y: float, place: int) -> str:
    shape = SHAPES[place % len(SHAPES)]
    return f'<g transform="translate({x:.1f} {y:.1f})" fill="{COLOURS[place % len(COLOURS)]}">{shape}</g>'
