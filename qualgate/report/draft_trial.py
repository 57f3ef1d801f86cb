"""The report of drafts that were tried on a model (`qualgate draft compare`), for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qualgate.formatting import counted
from qualgate.report.speculation import gain_text, speculation_lines

if TYPE_CHECKING:
    from qualgate.pipeline.draft_trial import Tried

STEADY = 0.03  # of plain decoding against itself: where it is further from 1, gains so near to 1 mean nothing


def trial_lines(tried: Sequence[Tried], written: str) -> list[str]:
    """The draft that gains most first; then each of them whole. written: the gate file."""
    best = sorted(tried, key=lambda one: one.found.gain.measured.value or 0.0, reverse=True)
    lines = [f"{counted(best[0].prompts, 'prompt')}, one sequence at a time, in turns with plain decoding:"]
    for one in best:
        lines += ["", *_of(one)]
    surely = [one for one in best if (one.found.gain.measured.lower or 0.0) > 1]
    said = f"{surely[0].name} gains most" if surely else "No draft surely gains anything on these prompts"
    return [*lines, "", f"{said}. The gate file with all of them: {written}"]


def _of(one: Tried) -> list[str]:
    found, unlike = one.found, one.unlike
    by_task = ", ".join(f"{task} {share:.1%}" for task, share in one.accepted.items())
    lines = [
        f"{one.name}: {found.spec.label if found.spec else ''}",
        f"  plain decoding against itself: {gain_text(one.again)}",
    ]
    if abs((one.again.value or 1.0) - 1) > STEADY:
        lines.append("  UNSTEADY: the machine was not the same for both, so gains near 1 mean nothing")
    told = "those of plain decoding, token for token"
    if unlike:
        lossy = one.drawn and found.spec is not None and found.spec.rule != "keyed"
        told = f"others in {unlike} of {one.prompts}" + (", as this rule may say" if lossy else ": A DEFECT")
    lines.append(f"  answers: {told}")
    return [
        *lines,
        f"  accepted by task: {by_task or 'nothing'}",
        *(f"  {line}" for line in speculation_lines(found)[1:]),
    ]
