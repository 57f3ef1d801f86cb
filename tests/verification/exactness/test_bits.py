"""What was said, to the bit: gathered from events, and held against another way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.verification.exactness.bits import Answer, difference, same_bits, unlike

VOCABULARY = 5


class Head:
    """States are logits here."""

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states


def answer(tokens: list[int], shift: float = 0.0) -> Answer:
    generator = torch.Generator().manual_seed(sum(tokens))
    logits = [torch.randn(VOCABULARY, generator=generator) + shift for _ in tokens]
    return Answer(
        tokens=list(tokens),
        logprobs=[float(one[0]) for one in logits],
        margins=[float(one[1]) for one in logits],
        logits=dict(enumerate(logits)),
        reason="eos",
    )


def next_up(number: float) -> float:
    return float(np.nextafter(np.float32(number), np.float32(np.inf)))


@pytest.mark.parametrize("column", ["logprobs", "margins", "logits"])
def test_one_bit_of_one_number_is_found(column):
    other = answer([1, 2, 3])
    if column == "logits":
        other.logits[1] = other.logits[1].clone()
        other.logits[1][4] = next_up(float(other.logits[1][4]))
    else:
        getattr(other, column)[1] = next_up(getattr(other, column)[1])
    found = difference([other], [answer([1, 2, 3])])
    assert (found.other_tokens, found.other_bits) == (0, 1)


@pytest.mark.parametrize(
    ("said", "other"),
    [([1, 2, 3], 0), ([1, 2, 4], 1), ([1, 4, 3], 1), ([1, 2], 1), ([1, 2, 3, 3], 1), ([], 3), ([4, 4, 4, 4], 4)],
)
def test_tokens_that_differ_lack_or_are_too_many_are_counted(said, other):
    assert difference([answer(said)], [answer([1, 2, 3])]).other_tokens == other


def test_another_end_is_another_token_and_zeros_of_two_signs_are_two_while_nan_is_one():
    assert difference([replace(answer([1, 2]), reason="length")], [answer([1, 2])]).other_tokens == 1
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert unlike([0.0, float("nan")], [-0.0, float("nan")]) == {0}


def test_behind_another_token_nothing_is_compared():
    """It is another text from there on; its place itself was said of the same text."""
    right, wrong = answer([1, 2, 3]), answer([1, 2, 3])
    wrong.tokens[1], wrong.logprobs[2] = 4, next_up(wrong.logprobs[2])
    assert difference([wrong], [right]).other_bits == 0
    wrong.logprobs[1] = next_up(wrong.logprobs[1])
    assert difference([wrong], [right]).other_bits == 1
