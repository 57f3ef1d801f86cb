"""Plot how many answers changed between right and wrong, by evalset and metric."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.report.plots.drawing import LINED, ROW, Picture, line, rect, svg, text
from qualgate.store.queries import FlipCount

LEGEND, NOTE = 20, 30  # px, below the rows
FEW = 10  # changed answers for a full-width bar, at least


def flips(counts: Sequence[FlipCount]) -> Picture | None:
    """Draw right → wrong to the left, wrong → right to the right. None if no answer changed."""
    moved = [count for count in counts if count.lost or count.gained]
    if not moved:
        return None
    largest = max(FEW, *(max(count.lost, count.gained) for count in moved))
    rows = []
    for count in moved:
        left, right = 50 - 40 * count.lost / largest, 50 + 40 * count.gained / largest
        parts = [
            rect(left, 50, 5, ROW - 10, "lost") + rect(50, right, 5, ROW - 10, "gained"),
            line(50, 0, 50, ROW, "zero"),
            f'<text x="{left - 1:.2f}%" y="{ROW / 2 + 4:g}" text-anchor="end">{count.lost:,}</text>',
            f'<text x="{right + 1:.2f}%" y="{ROW / 2 + 4:g}">{count.gained:,}</text>',
        ]
        name = f"{count.evalset} · {count.metric}"
        title = f"{name}: {count.lost} right to wrong, {count.gained} wrong to right, of {count.pairs}"
        rows.append(f'<div class="label">{text(name)}</div>{svg(ROW, title, "".join(parts))}')
    legend = (
        '<div class="label"></div><div class="legend"><span>← right, now wrong</span>'
        "<span>wrong, now right →</span></div>"
    )
    still = len(counts) - len(moved)
    note = f'<p class="quiet">{still} more without a change.</p>' if still else ""
    height = len(rows) * LINED + LEGEND + (NOTE if still else 0)
    return Picture(f'<div class="plot">{"".join(rows)}{legend}</div>{note}', height)
