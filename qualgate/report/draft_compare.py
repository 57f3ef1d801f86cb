"""The text report of `qualgate draft compare`, which tries several drafts on a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qualgate.report.blocks import Note, Section, Terms
from qualgate.report.speculation import gain_text, speculation_blocks
from qualgate.report.terminal_blocks import section_lines
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.pipeline.draft_compare import Tried

STEADY = 0.03  # largest distance from 1 of plain decoding's gain over itself for gains near 1 to mean anything


def comparison_lines(results: Sequence[Tried], written: str) -> list[str]:
    """Return the result of every draft in full, the largest gain first, then the winner. written: the gate file."""
    best = sorted(results, key=lambda result: result.found.gain.measured.value or 0.0, reverse=True)
    heading = f"{counted(best[0].prompts, 'prompt')}, one sequence at a time, in turns with plain decoding:"
    faster = [result for result in best if (result.found.gain.measured.lower or 0.0) > 1]
    winner = f"{faster[0].name} gains most" if faster else "No draft surely gains anything on these prompts"
    ending = f"{winner}. The gate file with all of them: {written}"
    return section_lines([Section("", (Note(heading),)), *map(_section, best), Section("", (Note(ending),))])


def _section(result: Tried) -> Section:
    """Return the result of one draft: how steady the machine was, whether its answers are those of plain decoding (they
    must be unless the rule is lossy and tokens are drawn), acceptance by task, and gain."""
    speculated, unlike = result.found, result.unlike
    by_task = ", ".join(f"{task} {share:.1%}" for task, share in result.accepted.items())
    answers = "those of plain decoding, token for token"
    if unlike:
        lossy = result.drawn and speculated.spec is not None and speculated.spec.rule != "keyed"
        answers = f"others in {unlike} of {result.prompts}" + (", as this rule may say" if lossy else ": A DEFECT")
    again = gain_text(result.again)
    if abs((result.again.value or 1.0) - 1) > STEADY:
        again += " (UNSTEADY: the machine was not the same for both, so gains near 1 mean nothing)"
    rows = (
        ("plain decoding against itself", again),
        ("answers", answers),
        ("accepted by task", by_task or "nothing"),
    )
    label = speculated.spec.label if speculated.spec else ""
    return Section(f"{result.name}: {label}", (Terms(rows=rows), *speculation_blocks(speculated)))
