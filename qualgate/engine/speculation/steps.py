"""The drafts of a run: who makes them, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qualgate.engine.speculation.lengths import Learned
from qualgate.engine.speculation.propose import Draft, Proposer


class Step(NamedTuple):
    """A `records.DraftStep` of the request with index `row`."""

    row: int
    position: int
    proposed: int
    accepted: int
    rejected: int
    unverified: int
    proposer: str
    pass_number: int | None = None
    sequences: int | None = None
    overlap: float | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """All fields but the row, by name."""
        return {name: value for name, value in self._asdict().items() if name != "row"}


@dataclass(slots=True)
class Rests:
    """How often drafting rested because it was not expected to pay. passes: in all; because: the last reason."""

    passes: int = 0
    rested: int = 0
    because: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """How a run drafts. tokens: γ, of each; 0: adaptive. steps: receives what became of each draft, and of every pass
    without one, or None; learned: from earlier runs, and by this one; rule: of acceptance, if tokens are drawn;
    instead: the proposers below in a cascade, any of which may draft for this verifier if that pays more; tasks: of
    each row, as rows of one task behave alike; rests: counts passes without drafts."""

    proposer: Proposer
    tokens: int = 0
    steps: list[Step] | None = None
    learned: Learned | None = None
    rule: str = "keyed"
    instead: tuple[Proposer, ...] = ()
    tasks: Sequence[str] = ()
    rests: Rests = field(default_factory=Rests)


def step(
    row: int, position: int, draft: Draft, offered: int, accepted: int, generated: int, overlaps: Sequence[float] = ()
) -> Step:
    """Return the step of a draft whose first `offered` tokens were verified and first `accepted` were kept. generated:
    tokens of the pass; equal to `accepted` if one of them ended the answer, behind which nothing was tested. overlaps:
    Σ min(p, q) of each token that a rule tested."""
    proposed = accepted if generated == accepted else offered
    rejected = int(accepted < proposed)
    return Step(
        row=row,
        position=position,
        proposed=proposed,
        accepted=accepted,
        rejected=rejected,
        unverified=len(draft.tokens) - proposed,
        proposer=draft.kind,
        overlap=sum(overlaps[: accepted + rejected], 0.0) if overlaps else None,
    )
