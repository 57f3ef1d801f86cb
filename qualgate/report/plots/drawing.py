"""Draw SVG as text, with positions along an axis in per cent of the picture's width.

A picture thus fits a phone, the dashboard and a sheet of paper at one text size.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import floor, log10

from qualgate.text.escaping import visible_line

ROW = 30  # px, the height of one interval or bar
LINED = ROW + 1  # px, a row with the line below it
TICKS = 18  # px, the numbers of an axis
FAR = 4.0  # longest axis in multiples of the narrowest interval or of the limit: a longer one squeezes all else
SIGNS = {"proven": "✓", "broken": "✗", "undecided": "?"}


@dataclass(frozen=True, slots=True)
class Picture:
    """HTML to be styled by plots.css, with stored text escaped."""

    html: str
    height: int  # px, if no label wraps
    style: str = ""  # in place of plots.css, if the picture is also written as a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high` over the picture's width."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the position in per cent of the width; values outside are put at the edge."""
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))

    def ticks(self) -> str:
        """Draw round numbers below the rows, TICKS px high."""
        gap = step((self.high - self.low) / 5)
        marks, tick = [], -floor(-self.low / gap)
        while tick * gap <= self.high:
            value = tick * gap
            x = self.at(value)
            anchor = "start" if x < 4 else "end" if x > 96 else "middle"
            marks.append(f'<text x="{x:.2f}%" y="13" text-anchor="{anchor}">{number(value)}</text>')
            tick += 1
        return f'<svg class="ticks" width="100%" height="{TICKS}" aria-hidden="true">{"".join(marks)}</svg>'


def step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def number(value: float) -> str:
    """Format a number beside an axis."""
    return "0" if abs(value) < 1e-9 else f"{value:.6g}".replace("-", "−")


def svg(height: float, spoken: str, inner: str, kind: str = "row") -> str:
    """Draw a picture, or a row of one. spoken: text for screen readers and for the tooltip."""
    title = text(spoken)
    return f'<svg class="{kind}" width="100%" height="{height:g}" role="img"><title>{title}</title>{inner}</svg>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a line; here and below x is in per cent of the width, y in px."""
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:g}" x2="{x2:.2f}%" y2="{y2:g}"/>'


def rect(left: float, right: float, top: float, height: float, kind: str) -> str:
    """Draw a rectangle between two positions of the width."""
    return (
        f'<rect class="{kind}" x="{left:.2f}%" y="{top:g}" width="{max(0.0, right - left):.2f}%" height="{height:g}"/>'
    )


def mark(x: float, y: float, status: str) -> str:
    """Draw a disc for proven, a square for broken, a hollow diamond for undecided."""
    shape = {
        "proven": '<circle r="5"/>',
        "broken": '<rect x="-5" y="-5" width="10" height="10"/>',
    }.get(status, '<path d="M0-7 7 0 0 7-7 0Z"/>')
    return f'<svg class="mark {text(status)}" x="{x:.2f}%" y="{y:g}" overflow="visible">{shape}</svg>'


def text(stored: str) -> str:
    """Escape stored text as HTML on one line."""
    return escape(visible_line(stored))


def scaled(
    value: float | None, low: float | None, high: float | None, factor: float
) -> tuple[float, float | None, float | None]:
    """Return a value and its bounds in an axis's unit; None for an unknown bound."""
    return factor * (value or 0.0), None if low is None else factor * low, None if high is None else factor * high
