"""transformers' own speculation, which knows one sequence at a time: a model that assists, and prompt lookup.

Its weights are in bfloat16, which reads half of what float32 does and says the same tokens on these cases. It has no
packed weights on CPUs: a quantized draft is given to it dequantized, each number as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from qualgate.records import Prompt
from tests.benchmarks.peers import PAD, load_transformers
from tests.benchmarks.turns import Turn


class Assisted:
    """A target and who may draft for it."""

    def __init__(self, folder: Path, stop_ids: Sequence[int]) -> None:
        self._model, self._stop_ids = load_transformers(folder, torch.bfloat16), list(stop_ids)

    def alone(self) -> Callable[[Prompt], Turn]:
        """`generate`."""
        return self._answers()

    def by_model(self, folder: Path) -> Callable[[Prompt], Turn]:
        """`assistant_model`, with as many tokens of a draft as transformers takes by itself."""
        return self._answers(assistant_model=load_transformers(folder, torch.bfloat16))

    def by_lookup(self, tokens: int) -> Callable[[Prompt], Turn]:
        """`prompt_lookup_num_tokens`."""
        return self._answers(prompt_lookup_num_tokens=tokens)

    def _answers(self, **how: Any) -> Callable[[Prompt], Turn]:
        def answer(prompt: Prompt) -> Turn:
            ids = torch.tensor([prompt.token_ids])
            began = perf_counter()
            with torch.inference_mode():
                said = self._model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=PAD,
                    eos_token_id=self._stop_ids, max_new_tokens=prompt.max_new_tokens, **how,
                )  # fmt: skip
            return Turn(tokens=tuple(said[0, len(prompt.token_ids) :].tolist()), seconds=perf_counter() - began)

        return answer


def fastest(ways: Sequence[Callable[[Prompt], Turn]], prompts: Sequence[Prompt]) -> int:
    """Place of the way that answers these prompts soonest; each has answered the first of them before."""
    seconds = []
    for way in ways:
        way(prompts[0])
        seconds.append(sum(way(prompt).seconds for prompt in prompts))
    return seconds.index(min(seconds))
