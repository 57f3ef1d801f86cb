"""Edits that make a policy decidable, offered only when draws confirm them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from qualgate.gate.advice import ENOUGH
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.power import Prediction
from qualgate.records import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit that makes the policy decidable, with the planner's prediction."""

    kind: str  # "more cases", "repeats", "pooled endpoint", "wider margins"
    lines: tuple[str, ...]  # what to write, one line each; of rules: lines of the gate file's list of rules
    sets: tuple[PlannedSet, ...]
    policy: Policy
    approve: float
    block: float

    @property
    def cases(self) -> dict[str, int]:
        """Evalset → cases."""
        return {planned_set.name: planned_set.cases for planned_set in self.sets}

    @property
    def answers(self) -> int:
        """Answers to all cases."""
        return sum(planned_set.cases * planned_set.repeats for planned_set in self.sets)


def targets(model: Prediction, together: float = ENOUGH) -> Iterator[float]:
    """Chances for each critical rule that give all of them the chance `together`."""
    critical, allowed_loss = max(1, model.family("critical")), 1 - together
    yield from (together ** (1 / critical), 1 - allowed_loss / critical, 1 - allowed_loss / critical / 3, 0.999)


def tried(changed: Prediction, kind: str, lines: Sequence[str]) -> Change | None:
    """The change, if fresh draws confirm that it makes the policy decidable."""
    changed = replace(changed, seed=changed.seed + 1)
    if changed.approve < ENOUGH + 3 * sqrt(ENOUGH * (1 - ENOUGH) / changed.used):  # not by the luck of these draws
        return None
    return Change(
        kind=kind,
        lines=tuple(lines),
        sets=changed.sets,
        policy=changed.policy,
        approve=changed.approve,
        block=changed.block,
    )
