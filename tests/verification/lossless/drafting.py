"""Who drafts: the product's own proposers, each as it runs, over models small enough to enumerate.

A level is the engine's `DraftModel` over a decoder that says what a model of `models` does, and looks whether what it
is shown is one text; what draws is enumerated. Whole answers keep their proposer, and a cascade is one within another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import torch

from qualgate.engine.draft_blocks import OwnBlocks
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws, Said
from qualgate.engine.speculation.known import Known, Sources
from qualgate.engine.speculation.ngram import Ngram, Suffix
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest, Proposer
from qualgate.engine.speculation.steps import Drafts
from qualgate.records import Sampling
from tests.engine.fake_decoder import FakeDecoder
from tests.verification.lossless.chances import Enumerated, Numbers, every_way
from tests.verification.lossless.models import Model, Tokens

PROMPT = (1, 0)
BLOCKS = 4  # of keys and values: an answer's
Laws = dict[tuple[Tokens, bytes], tuple[Draft, float]]  # drafts with their probabilities, alike ones once


class Drafting(Protocol):
    """Who drafts, and the law of a draft. by_last: it depends on the last token of an answer alone."""

    @property
    def by_last(self) -> bool: ...

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> Proposer:
        """As it runs, for one answer whose numbers fall so; chance: in which way these are known."""
        ...

    def drafts(self, said: Tokens, most: int) -> Laws:
        """Every draft of at most `most` tokens that it may make, with its probability."""
        ...


class _Undrawn(Draws):
    """By a rule nothing is drawn by noise."""

    def said(self, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
        """Whether logits are numbers."""
        nothing = torch.zeros(len(logits), dtype=torch.int64)
        return Said(nothing, nothing, nothing, logits.isfinite().all(-1))


UNDRAWN = _Undrawn(seed=0, cases=torch.zeros(1, dtype=torch.int64), sampling=Sampling(temperature=1.0))


@dataclass(frozen=True, slots=True)
class Enumerating(Ruling):
    """A rule at work in a run whose numbers fall in one way. by: what takes the place of `cascade.drafted`."""

    numbers: Numbers
    chance: type[Enumerated] = Enumerated
    by: Callable[..., Draft] | None = None

    def drafted(
        self, row: int, round: tuple[int, ...], below: Draft, logits: torch.Tensor, kind: str
    ) -> tuple[Draft, list[float]]:
        if self.by is None:
            return Ruling.drafted(self, row, round, below, logits, kind)
        return self.by(self.rule, self._probabilities(logits), below, self._chance(row, round), kind), []

    def _chance(self, row: int, round: tuple[int, ...]) -> Enumerated:
        return self.chance(seed=0, case=0, round=round, numbers=self.numbers)


class ModelDecoder(FakeDecoder):
    """What a pass of a model says, as log-probs. behind: texts that are drafted for now."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model, self.behind = model, list[Tokens]()

    def logits(self, texts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        for text in texts:
            known = any(text[: len(one)] == one[: len(text)] for one in self.behind)
            assert known, "a draft goes on from another text than the one that was said"
        return self._model.logits([text[len(PROMPT) :] for text in texts])


@cache
def telling(made: type[DraftModel]) -> type[DraftModel]:
    """As `made`, and its decoder knows for which texts it drafts."""

    class Telling(made):
        def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
            assert isinstance(self._decoder, ModelDecoder)
            self._decoder.behind = [(*one.prompt, *one.generated) for one in asked]
            return super().propose(asked)

    return Telling


@dataclass(slots=True)
class StatesAreLogits:
    """An output head."""

    vocabulary: int

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The states."""
        return states


@dataclass(frozen=True, slots=True)
class Level:
    """A model that drafts: it draws one token a pass, or by `rule` behind drafts of at most `tokens` by `below`; or it
    says the likeliest, rule "".

    made, blocks: the engine's, or what was made of it; drafted: likewise of `cascade.drafted`.
    """

    model: Model
    rule: str = "speculative_sampling"
    below: Drafting | None = None
    tokens: int = 2
    drafted: Callable[..., Draft] | None = None
    made: type[DraftModel] = DraftModel
    blocks: type[OwnBlocks] = OwnBlocks
    _known: dict[Any, Laws] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def by_last(self) -> bool:
        return self.below is None or self.below.by_last

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> DraftModel:
        below = None if self.below is None else self.below.begun(numbers, chance)
        return self._made(numbers, chance, below)

    def drafts(self, said: Tokens, most: int) -> Laws:
        """See `Drafting`. Pass by pass, for what a pass says depends on nothing but the text before it."""
        key = (said[-1:] if self.by_last else said), most
        if key not in self._known:
            self._known[key] = found = Laws()
            if not most:
                add(found, NO_DRAFT, 1.0)
            for draft, probability in self._pass(said, most) if most else ():
                for behind, chance in self.drafts((*said, *draft.tokens), most - len(draft.tokens)).values():
                    add(found, _joined(draft, behind), probability * chance)
        return self._known[key]

    def _pass(self, said: Tokens, most: int) -> list[tuple[Draft, float]]:
        """What its next pass may say, with every draft that may have been made for it."""
        under: Laws = {}
        add(under, NO_DRAFT, 1.0)
        if self.below is not None and most > 1:
            under = self.below.drafts(said, min(self.tokens, most - 1))
        return [
            (draft, chance * numbers.probability)
            for below, chance in under.values()
            for draft, numbers in every_way(lambda chance, below=below: self._said(said, most, below, chance.numbers))
        ]

    def _said(self, said: Tokens, most: int, below: Draft, numbers: Numbers) -> Draft:
        proposer: Any = self._made(numbers, Enumerated, None if self.below is None else _Given(below))
        proposer.course = _OneStep()
        [draft] = proposer.propose([DraftRequest(0, PROMPT, said, most)])
        return draft

    def _made(self, numbers: Numbers, chance: type[Enumerated], below: Proposer | None) -> DraftModel:
        draws = Enumerating(self.rule, UNDRAWN, numbers, chance, self.drafted) if self.rule else None
        return telling(self.made)(
            "level",
            ModelDecoder(self.model),
            StatesAreLogits(self.model.vocabulary),
            blocks=self.blocks(BLOCKS),
            threads=1,
            stop_ids=frozenset(),
            draws=draws,
            under=None if below is None else Drafts(below, self.tokens),
        )


class _OneStep:
    """A course of drafts that are over with their first step."""

    def stepped(self, *_: Any) -> None:
        """Nothing is learned."""

    def goes_on(self, *_: Any) -> tuple[()]:
        """Nobody."""
        return ()


@dataclass(frozen=True, slots=True)
class _Given:
    """Drafts what is given, all that is asked for."""

    draft: Draft
    name = "given"
    runs_model = False

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        assert all(len(self.draft.tokens) <= one.most for one in asked), "a level asks for fewer tokens than it may"
        return [self.draft]

    def ended(self, row: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Around:
    """Drafts by another proposer, otherwise than it does."""

    inner: Proposer
    by: Callable[[Proposer, Sequence[DraftRequest]], list[Draft]]
    runs_model: bool = True
    name: str = "around"

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        return self.by(self.inner, asked)

    def ended(self, row: int) -> None:
        self.inner.ended(row)


@dataclass(frozen=True, slots=True)
class Found:
    """A proposer of texts, or any other that draws by no numbers of its answer."""

    make: Callable[[], Proposer]
    by_last: bool = False

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> Proposer:
        return self.make()

    def drafts(self, said: Tokens, most: int) -> Laws:
        found: Laws = {}
        add(found, self.make().propose([DraftRequest(0, PROMPT, said, most)])[0] if most else NO_DRAFT, 1.0)
        return found


def texts(vocabulary: int) -> dict[str, Found]:
    """The product's proposers of texts. The prompt that an n-gram is looked for in holds every pair, so that something
    is always found."""
    pairs = [token for a in range(vocabulary) for b in range(vocabulary) for token in (a, b, (a + 2 * b) % vocabulary)]
    answer = tuple((place * place + 1) % vocabulary for place in range(9))

    def asking(inner: Proposer, asked: Sequence[DraftRequest]) -> list[Draft]:
        return inner.propose([replace(one, prompt=pairs) for one in asked])

    def suffix() -> Suffix:
        found = Suffix()
        found.propose([DraftRequest(1, pairs, answer, 1)])
        found.ended(1)
        return found

    return {
        "known answer": Found(lambda: Known([Sources(baseline=answer)])),
        "n-gram": Found(lambda: Around(Ngram(), asking, runs_model=False)),
        "suffix": Found(suffix),
    }


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

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> Proposer:
        return Around(
            self.inner.begun(numbers, chance), lambda inner, asked: [self.cut(draft) for draft in inner.propose(asked)]
        )

    def drafts(self, said: Tokens, most: int) -> Laws:
        found = Laws()
        for draft, probability in self.inner.drafts(said, most).values():
            add(found, self.cut(draft), probability)
        return found

    def cut(self, draft: Draft) -> Draft:
        """What of it is offered."""
        if draft.drawn_from is None:
            return draft
        sure = draft.drawn_from.gather(-1, torch.tensor(draft.tokens)[:, None])[:, 0] >= self.low
        count = [*sure.tolist(), False].index(False)
        return draft.cut(count + self.keeping)


@dataclass(frozen=True, slots=True)
class Resting:
    """It is not asked behind an odd number of tokens, as where a pass goes by without a draft."""

    inner: Drafting
    by_last: bool = False

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> Proposer:
        return Around(
            self.inner.begun(numbers, chance),
            lambda inner, asked: [
                inner.propose([one])[0] if len(one.generated) % 2 == 0 else NO_DRAFT for one in asked
            ],
        )

    def drafts(self, said: Tokens, most: int) -> Laws:
        return self.inner.drafts(said, 0 if len(said) % 2 else most)


def _joined(first: Draft, second: Draft) -> Draft:
    if not (first.tokens and second.tokens):
        return first if first.tokens else second
    drawn_from = None
    if first.drawn_from is not None and second.drawn_from is not None:
        drawn_from = torch.cat([first.drawn_from, second.drawn_from])
    return Draft((*first.tokens, *second.tokens), "level", 8, drawn_from)


def add(laws: Laws, draft: Draft, probability: float) -> None:
    """One more way to a draft."""
    key = draft.tokens, b"" if draft.drawn_from is None else draft.drawn_from.numpy().tobytes()
    laws[key] = draft, probability + laws.get(key, (draft, 0.0))[1]
