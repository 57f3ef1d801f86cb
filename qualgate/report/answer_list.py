"""Cases with both answers, on a terminal: what was asked, what was expected, both answers, their scores and why."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from qualgate.escaping import visible, visible_line
from qualgate.formatting import counted, score_text
from qualgate.report import screen
from qualgate.report.screen import indented
from qualgate.store.queries import Compared

MOST = 700  # characters of a text that are shown


def print_answers(variant: str, found: Sequence[Compared], total: int, scoring: str = "") -> None:
    """total: how many cases there are, of which `found` are shown. scoring: whose scores are shown, where the run was
    scored again."""
    console = screen.console()
    console.print(Text(f"{visible_line(variant)} and its baseline: {counted(total, 'case')}", style="bold"))
    if scoring:
        console.print(Text(visible_line(scoring), style="yellow"))
    for one in found:
        ended = "" if one.ended[0] == one.ended[1] == "eos" else f"; ended by {one.ended[0]}, {one.ended[1]}"
        scores = "  ".join(
            f"{visible_line(name)} {score_text(old)} → {score_text(new)}" for name, (old, new) in one.scores.items()
        )
        console.print(Text.assemble("\n", (visible_line(one.name), "bold"), f"  {scores}{visible_line(ended)}"))
        for name, reason in one.reasons.items():
            console.print(indented(Text(f"{visible_line(name)}: {visible_line(reason)}", style="yellow")))
        for name, text in (
            ("prompt", one.prompt),
            ("reference", one.reference),
            ("baseline", one.baseline),
            ("variant", one.variant),
        ):
            console.print(indented(Text(name, style="dim")))
            console.print(indented(Text(_shown(text)), 4))
    if total > len(found):
        console.print(Text(f"\n{total - len(found):,} more: --limit {total} shows all", style="dim"))


def _shown(text: str) -> str:
    return visible(text if len(text) <= MOST else f"{text[:MOST]} … ({len(text) - MOST:,} characters more: --json)")
