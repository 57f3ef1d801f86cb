"""A constraint that small vocabularies can keep: what it admits by hand, and the product's own mask of it.

Answers are made of "aab" and "ba", where "a" is any token of the vocabulary's first half and "b" any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from qualgate.engine.constraint import GrammarMask
from qualgate.engine.steering import Steering
from qualgate.scoring.constraint import grammar_of
from tests.verification.lossless.models import Model, Tokens

FIRST = ord("a")


def admitted(said: Sequence[int], vocabulary: int) -> tuple[int, ...]:
    """The tokens that may follow, none behind what is not admitted itself; an answer may go on for ever."""
    half = (vocabulary + 1) // 2
    unit = ""
    for token in said:
        unit += "a" if token < half else "b"
        if unit in ("aab", "ba"):
            unit = ""
    kinds = {"": "ab", "a": "a", "aa": "b", "b": "a"}.get(unit, "")
    return tuple(token for token in range(vocabulary) if ("a" if token < half else "b") in kinds)


@dataclass(frozen=True, slots=True)
class Constrained:
    """A model whose answers keep to it. masks: makes the mask of an answer."""

    model: Model
    masks: Callable[[int], Any] | None = None
    mask: Any = None

    by_last: ClassVar[bool] = False

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    def begun(self) -> Constrained:
        """As it runs for an answer: with a mask of its own."""
        return Constrained(self.model, self.masks, (self.masks or fresh_mask)(self.model.vocabulary))

    def behind(self, said: Tokens, draft: Sequence[int]) -> torch.Tensor:
        """float64 [drafted + 1, vocabulary], as the engine has them of logits that it steers."""
        text = (*said, *draft)
        logits = self.model.logits([text[: len(said) + count] for count in range(len(draft) + 1)])
        return Steering((), mask=self.mask).steered(logits, said, draft).logits.softmax(-1)

    def answers(self, length: int) -> dict[Tokens, float]:
        """The law of answers of this length, by hand."""
        found: dict[Tokens, float] = {(): 1.0}
        for _ in range(length):
            found = {
                (*said, token): probability * float(row[token]) / whole
                for said, probability in found.items()
                for row, here in [(self.model.after(said), admitted(said, self.model.vocabulary))]
                for whole in [float(row[list(here)].sum())]
                for token in here
                if row[token]
            }
        return found


def fresh_mask(vocabulary: int, made: type[GrammarMask] = GrammarMask) -> GrammarMask:
    """As one that was just made; its grammar is compiled once. made: the product's, or what was made of it."""
    mask = copy(_compiled(vocabulary, made))
    mask._matcher, mask._read = mask._fresh.deep_copy(), []
    return mask


@cache
def _compiled(vocabulary: int, made: type[GrammarMask]) -> GrammarMask:
    letters = [chr(FIRST + token) for token in range(vocabulary)]
    half = (vocabulary + 1) // 2
    a, b = (f"[{''.join(some)}]" for some in (letters[:half], letters[half:]))
    words: Any = SimpleNamespace(tokens=_tokens(vocabulary), stop_ids=frozenset())
    return made(words, grammar_of({"regex": f"({a}{a}{b}|{b}{a})*"}))


@cache
def _tokens(vocabulary: int) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Letters(vocabulary)))


class _Letters:
    """A tokenizer as llguidance wants it: a letter each, and an end token that models do not have."""

    bos_token_id = None

    def __init__(self, vocabulary: int) -> None:
        self.tokens = [bytes([FIRST + token]) for token in range(vocabulary)] + [b"<end>"]
        self.eos_token_id = vocabulary
        self.special_token_ids = (vocabulary,)

    def __call__(self, text: bytes) -> list[int]:
        return [byte - FIRST for byte in text]
