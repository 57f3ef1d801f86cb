"""Print cases on a terminal: the prompt, the reference, both answers, their scores and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from qualgate.report import screen
from qualgate.report.screen import indented
from qualgate.store.queries import Compared
from qualgate.text.escaping import visible, visible_line
from qualgate.text.numbers import counted, score_text

MOST = 700  # characters shown of a text


def print_answers(variant: str, shown: Sequence[Compared], total: int, scoring: str = "") -> None:
    """Print the cases `shown` out of `total`. scoring: names the scoring in use if the run was scored again."""
    console = screen.console()
    console.print(Text(f"{visible_line(variant)} and its baseline: {counted(total, 'case')}", style="bold"))
    if scoring:
        console.print(Text(visible_line(scoring), style="yellow"))
    for case in shown:
        ended = "" if case.ended[0] == case.ended[1] == "eos" else f"; ended by {case.ended[0]}, {case.ended[1]}"
        scores = "  ".join(
            f"{visible_line(name)} {score_text(old)} → {score_text(new)}" for name, (old, new) in case.scores.items()
        )
        console.print(Text.assemble("\n", (visible_line(case.name), "bold"), f"  {scores}{visible_line(ended)}"))
        for name, reason in case.reasons.items():
            console.print(indented(Text(f"{visible_line(name)}: {visible_line(reason)}", style="yellow")))
        for name, text in (
            ("prompt", case.prompt),
            ("reference", case.reference),
            ("baseline", case.baseline),
            ("variant", case.variant),
        ):
            console.print(indented(Text(name, style="dim")))
            console.print(indented(Text(_shown(text)), 4))
    if total > len(shown):
        console.print(Text(f"\n{total - len(shown):,} more: --limit {total} shows all", style="dim"))


def _shown(text: str) -> str:
    return visible(text if len(text) <= MOST else f"{text[:MOST]} … ({len(text) - MOST:,} characters more: --json)")
