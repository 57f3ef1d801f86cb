"""Answers by speculation, as the engine makes them, of models small enough to enumerate: their law, exactly.

It is found in two ways. `whole_law` takes an answer at once, from its first chance to its last, with the proposers that
a run has for that long and the keys by which it draws. `answers_law` adds up rounds, and rounds of rounds, each
enumerated by itself and alike ones once: that chances of one are independent of another's is what the first way shows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import fsum

import torch

from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.rules import Rule
from tests.verification.lossless.chances import Enumerated, Numbers, every_way, law
from tests.verification.lossless.constrained import Constrained
from tests.verification.lossless.drafting import PROMPT, Drafting, Laws
from tests.verification.lossless.models import Model, Tokens
from tests.verification.lossless.reading import handed

Target = Model | Constrained


class Rounds(dict[Hashable, dict[Tokens, float]]):
    """Laws of rounds of one target and rule, by the text before them and the draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculated:
    """How answers are made. tokens: γ; rule: one of `rules.RULES`, or what was made of it; chance: in which way numbers
    are known; rounds: laws those that were enumerated, of this target and rule alone."""

    target: Target
    drafting: Drafting
    rule: Rule
    tokens: int = 3
    chance: type[Enumerated] = Enumerated
    rounds: Rounds = field(default_factory=Rounds, repr=False)

    def whole_law(self, length: int) -> tuple[dict[Tokens, float], bool]:
        """(the law of answers of so many tokens, whether any number was drawn twice), an answer at once."""
        ways: dict[Tokens, list[float]] = {}
        reused = False
        for said, numbers in every_way(lambda chance: self._answer(chance.numbers, length)):
            ways.setdefault(said, []).append(numbers.probability)
            reused |= numbers.reused
        return {said: fsum(some) for said, some in ways.items()}, reused

    def answers_law(self, length: int) -> tuple[dict[Tokens, float], float]:
        """(the law of answers of so many tokens, how many of them are drafts' in the mean), by rounds that are
        enumerated alone."""
        found: dict[Tokens, float] = {}
        accepted: list[float] = []
        going: dict[Tokens, float] = {(): 1.0}
        drafts: dict[Hashable, Laws] = {}
        while going:
            said, reached = min(going.items(), key=lambda one: len(one[0]))
            del going[said]
            asked = (said[-1:] if self.drafting.by_last else said), self._most(said, length)
            if asked not in drafts:
                drafts[asked] = self.drafting.drafts(said, asked[1])
            for key, (draft, chance) in drafts[asked].items():
                for tokens, probability in self._round(said, key, draft).items():
                    text = (*said, *tokens)
                    into = found if len(text) == length else going
                    into[text] = into.get(text, 0.0) + reached * chance * probability
                    accepted.append(reached * chance * probability * (len(tokens) - 1))
        return found, fsum(accepted)

    def verified(self, behind: torch.Tensor, draft: Draft, chance: Enumerated) -> Tokens:
        """What one round says. behind: what the target gives behind each beginning of the draft."""
        got = self.rule(behind, draft.tokens, draft.drawn_from, chance)
        assert got.tokens[: got.count] == draft.tokens[: got.count], "what is accepted is the draft's"
        assert len(got.tokens) == got.count + 1, "one token more than was accepted is said"
        return got.tokens

    def behind(self, target: Target, said: Tokens, draft: Draft) -> torch.Tensor:
        """float64 [drafted + 1, vocabulary]. target: as it runs."""
        return target.behind(said, draft.tokens)

    def _round(self, said: Tokens, key: Hashable, draft: Draft) -> dict[Tokens, float]:
        known = (said[-1:] if self.target.by_last else said), key
        if known not in self.rounds:
            behind = self.behind(self.target.begun(), said, draft)
            self.rounds[known] = law(lambda chance: self.verified(behind, draft, chance))
        return self.rounds[known]

    def _answer(self, numbers: Numbers, length: int) -> Tokens:
        proposer, target = self.drafting.begun(numbers, self.chance), self.target.begun()
        said: Tokens = ()
        handed(proposer, PROMPT[:-1], 0)
        while len(said) < length:
            most, draft, round = self._most(said, length), NO_DRAFT, (len(said),)
            if most:
                [draft] = proposer.propose([DraftRequest(0, PROMPT, said, most, round)])
            handed(proposer, (*PROMPT, *said, *draft.tokens), len(PROMPT) + len(said) - 1)
            chance = self.chance(seed=0, case=0, round=round, numbers=numbers)
            said = (*said, *self.verified(self.behind(target, said, draft), draft, chance))
        proposer.ended(0)
        return said

    def _most(self, said: Tokens, length: int) -> int:
        """Tokens of a draft: the limit's last one is the target's own in any case."""
        return min(self.tokens, length - len(said) - 1)
