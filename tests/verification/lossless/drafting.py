"""Who drafts: the product's own proposers of texts, and models that draw, at any level of a cascade.

The loop of a level is that of the engine's draft model, for one row; what a pass of it says is the product's
`cascade.drafted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from qualgate.speculation import cascade
from qualgate.speculation.known import Known, Sources
from qualgate.speculation.ngram import Ngram, Suffix
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft, Proposer
from tests.verification.lossless.chances import Enumerated, every_way
from tests.verification.lossless.models import Model, Tokens

Laws = dict[tuple[Tokens, bytes], tuple[Draft, float]]  # drafts with their probabilities, alike ones once


class Drafting(Protocol):
    """Who drafts, as it drafts in a run, and the law of that. by_last: its law depends on the last token alone."""

    @property
    def by_last(self) -> bool: ...

    def draft(self, said: Tokens, most: int, chance: Enumerated) -> Draft:
        """At most `most` tokens."""
        ...

    def drafts(self, said: Tokens, most: int) -> Laws:
        """Every draft it may make, with its probability."""
        ...


@dataclass(frozen=True, slots=True)
class OneHot:
    """Drafts that are not drawn. tokens: what it says behind a text, at most so many."""

    tokens: Callable[[Tokens, int], Tokens]
    by_last: bool = False

    def draft(self, said: Tokens, most: int, chance: Enumerated | None = None) -> Draft:
        """See `Drafting`."""
        tokens = self.tokens(said, most) if most else ()
        return Draft(tokens, "one-hot") if tokens else NO_DRAFT

    def drafts(self, said: Tokens, most: int) -> Laws:
        """See `Drafting`."""
        found: Laws = {}
        _add(found, self.draft(said, most), 1.0)
        return found


def likeliest(model: Model) -> OneHot:
    """Of a model that drafts greedily."""

    def tokens(said: Tokens, most: int) -> Tokens:
        text = said
        for _ in range(most):
            text = (*text, int(model.after(text).argmax()))
        return text[len(said) :]

    return OneHot(tokens, by_last=True)


def texts(vocabulary: int) -> dict[str, OneHot]:
    """The product's proposers of texts. Each call has one of its own, so that it keeps nothing of other answers; the
    prompt holds every pair, so that something is always found."""
    prompt = [token for a in range(vocabulary) for b in range(vocabulary) for token in (a, b, (a + 2 * b) % vocabulary)]
    answer = tuple((place * place + 1) % vocabulary for place in range(9))

    def asking(make: Callable[[], Proposer], prompt: list[int]) -> OneHot:
        return OneHot(lambda said, most: make().propose([Asked(0, prompt, said, most)])[0].tokens)

    def suffix() -> Suffix:
        found = Suffix()
        found.propose([Asked(1, prompt, answer, 1)])
        found.ended(1)
        return found

    return {
        "known answer": asking(lambda: Known([Sources(baseline=answer)]), []),
        "n-gram": asking(Ngram, prompt),
        "suffix": asking(suffix, []),
    }


@dataclass(frozen=True, slots=True)
class Level:
    """A model that draws: one token a pass, or by `rule` behind drafts of at most `tokens` by `below`.

    drafted: `cascade.drafted`, or what was made of it.
    """

    model: Model
    rule: str = "speculative_sampling"
    below: Drafting | None = None
    tokens: int = 2
    drafted: Callable[..., Draft] = cascade.drafted

    @property
    def by_last(self) -> bool:
        return self.below is None or self.below.by_last

    def draft(self, said: Tokens, most: int, chance: Enumerated) -> Draft:
        """See `Drafting`."""
        found, call = NO_DRAFT, 0
        while len(found.tokens) < most:
            of_call, text = chance.within(call), (*said, *found.tokens)
            below = NO_DRAFT if self.below is None else self.below.draft(text, self._room(found, most), of_call)
            found = _joined(found, self._pass(text, below, of_call))
            call += 1
        return found

    def drafts(self, said: Tokens, most: int) -> Laws:
        """See `Drafting`."""
        done, going = Laws(), Laws()
        _add(going, NO_DRAFT, 1.0)
        while going:
            before, going = going, Laws()
            for found, probability in before.values():
                if len(found.tokens) >= most:
                    _add(done, found, probability)
                    continue
                for behind, chance in self._behind((*said, *found.tokens), self._room(found, most)):
                    _add(going, _joined(found, behind), probability * chance)
        return done

    def _behind(self, text: Tokens, room: int) -> list[tuple[Draft, float]]:
        """Of one pass behind a text."""
        under = [(NO_DRAFT, 1.0)] if self.below is None else self.below.drafts(text, room).values()
        return [
            (said, chance * numbers.probability)
            for below, chance in under
            for said, numbers in every_way(lambda chance, below=below: self._pass(text, below, chance))
        ]

    def _pass(self, text: Tokens, below: Draft, chance: Enumerated) -> Draft:
        return self.drafted(self.rule, self.model.behind(text, below.tokens), below, chance, "level")

    def _room(self, found: Draft, most: int) -> int:
        return min(self.tokens, most - len(found.tokens) - 1)


@dataclass(frozen=True, slots=True)
class Wary:
    """Drafts that end with the first token of a low probability. keeping: that token is verified too. It may not be
    left out: tokens that are left out because of what they are were drawn from something else than they seem."""

    inner: Drafting
    keeping: bool
    low: float = 0.4

    @property
    def by_last(self) -> bool:
        return self.inner.by_last

    def draft(self, said: Tokens, most: int, chance: Enumerated) -> Draft:
        """See `Drafting`."""
        return self._cut(self.inner.draft(said, most, chance))

    def drafts(self, said: Tokens, most: int) -> Laws:
        """See `Drafting`."""
        found = Laws()
        for draft, probability in self.inner.drafts(said, most).values():
            _add(found, self._cut(draft), probability)
        return found

    def _cut(self, draft: Draft) -> Draft:
        if draft.drawn_from is None:
            return draft
        sure = draft.drawn_from.gather(-1, torch.tensor(draft.tokens)[:, None])[:, 0] >= self.low
        count = [*sure.tolist(), False].index(False)
        return draft.cut(count + self.keeping)


def _joined(first: Draft, second: Draft) -> Draft:
    if not first.tokens:
        return second
    assert first.drawn_from is not None
    assert second.drawn_from is not None
    return Draft((*first.tokens, *second.tokens), "level", 8, torch.cat([first.drawn_from, second.drawn_from]))


def _add(laws: Laws, draft: Draft, probability: float) -> None:
    key = draft.tokens, b"" if draft.drawn_from is None else draft.drawn_from.numpy().tobytes()
    laws[key] = draft, probability + laws.get(key, (draft, 0.0))[1]
