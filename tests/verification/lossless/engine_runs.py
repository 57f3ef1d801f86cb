"""Answers drawn by the engine itself, with drafts that are partly right, against the law that the model's own logits
give them: their n-grams, how much of a draft is accepted, and how often each of its tokens is.

Engines draw by seeded noise, so a run repeats; that a sound engine is said to be wrong is bounded over seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import inf, prod
from typing import Any

import torch

from qualgate.engine.request import Event, Request, Spoken
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import Limits
from qualgate.records import Sampling
from qualgate.speculation.propose import Asked, Draft
from qualgate.speculation.rules import RULES
from qualgate.speculation.steps import Drafts, Step
from tests.engine.engines import PACKED, Kind, laid_out, opened
from tests.engine.tiny_architectures import tiny
from tests.verification.lossless.chances import law
from tests.verification.lossless.fits import chance_bound, g_statistic
from tests.verification.lossless.models import Tokens

VOCABULARY, LENGTH, DRAFTED = 4, 5, 3  # tokens: of the model, of an answer, of its first draft
PROMPT = (1, 2, 3, 0, 1)
SAMPLINGS = {"temperature 1": Sampling(temperature=1.0), "top-k 3 at 0.7": Sampling(temperature=0.7, top_k=3)}
RULES_OF_THE_ENGINE = ("keyed",)  # one that the engine gets is named here, and handed over in `drawn`
SIDE_BY_SIDE = Limits(rows=2048, sequences=512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How draws fit their law. of: what is counted; statistic: G, None where something was seen that cannot be; bound:
    of the chance that draws which fit are as far from it, see `chance_bound`."""

    engine: str
    sampling: str
    rule: str
    of: str
    count: int
    statistic: float | None
    bound: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """said: answers; accepted: of each, how many tokens of its first draft, which is made behind its first token."""

    said: list[Tokens]
    accepted: list[int]


def every_fit(answers: int, seed: int = 1) -> Iterator[Fit]:
    """Of each engine of packed passes, sampling and rule, over so many answers."""
    for kind, sampling, rule in product(PACKED, SAMPLINGS, RULES_OF_THE_ENGINE):
        yield from fits(drawn(kind, sampling, rule, answers, seed), kind, sampling, rule)


def fits(found: Drawn, kind: Kind, sampling: str, rule: str) -> list[Fit]:
    """What was drawn, counted in every way."""
    made = []
    for of, seen, expected in _counted(found, SAMPLINGS[sampling], rule):
        statistic = g_statistic(seen, expected)
        bound = chance_bound(statistic, sum(p > 0.0 for p in expected.values()))
        count = sum(seen.values())
        told = None if statistic == inf else statistic
        made.append(Fit(engine=kind, sampling=sampling, rule=rule, of=of, count=count, statistic=told, bound=bound))
    return made


def drawn(kind: Kind, sampling: str, rule: str, answers: int, seed: int) -> Drawn:
    """What the engine answers to one prompt in so many cases, many side by side."""
    assert rule == "keyed", "the engine has no other"
    said: list[list[int]] = [[] for _ in range(answers)]

    def hear(event: Event) -> None:
        if isinstance(event, Spoken):
            for row, token in zip(event.requests, event.tokens, strict=True):
                said[row].append(token)

    requests = [Request(prompt=PROMPT, max_new_tokens=LENGTH)] * answers
    draws = Draws(seed=seed, cases=torch.arange(answers), sampling=SAMPLINGS[sampling])
    steps: list[Step] = []
    with opened(kind, laid_out(model()), limits=SIDE_BY_SIDE) as engine:
        engine.run(requests, Drafts(Offers(), DRAFTED, steps), hear, draws)
    first = {step.row: step.accepted for step in steps if step.position == 1}
    return Drawn([tuple(tokens) for tokens in said], [first[row] for row in range(answers)])


class Offers:
    """The proposer whose drafts depend on what was said, and are likely and unlikely by turns."""

    name = "offers"
    runs_model = False

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See `Proposer`."""
        return [Draft(offered(tuple(one.said), one.most), self.name, 8) for one in asked]

    def ended(self, row: int) -> None:
        """See `Proposer`."""


@cache
def offered(said: Tokens, most: int) -> Tokens:
    """Behind an even token the likeliest of the model, else the one after it."""
    text = said
    for _ in range(most):
        text = (*text, (int(logits()[text].argmax()) + text[-1] % 2) % VOCABULARY)
    return text[len(said) :]


def model() -> Any:
    """One layer of llama's; transformers' own modules."""
    return tiny("llama", seed=3, vocab_size=VOCABULARY, intermediate_size=32, num_hidden_layers=1)


@cache
def logits() -> dict[Tokens, torch.Tensor]:
    """Behind every beginning of an answer, float64 [vocabulary], as transformers computes them."""
    whole, found = model(), {}
    for length in range(LENGTH):
        texts = list(product(range(VOCABULARY), repeat=length))
        rows = whole(torch.tensor([[*PROMPT, *text] for text in texts])).logits[:, -1].double()
        found |= zip(texts, rows, strict=True)
    return found


def probabilities(sampling: Sampling) -> dict[Tokens, torch.Tensor]:
    """Behind every beginning of an answer, float64 [vocabulary], cut by hand."""
    found = {}
    for text, scores in logits().items():
        scaled = scores / sampling.temperature
        if sampling.top_k:
            scaled[scaled < scaled.sort(descending=True).values[sampling.top_k - 1]] = -torch.inf
        found[text] = scaled.softmax(-1)
    return found


Counts = tuple[str, Mapping[Any, int], Mapping[Any, float]]


def _counted(found: Drawn, sampling: Sampling, rule: str) -> Iterator[Counts]:
    """(of what, seen, its law): n-grams of what was said, how many tokens of a draft were accepted behind which first
    token, and of each place that was reached whether it was."""
    rows = probabilities(sampling)
    fours = {
        text: prod(float(rows[text[:at]][token]) for at, token in enumerate(text))
        for text in product(range(VOCABULARY), repeat=4)
    }
    for start, stop in ((0, 4), (0, 2), (1, 3), (2, 4)):
        seen = Counter(text[start:stop] for text in found.said)
        yield f"tokens {start + 1} to {stop}", seen, _summed({text: text[start:stop] for text in fours}, fours)
    counts = {
        (token, count): float(rows[()][token]) * probability
        for token in range(VOCABULARY)
        for count, probability in _accepted((token,), rows, rule).items()
    }
    judged = list(zip((text[0] for text in found.said), found.accepted, strict=True))
    yield "accepted tokens of a draft", Counter(judged), counts
    for place in range(DRAFTED):
        reached = {key: (key[0], key[1] > place) for key in counts if key[1] >= place}
        seen = Counter(reached[key] for key in judged if key in reached)
        yield f"token {place + 1} of a draft", seen, _summed(reached, counts)


def _accepted(said: Tokens, rows: Mapping[Tokens, torch.Tensor], rule: str) -> dict[int, float]:
    """How many tokens of the draft behind `said` are accepted: the law, by the rule itself."""
    draft = offered(said, DRAFTED)
    target = torch.stack([rows[(*said, *draft[:count])] for count in range(DRAFTED + 1)])
    return law(lambda chance: RULES[rule](target, draft, None, chance).count)


def _summed(into: Mapping[Any, Hashable], chances: Mapping[Any, float]) -> dict[Hashable, float]:
    """The law of what outcomes are mapped to, of those that are mapped."""
    found: dict[Hashable, float] = {}
    for outcome, cell in into.items():
        found[cell] = found.get(cell, 0.0) + chances[outcome]
    whole = sum(found.values())
    return {cell: chance / whole for cell, chance in found.items()}
