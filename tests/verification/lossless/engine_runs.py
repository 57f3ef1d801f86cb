"""Answers drawn by the engine itself, with drafts that are partly right, held against the law of its model's logits.

Engines draw by seeded noise, so a run repeats; that a sound engine is said to be wrong is bounded over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from qualgate.engine.choice import choose_engine, open_engine
from qualgate.engine.loaded import LoadedDraft
from qualgate.engine.proposers import open_proposers
from qualgate.engine.request import Event, Request, Spoken
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.chance import HashedChance
from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from qualgate.engine.steering import Steering
from qualgate.records import DraftSource, Speculation
from tests.verification.lossless.constrained import fresh_mask
from tests.verification.lossless.engine_law import (
    BELOW,
    DRAFT,
    DRAFTED,
    LENGTH,
    OWN,
    PROMPT,
    TARGET,
    VOCABULARY,
    Drawn,
    counted,
    head_shape,
    model,
    offered,
)
from tests.verification.lossless.fits import chance_bound, g_statistic
from tests.verification.lossless.heads import laid_out
from tests.verification.lossless.ways import (
    CASCADE,
    CONSTRAINED,
    HEAD,
    SAMPLINGS,
    SELF,
    TEXTS,
    Way,
)

SIDE_BY_SIDE = Limits(rows=2048, sequences=512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How draws fit their law. of: what is counted; statistic: G, None where something was seen that cannot be; bound:
    of the chance that draws which fit are as far from it, see `chance_bound`."""

    engine: str
    sampling: str
    rule: str
    drafts: str
    of: str
    count: int
    statistic: float | None
    bound: float


def fits(found: Drawn, way: Way) -> list[Fit]:
    """What was drawn, counted in every way."""
    made = []
    for of, seen, expected in counted(found, way.sampling, way.rule, way.drafts):
        statistic = g_statistic(seen, expected)
        bound = chance_bound(statistic, sum(p > 0.0 for p in expected.values()))
        told = None if statistic == inf else statistic
        made.append(Fit(**way._asdict(), of=of, count=sum(seen.values()), statistic=told, bound=bound))
    return made


def drawn(way: Way, answers: int, seed: int) -> Drawn:
    """What the engine answers to one prompt in so many cases, many side by side."""
    said: list[list[int]] = [[] for _ in range(answers)]

    def hear(event: Event) -> None:
        if isinstance(event, Spoken):
            for row, token in zip(event.requests, event.tokens, strict=True):
                said[row].append(token)

    sampling, whole = SAMPLINGS[way.sampling], runs(TARGET)
    requests = [Request(prompt=PROMPT, max_new_tokens=LENGTH)] * answers
    if sampling.penalties or way.sampling == CONSTRAINED:
        masks = [fresh_mask(VOCABULARY) if way.sampling == CONSTRAINED else None for _ in requests]
        steered = [Steering(PROMPT, sampling, mask) for mask in masks]
        requests = [replace(one, steering=how) for one, how in zip(requests, steered, strict=True)]
    draws = Draws(seed=seed, cases=torch.arange(answers), sampling=sampling)
    with ExitStack() as stack:
        choice = replace(whole.choice, kind=way.engine)
        engine: Any = stack.enter_context(open_engine(whole.model, choice, limits=SIDE_BY_SIDE))
        drafts = Drafts(Offers(way.sampling), DRAFTED, [], rule=way.rule)
        if way.drafts != TEXTS:
            arm: Any = SimpleNamespace(**vars(whole) | {"choice": choice, "draft": _drafting(way)})
            drafts, *_ = stack.enter_context(open_proposers(arm, engine, requests, frozenset(), draws))
        engine.run(requests, drafts, hear, draws)
    first = {step.row: step.accepted for step in drafts.steps or () if step.position == 1}
    return Drawn([tuple(tokens) for tokens in said], [first[row] for row in range(answers)])


@cache
def runs(seed: int) -> SimpleNamespace:
    """The model of this seed as an arm has it."""
    whole = model(seed)
    choice = choose_engine(whole)
    assert choice.kind == "plain", choice.because
    return SimpleNamespace(
        model=whole, choice=choice, spec=SimpleNamespace(name="tiny"), footprint=SimpleNamespace(facts={})
    )


def _drafting(way: Way) -> LoadedDraft:
    """Who drafts, as an arm has it loaded."""
    rule: Any = way.rule
    arms: tuple[Any, ...]
    if way.drafts == HEAD:
        spec = Speculation(draft=DraftSource(kind="head"), tokens=DRAFTED, rule=rule)
        return LoadedDraft(spec=spec, arms=(None,), head=laid_out(head_shape()))
    if way.drafts == SELF:
        source, arms = DraftSource(kind="quantize"), (runs(OWN),)
    else:
        under = Speculation(draft=DraftSource(kind="model"), tokens=2) if way.drafts == CASCADE else None
        source, arms = DraftSource(kind="model", under=under), (runs(DRAFT), runs(BELOW))[: 1 + bool(under)]
    return LoadedDraft(spec=Speculation(draft=source, tokens=DRAFTED, rule=rule), arms=arms)


@contextmanager
def keys_reused() -> Iterator[set[tuple[int, ...]]]:
    """The keys of numbers that answer two different questions in the block, filled in while it runs. A draft that waits
    for its pass may be made again: the same questions, by the same numbers."""
    asked, reused = dict[tuple[int, ...], Any](), set[tuple[int, ...]]()
    accepts, token = HashedChance.accepts, HashedChance.token

    def note(chance: HashedChance, question: Any) -> None:
        same = replace(chance)  # whose counter moves instead
        same._drawn = chance._drawn
        key = same.next_key()
        if asked.setdefault(key, question) != question:
            reused.add(key)

    def accepting(chance: HashedChance, probability: float) -> bool:
        note(chance, probability)
        return accepts(chance, probability)

    def drawing(chance: HashedChance, weights: torch.Tensor) -> int:
        note(chance, weights.numpy().tobytes())
        return token(chance, weights)

    with patch.multiple(HashedChance, accepts=accepting, token=drawing):
        yield reused


class Offers:
    """The proposer of `offered`."""

    name = "offers"
    runs_model = False

    def __init__(self, sampling: str) -> None:
        self._sampling = sampling

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(offered(tuple(one.generated), one.most, self._sampling), self.name, 8) for one in asked]

    def ended(self, row: int) -> None: ...
