"""Models small enough to enumerate: what comes next depends on the last token alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

Tokens = tuple[int, ...]
NEVER = -1e30  # the logit of what is not said: a number, and exp of it is 0


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """table: float64 [vocabulary + 1, vocabulary], what follows each token; the last row is an answer's beginning."""

    table: torch.Tensor

    by_last: ClassVar[bool] = True

    def begun(self) -> Model:
        """As it runs for an answer: it keeps nothing."""
        return self

    @property
    def vocabulary(self) -> int:
        return self.table.shape[1]

    def after(self, said: Sequence[int]) -> torch.Tensor:
        """float64 [vocabulary], the probabilities behind what was said."""
        return self.table[said[-1] if said else -1]

    def behind(self, said: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        """float64 [drafted + 1, vocabulary], those behind each beginning of a draft."""
        return self.table[[*said[-1:], *draft] if said else [-1, *draft]]

    def logits(self, texts: Sequence[Tokens]) -> torch.Tensor:
        """float64 [texts, vocabulary], whose softmax these are."""
        return self.table[[text[-1] if text else -1 for text in texts]].log().clamp_(min=NEVER)

    def likeliest(self) -> Model:
        """At temperature 0: all on the first of the likeliest tokens."""
        table = torch.zeros_like(self.table)
        return Model(table.scatter_(1, self.table.argmax(-1, keepdim=True), 1.0))

    def answers(self, length: int) -> dict[Tokens, float]:
        """The law of answers of this length."""
        found: dict[Tokens, float] = {(): 1.0}
        for _ in range(length):
            found = {
                (*said, token): probability * p
                for said, probability in found.items()
                for token, p in enumerate(self.after(said).tolist())
                if p
            }
        return found


@dataclass(frozen=True, slots=True)
class Family:
    """A target and models that draft for it, each worse than the one before."""

    name: str
    target: Model
    drafts: tuple[Model, Model, Model]

    def greedy(self) -> Family:
        """At temperature 0."""
        first, second, third = (one.likeliest() for one in self.drafts)
        return Family(self.name, self.target.likeliest(), (first, second, third))


def families(vocabulary: int, seed: int) -> list[Family]:
    """Of every kind that has gone wrong somewhere: alike and unlike, with tokens that one of both never says, one and
    the same, the same but for 1e-9, and with probabilities too small for half precision."""
    numbers = torch.Generator().manual_seed(seed)

    def logits() -> torch.Tensor:
        return torch.randn(vocabulary + 1, vocabulary, generator=numbers, dtype=torch.float64)

    def drafting(base: torch.Tensor, *unlike: float) -> tuple[Model, Model, Model]:
        first, second, third = (_model(base + weight * logits()) for weight in unlike)
        return first, second, third

    base = 1.5 * logits()
    found = [Family("unlike", _model(base), drafting(base, 0.7, 1.2, 2.0))]

    cut = base.clone()
    cut.scatter_(1, cut.argmin(-1, keepdim=True), -torch.inf)
    other = 1.5 * logits()
    lacking = [other + weight * logits() for weight in (0.0, 0.5, 1.0)]
    for place, one in enumerate(lacking):
        one.scatter_(1, torch.full((vocabulary + 1, 1), place % vocabulary), -torch.inf)
    first, second, third = map(_model, lacking)
    found.append(Family("cut", _model(cut), (first, second, third)))

    same = _model(base)
    found.append(Family("alike", same, (same, drafting(base, 1e-9, 1e-9, 1e-9)[0], _model(base))))

    rare = base.clone()
    rare[:, 0] -= 25.0
    found.append(Family("rare", _model(base), (_model(rare), _model(rare + 0.5 * logits()), _model(logits()))))
    return found


def _model(logits: torch.Tensor) -> Model:
    return Model(logits.softmax(-1))
