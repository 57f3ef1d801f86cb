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


@pytest.mark.parametrize("seed", range(8))
def test_a_repetition_penalty_is_that_of_transformers_to_the_bit(seed):
    prompt, said, offered = texts(seed)
    rows = logits(len(offered) + 1, seed)
    found = penalized(rows, prompt, said, offered, Sampling(repetition_penalty=1.3))
    theirs = RepetitionPenaltyLogitsProcessor(1.3)
    for row in range(len(rows)):
        ids = torch.tensor([[*prompt, *said, *offered[:row]]])
        assert torch.equal(found[row], theirs(cast("Any", ids), cast("Any", rows[row : row + 1].clone()))[0])


@pytest.mark.parametrize("seed", range(8))
def test_presence_and_frequency_count_the_answer_before_a_row_and_not_the_prompt(seed):
    prompt, said, offered = texts(seed)
    rows = logits(len(offered) + 1, seed)
    found = penalized(rows, prompt, said, offered, Sampling(presence_penalty=0.75, frequency_penalty=0.5))
    for row in range(len(rows)):
        counts = Counter([*said, *offered[:row]])
        taken = torch.tensor([0.5 * counts[token] + 0.75 * (counts[token] > 0) for token in range(VOCABULARY)])
        torch.testing.assert_close(found[row], rows[row] - taken, rtol=0, atol=1e-5)
        untouched = torch.tensor([counts[token] == 0 for token in range(VOCABULARY)])
        assert torch.equal(found[row][untouched], rows[row][untouched])


def test_repetition_comes_before_what_is_taken_off():
    rows = torch.tensor([[4.0, -4.0, 1.0]])
    found = penalized(
        rows, (), [0, 1, 1], [], Sampling(repetition_penalty=2, presence_penalty=1, frequency_penalty=0.5)
    )
    assert found.tolist() == [[4 / 2 - 0.5 - 1, -4 * 2 - 2 * 0.5 - 1, 1.0]]


@pytest.mark.parametrize("seed", range(4))
def test_a_rows_bits_are_those_it_has_alone_and_logits_stay_as_they_were(seed):
    prompt, said, offered = texts(seed)
    rows = logits(len(offered) + 1, seed)
    before, sampling = rows.clone(), Sampling(repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=-0.2)
    together = penalized(rows, prompt, said, offered, sampling)
    assert torch.equal(rows, before)
    for row in range(len(rows)):
        alone = penalized(rows[row : row + 1], prompt, [*said, *offered[:row]], [], sampling)
        assert torch.equal(together[row], alone[0])


def test_tokens_that_the_head_does_not_have_are_nobodys():
    rows = logits(2)
    assert torch.equal(penalized(rows, [VOCABULARY, 70], [60], [99], Sampling(repetition_penalty=2.0)), rows)
