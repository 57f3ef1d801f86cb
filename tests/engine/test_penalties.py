"""Penalties are those of transformers and of OpenAI's definition, each row's by the text before it and by no other."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from qualgate.engine.penalties import penalized
from qualgate.records import Sampling

VOCABULARY = 50


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


def texts(seed: int) -> tuple[list[int], list[int], list[int]]:
    """A prompt, what was said, what is offered: many of their tokens the same."""
    draw = random.Random(seed)
    prompt, said, offered = ([draw.randrange(12) for _ in range(count)] for count in (7, draw.randrange(20), 5))
    return prompt, said, offered


def test_repetition_comes_before_what_is_taken_off():
    rows = torch.tensor([[4.0, -4.0, 1.0]])
    found = penalized(
        rows, (), [0, 1, 1], [], Sampling(repetition_penalty=2, presence_penalty=1, frequency_penalty=0.5)
    )
    assert found.tolist() == [[4 / 2 - 0.5 - 1, -4 * 2 - 2 * 0.5 - 1, 1.0]]


@pytest.mark.parametrize("seed", range(4))
def test_each_penalty_is_what_it_is_defined_to_be_and_a_rows_bits_are_those_it_has_alone(seed):
    """Repetition as transformers has it; presence and frequency count the answer before a row, and not the prompt."""
    prompt, said, offered = texts(seed)
    rows = logits(len(offered) + 1, seed)
    before, both = rows.clone(), Sampling(repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=-0.2)
    repeated, counted, together = (
        penalized(rows, prompt, said, offered, sampling)
        for sampling in (
            Sampling(repetition_penalty=1.3), Sampling(presence_penalty=0.75, frequency_penalty=0.5), both,
        )
    )  # fmt: skip
    assert torch.equal(rows, before)
    theirs = RepetitionPenaltyLogitsProcessor(1.3)
    for row in range(len(rows)):
        answer = [*said, *offered[:row]]
        ids = torch.tensor([[*prompt, *answer]])
        assert torch.equal(repeated[row], theirs(cast("Any", ids), cast("Any", rows[row : row + 1].clone()))[0])
        counts = Counter(answer)
        taken = torch.tensor([0.5 * counts[token] + 0.75 * (counts[token] > 0) for token in range(VOCABULARY)])
        torch.testing.assert_close(counted[row], rows[row] - taken, rtol=0, atol=1e-5)
        assert torch.equal(counted[row][taken == 0], rows[row][taken == 0])
        assert torch.equal(together[row], penalized(rows[row : row + 1], prompt, answer, [], both)[0])


def test_tokens_that_the_head_does_not_have_are_nobodys():
    rows = logits(2)
    assert torch.equal(penalized(rows, [VOCABULARY, 70], [60], [99], Sampling(repetition_penalty=2.0)), rows)
