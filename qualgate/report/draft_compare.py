"""The text report of `qualgate draft compare`, which tries several drafts on a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qualgate.formatting import counted
from qualgate.report.speculation import gain_text, speculation_lines

if TYPE_CHECKING:
    from qualgate.pipeline.draft_compare import Tried

STEADY = 0.03  # largest distance from 1 of plain decoding's gain over itself for gains near 1 to mean anything


def comparison_lines(results: Sequence[Tried], written: str) -> list[str]:
    """Return the result of every draft in full, the largest gain first, then the winner. written: the gate file."""
    best = sorted(results, key=lambda result: result.found.gain.measured.value or 0.0, reverse=True)
    lines = [f"{counted(best[0].prompts, 'prompt')}, one sequence at a time, in turns with plain decoding:"]
    for result in best:
        lines += ["", *_draft_lines(result)]
    faster = [result for result in best if (result.found.gain.measured.lower or 0.0) > 1]
    winner = f"{faster[0].name} gains most" if faster else "No draft surely gains anything on these prompts"
    return [*lines, "", f"{winner}. The gate file with all of them: {written}"]


def _draft_lines(result: Tried) -> list[str]:
    """Return lines on one draft: how steady the machine was, whether its answers are those of plain decoding (they must
    be unless the rule is lossy and tokens are drawn), acceptance by task, and gain."""
    speculated, unlike = result.found, result.unlike
    by_task = ", ".join(f"{task} {share:.1%}" for task, share in result.accepted.items())
    lines = [
        f"{result.name}: {speculated.spec.label if speculated.spec else ''}",
        f"  plain decoding against itself: {gain_text(result.again)}",
    ]
    if abs((result.again.value or 1.0) - 1) > STEADY:
        lines.append("  UNSTEADY: the machine was not the same for both, so gains near 1 mean nothing")
    answers = "those of plain decoding, token for token"
    if unlike:
        lossy = result.drawn and speculated.spec is not None and speculated.spec.rule != "keyed"
        answers = f"others in {unlike} of {result.prompts}" + (", as this rule may say" if lossy else ": A DEFECT")
    lines.append(f"  answers: {answers}")
    return [
        *lines,
        f"  accepted by task: {by_task or 'nothing'}",
        # Without their headline: the first line names the draft.
        *(f"  {line}" for line in speculation_lines(speculated)[1:]),
    ]
