"""Answers by speculation, as the engine makes them, of models small enough to enumerate: their law, exactly.

It is found in two ways. `whole_law` takes an answer at once, from its first chance to its last, with the keys by which
a run draws. `answers_law` adds up rounds, and rounds of rounds, each enumerated by itself and alike ones once: that
chances of one are independent of another's is what the first way shows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import fsum

from qualgate.speculation.propose import Draft
from qualgate.speculation.rules import Rule
from tests.verification.lossless.chances import Enumerated, every_way, law
from tests.verification.lossless.drafting import Drafting, Laws
from tests.verification.lossless.models import Model, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculated:
    """How answers are made. tokens: γ; rule: one of `rules.RULES`, or what was made of it."""

    target: Model
    drafting: Drafting
    rule: Rule
    tokens: int = 3

    def whole_law(self, length: int) -> tuple[dict[Tokens, float], bool]:
        """(the law of answers of so many tokens, whether any number was drawn twice), an answer at once."""
        ways: dict[Tokens, list[float]] = {}
        reused = False
        for said, numbers in every_way(lambda chance: self._answer(chance, length)):
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
        rounds: dict[Hashable, dict[Tokens, float]] = {}
        while going:
            said, reached = min(going.items(), key=lambda one: len(one[0]))
            del going[said]
            asked = (said[-1:] if self.drafting.by_last else said), self._most(said, length)
            if asked not in drafts:
                drafts[asked] = self.drafting.drafts(said, asked[1])
            for key, (draft, chance) in drafts[asked].items():
                if (said[-1:], key) not in rounds:
                    rounds[said[-1:], key] = law(lambda c, said=said, draft=draft: self.verified(said, draft, c))
                for tokens, probability in rounds[said[-1:], key].items():
                    text = (*said, *tokens)
                    into = found if len(text) == length else going
                    into[text] = into.get(text, 0.0) + reached * chance * probability
                    accepted.append(reached * chance * probability * (len(tokens) - 1))
        return found, fsum(accepted)

    def verified(self, said: Tokens, draft: Draft, chance: Enumerated) -> Tokens:
        """What one round says."""
        got = self.rule(self.target.behind(said, draft.tokens), draft.tokens, draft.drawn_from, chance)
        assert got.tokens[: got.count] == draft.tokens[: got.count], "what is accepted is the draft's"
        assert len(got.tokens) == got.count + 1, "one token more than was accepted is said"
        return got.tokens

    def round_of(self, chance: Enumerated, said: Tokens) -> Enumerated:
        """The chances of a round, keyed as in a run."""
        return chance.within(len(said))

    def _answer(self, chance: Enumerated, length: int) -> Tokens:
        said: Tokens = ()
        while len(said) < length:
            of_round = self.round_of(chance, said)
            draft = self.drafting.draft(said, self._most(said, length), of_round)
            said = (*said, *self.verified(said, draft, of_round))
        return said

    def _most(self, said: Tokens, length: int) -> int:
        """Tokens of a draft: the limit's last one is the target's own in any case."""
        return min(self.tokens, length - len(said) - 1)
