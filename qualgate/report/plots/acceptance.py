"""Plot the share of draft tokens that are accepted, by position in the draft."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.records import DraftPosition
from qualgate.report.plots.drawing import LINED, ROW, TICKS, Axis, Picture, line, mark, rect, svg

CAPTION = (
    "Accepted, in per cent, by the token's place in the draft: the bar is of all drafts, the mark of those in which it "
    "was tested, between its bounds"
)
SHARES = Axis(low=0.0, high=100.0)


def acceptance(positions: Sequence[DraftPosition]) -> Picture | None:
    """Draw per position a bar for the unconditional share, a mark for the conditional one. None without proposals."""
    if not positions:
        return None
    rows = [_row(position) for position in positions]
    html = f'<div class="plot">{"".join(rows)}<div class="label"></div>{SHARES.ticks()}</div>'
    return Picture(html, len(rows) * LINED + TICKS)


def _row(position: DraftPosition) -> str:
    """Draw one draft position: a bar for its share accepted of all drafts, a mark with its interval for that of tested
    ones."""
    of_all, tested = position.unconditional, position.conditional
    parts = [rect(0, SHARES.at(100 * (of_all.value or 0.0)), 6, ROW - 12, "kept")]
    title = f"token {position.position}: {100 * (of_all.value or 0.0):.1f} % of all drafts"
    if tested.value is not None:
        x, middle = SHARES.at(100 * tested.value), ROW / 2
        if tested.lower is not None and tested.upper is not None:
            ends = SHARES.at(100 * tested.lower), SHARES.at(100 * tested.upper)
            parts.append(line(ends[0], middle, ends[1], middle, "bar"))
            parts += [line(end, middle - 5, end, middle + 5, "bar") for end in ends]
        parts.append(mark(x, middle, "undecided"))
        title += f", {100 * tested.value:.1f} % of the {tested.denominator:,.0f} in which it was tested"
    return f'<div class="label">token {position.position}</div>{svg(ROW, title, "".join(parts))}'
