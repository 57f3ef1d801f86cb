"""What a tiny model's own logits say that its answers are, and what is accepted of drafts for them.

The logits are those of transformers' modules, the cuts and sums done here: nothing of the engine's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any

import torch

from qualgate.engine.draft_heads.folder import HeadShape
from qualgate.engine.speculation.rules import RULES
from qualgate.records import Sampling
from tests.engine.draft_heads.heads import tiny_shape
from tests.engine.tiny_architectures import tiny
from tests.verification.lossless.chances import law
from tests.verification.lossless.constrained import admitted
from tests.verification.lossless.heads import logits_by_hand
from tests.verification.lossless.models import Tokens
from tests.verification.lossless.ways import (
    CONSTRAINED,
    HEAD,
    PLAIN,
    SAMPLINGS,
    SELF,
    TEXTS,
)

VOCABULARY, LENGTH, DRAFTED, LAYERS = 4, 5, 3, 2  # tokens: of the model, of an answer, of its first draft
PROMPT = (1, 2, 3, 0, 1)
TARGET, DRAFT, BELOW = 3, 4, 5  # seeds of the models
OWN = -1  # the target's layers, whose keys and values are its own, below the output head of who drafts

Rows = Mapping[Tokens, torch.Tensor]  # float64 [vocabulary], behind every beginning of an answer
Counts = tuple[str, Mapping[Any, int], Mapping[Any, float]]  # what is counted, seen, its law


@dataclass(frozen=True, slots=True)
class Drawn:
    """said: answers; accepted: of each, how many tokens of its first draft, which is made behind its first token."""

    said: list[Tokens]
    accepted: list[int]


def model(seed: int) -> Any:
    """Two layers of llama's; transformers' own modules."""
    if seed == OWN:
        found = model(TARGET)
        found.lm_head = model(DRAFT).lm_head
        return found
    return tiny("llama", seed=seed, vocab_size=VOCABULARY, intermediate_size=32, num_hidden_layers=LAYERS)


@cache
def logits(seed: int) -> Rows:
    """Of the model of this seed."""
    whole, found = model(seed), {}
    for length in range(LENGTH):
        texts = list(product(range(VOCABULARY), repeat=length))
        rows = whole(torch.tensor([[*PROMPT, *text] for text in texts])).logits[:, -1].double()
        found |= zip(texts, rows, strict=True)
    return found


def head_shape() -> HeadShape:
    """Of the heads that draft for the target."""
    return tiny_shape(vocabulary=VOCABULARY)


@cache
def target_rows(sampling: str) -> Rows:
    """Of the target, cut; penalized before, by counting every beginning, or held to what
    is admitted behind it. Behind what is not admitted it does not matter."""
    how, found = SAMPLINGS[sampling], dict[Tokens, torch.Tensor]()
    for text, scores in logits(TARGET).items():
        found[text] = _penalized(scores, text, how)
        if sampling == CONSTRAINED and (here := admitted(text, VOCABULARY)):
            left_out = [token for token in range(VOCABULARY) if token not in here]
            found[text] = found[text].index_fill(0, torch.tensor(left_out, dtype=torch.int64), -torch.inf)
    return _cut(found, how)


def draft_rows(drafts: str, sampling: str) -> Rows | None:
    """Of who drafts behind an answer's first token, whatever drafts for it; None for texts."""
    if drafts == TEXTS:
        return None
    if drafts == HEAD:
        return _cut(logits_by_hand(head_shape(), model(TARGET), PROMPT), SAMPLINGS[sampling])
    return _cut(logits(OWN if drafts == SELF else DRAFT), SAMPLINGS[sampling])


def _cut(rows: Rows, sampling: Sampling) -> Rows:
    found = {}
    for text, scores in rows.items():
        scaled = scores / sampling.temperature
        if sampling.top_k:
            scaled[scaled < scaled.sort(descending=True).values[sampling.top_k - 1]] = -torch.inf
        found[text] = scaled.softmax(-1)
    return found


def _penalized(scores: torch.Tensor, text: Tokens, sampling: Sampling) -> torch.Tensor:
    found = scores.tolist()
    for token in range(VOCABULARY):
        count, repetition = text.count(token), sampling.repetition_penalty
        if token in (*PROMPT, *text):
            found[token] = found[token] / repetition if found[token] > 0 else found[token] * repetition
        found[token] -= sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
    return torch.tensor(found, dtype=torch.float64)


@cache
def offered(said: Tokens, most: int, sampling: str = PLAIN) -> Tokens:
    """A draft from no model: behind an even token the target's likeliest, else the one after it."""
    text, rows = said, target_rows(CONSTRAINED if sampling == CONSTRAINED else PLAIN)
    for _ in range(most):
        text = (*text, (int(rows[text].argmax()) + text[-1] % 2) % VOCABULARY)
    return text[len(said) :]


def counted(found: Drawn, sampling: str, rule: str, drafts: str) -> Iterator[Counts]:
    """N-grams of what was said; how many tokens of a draft were accepted behind which first token; and of each place
    of a draft that was reached whether it was. Under "keyed" who draws drafts does so by the noise of its target, and
    what is accepted is not counted."""
    rows = target_rows(sampling)
    fours = {text: _chance(rows, (), text) for text in product(range(VOCABULARY), repeat=4)}
    for start, stop in ((0, 4), (0, 2), (1, 3), (2, 4)):
        seen = Counter(text[start:stop] for text in found.said)
        yield f"tokens {start + 1} to {stop}", seen, _summed({text: text[start:stop] for text in fours}, fours)
    if rule == "keyed" and drafts != TEXTS:
        return
    accepted = _accepted(rows, rule, draft_rows(drafts, sampling), sampling)
    judged = list(zip((text[0] for text in found.said), found.accepted, strict=True))
    yield "accepted tokens of a draft", Counter(judged), accepted
    for place in range(DRAFTED):
        reached = {key: (key[0], key[1] > place) for key in accepted if key[1] >= place}
        seen = Counter(reached[key] for key in judged if key in reached)
        yield f"token {place + 1} of a draft", seen, _summed(reached, accepted)


def _accepted(rows: Rows, rule: str, drawn: Rows | None, sampling: str) -> dict[tuple[int, int], float]:
    """(first token, how many tokens of the draft behind it are accepted): the law, by the rule itself. drawn: of the
    model that drafts, whatever drafts for it."""
    found: dict[tuple[int, int], float] = {}
    for first in range(VOCABULARY):
        said = (first,)
        for draft in product(range(VOCABULARY), repeat=DRAFTED) if drawn else [offered(said, DRAFTED, sampling)]:
            likely = float(rows[()][first]) * (_chance(drawn, said, draft) if drawn else 1.0)
            if not likely:
                continue
            target = _behind(rows, said, draft)
            drawn_from = _behind(drawn, said, draft[:-1]) if drawn else None
            counts = law(lambda chance, of=(target, draft, drawn_from): RULES[rule](*of, chance).count)
            for count, probability in counts.items():
                found[first, count] = found.get((first, count), 0.0) + likely * probability
    return found


def _behind(rows: Rows, said: Tokens, draft: Tokens) -> torch.Tensor:
    return torch.stack([rows[(*said, *draft[:count])] for count in range(len(draft) + 1)])


def _chance(rows: Rows, said: Tokens, tokens: Sequence[int]) -> float:
    """That these tokens are drawn behind what was said."""
    return prod(float(rows[(*said, *tokens[:at])][token]) for at, token in enumerate(tokens))


def _summed(into: Mapping[Any, Hashable], chances: Mapping[Any, float]) -> dict[Hashable, float]:
    """The law of what outcomes are mapped to, of those that are mapped."""
    found: dict[Hashable, float] = {}
    for outcome, cell in into.items():
        found[cell] = found.get(cell, 0.0) + chances[outcome]
    whole = sum(found.values())
    return {cell: chance / whole for cell, chance in found.items()}
