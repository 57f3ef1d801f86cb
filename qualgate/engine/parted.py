"""Where two answers to one prompt diverge, and how close the model's logits of the two tokens are there.

Under other arithmetic a near tie can fall either way: one spacing of the server's logit dtype is not its fault. A
larger gap needs another reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import frexp
from typing import Any

from qualgate.engine.choice import open_engine
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.request import Event, Read, Request
from qualgate.records import Prompt

DIGITS = 8  # of a bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first difference of two answers. position: in the answer; said, other: the tokens, None where that answer had
    ended; lead: of the first over the second, in logits of exact arithmetic, None if one had ended; spacing: of
    bfloat16 at the larger logit."""

    position: int
    said: int | None
    other: int | None
    lead: float | None = None
    spacing: float | None = None

    @property
    def tie(self) -> bool:
        """Whether bfloat16 may store both logits as equal."""
        return self.lead is not None and self.spacing is not None and abs(self.lead) <= self.spacing

    @property
    def shown(self) -> dict[str, Any]:
        """The fields and `tie`, for a result."""
        return asdict(self) | {"tie": self.tie}


def parted(
    arm: LoadedArm, prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], others: Sequence[Sequence[int]]
) -> dict[str, dict[str, Any]]:
    """Return the differences by evalset and case, for each prompt with two different answers."""
    partings = {
        f"{prompt.key.evalset}/{prompt.key.case_id}": parting(arm, prompt.token_ids, answer, other_answer)
        for prompt, answer, other_answer in zip(prompts, answers, others, strict=True)
    }
    return {case: point.shown for case, point in partings.items() if point is not None}


def parting(arm: LoadedArm, prompt: tuple[int, ...], first: Sequence[int], second: Sequence[int]) -> Parting | None:
    """Return where two answers diverge; None if they are equal. The arm's own logits decide, whoever gave the
    answers."""
    if tuple(first) == tuple(second):
        return None
    shorter = min(len(first), len(second))
    position = next((index for index in range(shorter) if first[index] != second[index]), shorter)
    if position == shorter:
        ends = [answer[position] if position < len(answer) else None for answer in (first, second)]
        return Parting(position=position, said=ends[0], other=ends[1])
    logit_pairs = list[tuple[float, float]]()

    def take(event: Event) -> None:
        if isinstance(event, Read) and position in event.positions:
            logits = event.logits[list(event.positions).index(position)]
            logit_pairs.append((float(logits[first[position]]), float(logits[second[position]])))

    with open_engine(arm.model, arm.choice) as engine:
        engine.run([Request(prompt=prompt, answer=tuple(first[: position + 1]))], None, take)
    [(logit, other_logit)] = logit_pairs
    spacing = 2.0 ** (frexp(max(abs(logit), abs(other_logit)))[1] - DIGITS)
    return Parting(
        position=position, said=first[position], other=second[position], lead=logit - other_logit, spacing=spacing
    )
