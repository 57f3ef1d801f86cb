"""How many answers changed between right and wrong, by set and metric."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.report.plots.drawing import LINED, ROW, Picture, line, rect, svg, text
from qualgate.store.queries import FlipCount

LEGEND, NOTE = 20, 30  # px, below the rows
FEW = 10  # answers that changed: fewer do not fill the picture


def flips(counts: Sequence[FlipCount]) -> Picture | None:
    """Right → wrong to the left, wrong → right to the right. None when no answer moved."""
    moved = [one for one in counts if one.lost or one.gained]
    if not moved:
        return None
    most = max(FEW, *(max(one.lost, one.gained) for one in moved))
    rows = []
    for one in moved:
        left, right = 50 - 40 * one.lost / most, 50 + 40 * one.gained / most
        parts = [
            rect(left, 50, 5, ROW - 10, "lost") + rect(50, right, 5, ROW - 10, "gained"),
            line(50, 0, 50, ROW, "zero"),
            f'<text x="{left - 1:.2f}%" y="{ROW / 2 + 4:g}" text-anchor="end">{one.lost:,}</text>',
            f'<text x="{right + 1:.2f}%" y="{ROW / 2 + 4:g}">{one.gained:,}</text>',
        ]
        name = f"{one.evalset} · {one.metric}"
        said = f"{name}: {one.lost} right to wrong, {one.gained} wrong to right, of {one.pairs}"
        rows.append(f'<div class="label">{text(name)}</div>{svg(ROW, said, "".join(parts))}')
    legend = (
        '<div class="label"></div><div class="legend"><span>← right, now wrong</span>'
        "<span>wrong, now right →</span></div>"
    )
    still = len(counts) - len(moved)
    note = f'<p class="quiet">{still} more without a change.</p>' if still else ""
    height = len(rows) * LINED + LEGEND + (NOTE if still else 0)
    return Picture(f'<div class="plot">{"".join(rows)}{legend}</div>{note}', height)
