"""The drafts of a run: who makes them, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qualgate.speculation.lengths import Learned
from qualgate.speculation.propose import Draft, Proposer


class Step(NamedTuple):
    """As `records.DraftStep`, of the request with index `row`."""

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
        """All but the row, by name."""
        return {name: value for name, value in self._asdict().items() if name != "row"}


@dataclass(slots=True)
class Rests:
    """How often a run's drafts rested because they were not expected to pay. passes: in all; because: as found last."""

    passes: int = 0
    rested: int = 0
    because: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """tokens: γ, of each; 0: as many as pay. steps: gets what became of each, and of every pass without one, or None;
    learned: from earlier runs, and by this one; rule: by which they are accepted where tokens are drawn; instead: of a
    cascade the proposers below, any of which may draft for this verifier where that pays better; tasks: of each row,
    for rows of one task fare alike; rests: is told how often nobody drafts"""

    proposer: Proposer
    tokens: int = 0
    steps: list[Step] | None = None
    learned: Learned | None = None
    rule: str = "keyed"
    instead: tuple[Proposer, ...] = ()
    tasks: Sequence[str] = ()
    rests: Rests = field(default_factory=Rests)


def step(
    row: int, position: int, draft: Draft, offered: int, accepted: int, said: int, overlaps: Sequence[float] = ()
) -> Step:
    """Of a draft whose first `offered` tokens were verified and whose first `accepted` were kept. said: tokens that the
    pass said; no more than were accepted where the answer ended with one of them, behind which nothing was tested.
    overlaps: Σ min(p, q) at each that a rule tested; none where there is no such rule."""
    proposed = accepted if said == accepted else offered
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
