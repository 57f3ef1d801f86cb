"""Where two answers to one prompt part, and how near the model holds the two tokens there.

In other arithmetic a near tie falls either way: one spacing of the numbers in which a server has its logits is none of
its faults. What lies further apart needs another reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import frexp
from typing import Any

from qualgate.engine.choice import open_engine
from qualgate.engine.load import LoadedArm
from qualgate.engine.request import Event, Read, Request
from qualgate.records import Prompt

DIGITS = 8  # of a bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """position: in the answer, of the first token that is another; said, other: the tokens, None where that answer was
    over; lead: of the first over the second, in logits of exact arithmetic, None where one was over; spacing: of
    bfloat16 at the larger logit."""

    position: int
    said: int | None
    other: int | None
    lead: float | None = None
    spacing: float | None = None

    @property
    def tie(self) -> bool:
        """Whether bfloat16 may hold both logits for the same."""
        return self.lead is not None and self.spacing is not None and abs(self.lead) <= self.spacing

    @property
    def shown(self) -> dict[str, Any]:
        """As a result has it."""
        return asdict(self) | {"tie": self.tie}


def parted(
    arm: LoadedArm, prompts: Sequence[Prompt], said: Sequence[Sequence[int]], others: Sequence[Sequence[int]]
) -> dict[str, dict[str, Any]]:
    """Of each prompt that was answered otherwise, by its evalset and case."""
    found = {
        f"{prompt.key.evalset}/{prompt.key.case_id}": parting(arm, prompt.token_ids, mine, its)
        for prompt, mine, its in zip(prompts, said, others, strict=True)
    }
    return {case: one.shown for case, one in found.items() if one is not None}


def parting(arm: LoadedArm, prompt: tuple[int, ...], said: Sequence[int], other: Sequence[int]) -> Parting | None:
    """None of two that are the same. The arm's own logits decide, whoever gave the answers."""
    if tuple(said) == tuple(other):
        return None
    shorter = min(len(said), len(other))
    position = next((at for at in range(shorter) if said[at] != other[at]), shorter)
    if position == shorter:
        ends = [answer[position] if position < len(answer) else None for answer in (said, other)]
        return Parting(position=position, said=ends[0], other=ends[1])
    found = list[tuple[float, float]]()

    def take(event: Event) -> None:
        if isinstance(event, Read) and position in event.positions:
            logits = event.logits[list(event.positions).index(position)]
            found.append((float(logits[said[position]]), float(logits[other[position]])))

    with open_engine(arm.model, arm.choice) as engine:
        engine.run([Request(prompt=prompt, answer=tuple(said[: position + 1]))], None, take)
    [(mine, its)] = found
    spacing = 2.0 ** (frexp(max(abs(mine), abs(its)))[1] - DIGITS)
    return Parting(position=position, said=said[position], other=other[position], lead=mine - its, spacing=spacing)
