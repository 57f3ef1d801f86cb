"""A small model behind vLLM's API: what it says next depends on the last token alone, by numbers from a seed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.served.scripted import Reply, as_json, text_piece

SIZE = 259  # of `save_byte_tokenizer`
LISTED = 4


@dataclass
class Model:
    """Use it as a server's `otherwise`. other: logits are moved by so much from those of the seed. reading: added where
    it reads a prompt; whim: likewise, otherwise for each answer. spoil: changes what it lists. context: tokens of an
    answer that its context has room for; hides_its_end: the token that ended an answer is not told."""

    other: float = 0.0
    reading: float = 0.0
    whim: float = 0.0
    ends: frozenset[int] = frozenset({258})
    floor: bool = False
    context: int = 10**6
    hides_its_end: bool = False
    spoil: Callable[[list[Any]], Any] = lambda told: told
    said: int = 0  # tokens of answers
    asked: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def logprobs(self, last: int, moved: float = 0.0, kind: int = 0) -> NDArray:
        logits = 2 * np.random.default_rng(last).normal(size=SIZE)
        logits += self.other * np.random.default_rng(10_000 + last).normal(size=SIZE)
        logits += moved * np.random.default_rng(20_000 + 1_000 * kind + last).normal(size=SIZE)
        return logits - np.logaddexp.reduce(logits)

    def __call__(self, body: dict[str, Any]) -> Reply:
        with self.lock:
            self.asked.append(body)
            kind = sum("prompt_logprobs" not in one for one in self.asked)
        prompt, most = body["prompt"], body["max_tokens"]
        if "prompt_logprobs" in body:
            told = [None, *(self._listed(last, token) for last, token in pairwise(prompt))]
            usage = {"prompt_tokens": len(prompt), "completion_tokens": most}
            piece = text_piece("", "length", prompt_logprobs=self.spoil(told))
            return as_json({**piece, "usage": usage})
        tokens = self.answer(prompt, most, kind if self.whim else 0)
        with self.lock:
            self.said += len(tokens)
        reason = "stop" if tokens[-1] in self.ends else "length"
        if self.hides_its_end and reason == "stop":
            tokens = tokens[:-1]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        return as_json({**text_piece("", reason, token_ids=tokens), "usage": usage})

    def answer(self, prompt: list[int], most: int, kind: int = 0) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < min(most, self.context) and (not tokens or tokens[-1] not in self.ends):
            tokens.append(int(self.logprobs([*prompt, *tokens][-1], self.whim, kind).argmax()))
        return tokens

    def _listed(self, last: int, token: int) -> dict[str, Any]:
        logprobs = self.logprobs(last, self.reading)
        ranked = (-logprobs).argsort(kind="stable").tolist()
        told = dict.fromkeys([*ranked[:LISTED], token, *([ranked[-1]] if self.floor else [])])
        return {str(one): {"logprob": float(logprobs[one]), "rank": ranked.index(one) + 1} for one in told}
