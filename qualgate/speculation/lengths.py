"""How many tokens a model is to draft (γ): chosen for each pass, from what drafts cost and how they fared.

A draft of γ tokens for each of n sequences takes γ passes of the draft model, and adds γ rows a sequence to the
target's. Chosen is the γ of most expected tokens a second; where that is none, a trial is made now and then, which
finds out whether drafts pay again.
"""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.speculation.control import Acceptance, Costs, PassCost
from qualgate.speculation.propose import Draft
from qualgate.speculation.text import MOST_MATCHED

TRIAL = 2  # tokens
TRIALS = 0.01  # of all seconds that trials may take
BEGINNING = 2  # tokens of the first drafts; each token whose fate was seen lets the next be one longer
UNSEEN = PassCost(fixed=3e-4, sequence=3e-5, row=3e-5)  # of the draft, beside `control.UNSEEN` of its target


class Lengths:
    """γ of the drafts of one proposer. acceptance, costs: what the run learns, of its drafts and of target passes."""

    def __init__(self, kind: str, acceptance: Acceptance, costs: Costs) -> None:
        self._kind, self._acceptance, self._costs = kind, acceptance, costs
        self._draft = Costs(UNSEEN)
        self._spent = self._tried = 0.0  # seconds
        self._trial = False
        self._asked = 0  # tokens that were drafted so far

    def choose(self, sequences: int, most: int) -> int:
        """γ in 0..most, in a pass that so many sequences share."""
        most = min(most, BEGINNING + self._asked // max(1, sequences))
        chances = self._acceptance.chances(Draft((0,) * most, self._kind, MOST_MATCHED))
        found = best_length(chances, self._costs.now, self._draft.now, sequences)
        self._trial = not found and self._tried + self._extra(sequences) <= TRIALS * self._spent
        return TRIAL if self._trial else found

    def drafted(self, lengths: Sequence[int], seconds: float) -> None:
        """Drafts of such lengths were made in `seconds`, all together."""
        self._spent += seconds
        self._asked += sum(lengths)
        if self._trial:
            self._tried += self._extra(len(lengths))
        if steps := max(lengths, default=0):
            self._draft.observe(len(lengths), len(lengths), seconds / steps)

    def passed(self, seconds: float) -> None:
        """A pass of the target took so long."""
        self._spent += seconds

    def _extra(self, sequences: int) -> float:
        """Seconds that a trial takes."""
        return TRIAL * (self._draft.now.seconds(sequences, sequences) + self._costs.now.row * sequences)


def best_length(chances: Sequence[float], target: PassCost, draft: PassCost, sequences: int) -> int:
    """The γ in 0..len(chances) of most expected tokens a second, of equals the smaller.

    S(γ) / S(0), with S = (1 + Σ products of the first chances) / (v(1 + γ) + γ c) as in Leviathan et al. (2211.17192,
    theorem 3.8), for chances that differ by place and passes whose cost grows with their rows.
    """
    best, rate = 0, 1 / target.seconds(sequences, sequences)
    reached, tokens = 1.0, 1.0
    for count, chance in enumerate(chances, 1):
        reached *= chance
        tokens += reached
        drafting = count * draft.seconds(sequences, sequences)
        now = tokens / (target.seconds(sequences, sequences * (1 + count)) + drafting)
        if now > rate:
            best, rate = count, now
    return best
