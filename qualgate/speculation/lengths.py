"""How many tokens a model is to draft (γ), and for which rows: from what drafts cost and how they fared.

A draft of γ tokens for each of n sequences takes γ passes of the draft model, and adds γ rows a sequence to the
target's; and before its first draft a row's prompt is read once more. Chosen is the γ of most expected tokens a second.
Where that is none, and at first, few rows are tried: so what does not pay costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from qualgate.speculation.control import Acceptance, Costs, PassCost
from qualgate.speculation.propose import Asked, Draft
from qualgate.speculation.text import MOST_MATCHED

TRIAL = 2  # tokens
TRIED = 2  # rows of a trial
TRIALS = 0.01  # of all seconds that trials may take
BEGINNING = 2  # tokens of the first drafts; each token whose fate was seen lets the next be one longer
SURE = 24  # tokens whose fate was seen before more rows than TRIED are drafted for
MEMORY = 0.9  # what is known of reading prompts, and of answers' lengths, counts so much at the next
UNSEEN = PassCost(fixed=3e-4, sequence=3e-5, row=3e-5)  # of the draft, beside `control.UNSEEN` of its target


class Lengths:
    """γ of the drafts of one proposer. acceptance, costs: what is learned of its drafts and of its target's passes."""

    def __init__(self, kind: str, acceptance: Acceptance, costs: Costs) -> None:
        self._kind, self._acceptance, self._costs = kind, acceptance, costs
        self._draft = Costs(UNSEEN)
        self._reading = 0.0  # seconds, of a row's prompt
        self._answer = 0.0  # tokens of an answer; 0: none is over yet
        self._spent = self._tried = 0.0  # seconds
        self._trial = False
        self._asked = 0  # tokens that were drafted so far

    def choose(self, sequences: int, most: int) -> int:
        """γ in 0..most, in a pass that so many sequences share."""
        most = min(most, BEGINNING + self._asked // max(1, sequences))
        chances = self._acceptance.chances(Draft((0,) * most, self._kind, MOST_MATCHED))
        reading = self._reading / self._answer if self._answer else 0.0
        found = best_length(chances, self._costs.now, self._draft.now, sequences, reading)
        self._trial = not found and self._tried + self._extra() <= TRIALS * self._spent
        return TRIAL if self._trial else found

    def admitted(self, asked: Sequence[Asked], known: Collection[int]) -> list[Asked]:
        """Those that are drafted for now. known: rows that were before."""
        if self._asked >= SURE and not self._trial:
            return list(asked)
        return sorted(asked, key=lambda one: one.row not in known)[:TRIED]

    def drafted(self, lengths: Sequence[int], fresh: int, seconds: float) -> None:
        """Drafts of such lengths were made in `seconds`, all together; of so many rows the prompt was read."""
        self._spent += seconds
        self._asked += sum(lengths)
        if self._trial:
            self._tried += seconds
        steps = max(lengths, default=0)
        if not fresh and steps:
            self._draft.observe(len(lengths), len(lengths), seconds / steps)
        elif fresh:
            reading = max(0.0, seconds - steps * self._draft.now.seconds(len(lengths), len(lengths))) / fresh
            self._reading = MEMORY * self._reading + (1 - MEMORY) * reading if self._reading else reading

    def passed(self, seconds: float) -> None:
        """A pass of the target took so long."""
        self._spent += seconds

    def answered(self, tokens: int) -> None:
        """An answer is over that had so many."""
        self._answer = MEMORY * self._answer + (1 - MEMORY) * tokens if self._answer else float(tokens)

    def _extra(self) -> float:
        """Seconds that a trial takes."""
        drafting = self._draft.now.seconds(TRIED, TRIED) + self._costs.now.row * TRIED
        return TRIAL * drafting + TRIED * self._reading


class Learned:
    """What a verifier knows of its passes and of the drafts that it is offered: of one run, or of one after another."""

    def __init__(self, proposer: str) -> None:
        self.costs, self.acceptance = Costs(), Acceptance()
        self.lengths = Lengths(proposer, self.acceptance, self.costs)


def best_length(
    chances: Sequence[float], target: PassCost, draft: PassCost, sequences: int, reading: float = 0.0
) -> int:
    """The γ in 0..len(chances) of most expected tokens a second, of equals the smaller. reading: seconds that drafting
    takes for each token besides, whatever γ is, for prompts that are read for it.

    S(γ) / S(0), with S = (1 + Σ products of the first chances) / (v(1 + γ) + γ c) as in Leviathan et al. (2211.17192,
    theorem 3.8), for chances that differ by place and passes whose cost grows with their rows.
    """
    plain = target.seconds(sequences, sequences)
    if not plain > 0:  # nothing is known of it
        return 0
    best, rate = 0, 1 / plain
    reached, tokens = 1.0, 1.0
    for count, chance in enumerate(chances, 1):
        reached *= chance
        tokens += reached
        drafting = count * draft.seconds(sequences, sequences) + sequences * tokens * reading
        now = tokens / (target.seconds(sequences, sequences * (1 + count)) + drafting)
        if now > rate:
            best, rate = count, now
    return best
