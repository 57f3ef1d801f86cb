"""A file of scores, in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualgate.visible import visible_line

if TYPE_CHECKING:
    from qualgate.outputs import Scored


def scored_lines(found: Scored) -> list[str]:
    """The rate with its interval, and what was wrong how often."""
    rate, rows = found.rate, len(found.rows)
    lines = [f"{found.metric}: {rows:,} rows, scorer {found.scorer}, {found.mode} mode"]
    if rate is not None:
        lines.append(f"  rate   {rate.mean:.2%}   95 % interval {rate.lower:.2%} to {rate.upper:.2%}, exact")
    counts = {verdict: sum(row.score.verdict is verdict for row in found.rows) for verdict in (True, False, None)}
    lines.append(f"  right  {counts[True]:,}   wrong {counts[False]:,}   could not be judged {counts[None]:,}")
    lines += [f"  {count:>7,}  {visible_line(word)}" for word, count in found.error_counts.items()]
    return lines
