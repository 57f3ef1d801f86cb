"""Answers drawn by the engine itself, with drafts that are partly right, held against the law of its model's logits.

Engines draw by seeded noise, so a run repeats; that a sound engine is said to be wrong is bounded over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from qualgate.engine.draft_model import DraftModel
from qualgate.engine.request import Event, Request, Spoken
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import Limits
from qualgate.engine.steering import Steering
from qualgate.records import Sampling
from qualgate.speculation.chance import HashedChance
from qualgate.speculation.propose import Asked, Draft, Proposer
from qualgate.speculation.steps import Drafts, Step
from tests.engine.engines import PACKED, Kind, laid_out, opened
from tests.verification.lossless.engine_law import (
    BELOW,
    CASCADE,
    DRAFT,
    DRAFTED,
    LENGTH,
    MODEL,
    PROMPT,
    TARGET,
    TEXTS,
    Drawn,
    counted,
    model,
    offered,
)
from tests.verification.lossless.fits import chance_bound, g_statistic

CUT = {"temperature 1": Sampling(temperature=1.0), "top-k 3 at 0.7": Sampling(temperature=0.7, top_k=3)}
PENALIZED = "penalized"
_PENALTIES = Sampling(temperature=1.0, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.6)
SAMPLINGS = {**CUT, PENALIZED: _PENALTIES}
SIDE_BY_SIDE = Limits(rows=2048, sequences=512)


class Way(NamedTuple):
    """How answers are drawn: by which engine, sampling and rule, and who drafts."""

    engine: Kind
    sampling: str
    rule: str
    drafts: str


RESIDUAL: list[tuple[Kind, str, str]] = [  # engine, sampling, who drafts
    ("packed", "temperature 1", TEXTS),
    ("plain", "top-k 3 at 0.7", MODEL),
    ("plain", "temperature 1", CASCADE),
]
WAYS = [
    *(Way(kind, sampling, "keyed", TEXTS) for kind, sampling in product(PACKED, CUT)),
    Way("plain", PENALIZED, "keyed", TEXTS),
    Way("packed", PENALIZED, "speculative_sampling", MODEL),
    Way("plain", "temperature 1", "keyed", CASCADE),
    *(
        Way(kind, sampling, rule, drafts)
        for rule in ("speculative_sampling", "block_verification")
        for kind, sampling, drafts in RESIDUAL
    ),
]


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
    for of, seen, expected in counted(found, SAMPLINGS[way.sampling], way.rule, way.drafts):
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

    sampling = SAMPLINGS[way.sampling]
    requests = [Request(prompt=PROMPT, max_new_tokens=LENGTH)] * answers
    if sampling.penalties:
        requests = [replace(request, steering=Steering(PROMPT, sampling)) for request in requests]
    draws = Draws(seed=seed, cases=torch.arange(answers), sampling=sampling)
    steps: list[Step] = []
    with ExitStack() as stack:
        engine = stack.enter_context(opened(way.engine, laid_out(model(TARGET)), limits=SIDE_BY_SIDE))
        proposer = _proposer(stack, way, draws)
        engine.run(requests, Drafts(proposer, DRAFTED, steps, rule=way.rule), hear, draws)
    first = {step.row: step.accepted for step in steps if step.position == 1}
    return Drawn([tuple(tokens) for tokens in said], [first[row] for row in range(answers)])


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


def _proposer(stack: ExitStack, way: Way, draws: Draws) -> Proposer:
    if way.drafts == TEXTS:
        return Offers()
    by = draws if way.rule == "keyed" else Ruling(way.rule, draws)

    def drafting(seed: int, under: Drafts | None) -> DraftModel:
        engine: Any = stack.enter_context(opened(way.engine, laid_out(model(seed))))
        return DraftModel(
            "model", engine._decoder, engine.head, blocks=4096, threads=1, stop_ids=frozenset(), draws=by, under=under
        )

    return drafting(DRAFT, None if way.drafts == MODEL else Drafts(drafting(BELOW, None), 2, []))


class Offers:
    """The proposer of `offered`."""

    name = "offers"
    runs_model = False

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See `Proposer`."""
        return [Draft(offered(tuple(one.said), one.most), self.name, 8) for one in asked]

    def ended(self, row: int) -> None:
        """See `Proposer`."""
