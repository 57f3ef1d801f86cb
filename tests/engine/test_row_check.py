"""Rows that depend on each other are found, however little and wherever they do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.row_check import TOKENS, apart, far_from, read, row_variant, same_bits, whole

VOCABULARY = 7
TEXTS = [[(3 * place) % VOCABULARY for place in range(length)] for length in TOKENS]


class Head:
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states


class Reader:
    """A decoder that says next what it reads, at its position; `wrong` of a pass spoils what it says."""

    overflow = ()

    def __init__(self, wrong: Any = lambda batch, threads: False) -> None:
        self.wrong = wrong

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        said = torch.nn.functional.one_hot(batch.token_ids, VOCABULARY).float() * (1 + batch.positions[:, None])
        if self.wrong(batch, threads):
            said = torch.nextafter(said, torch.tensor(1e9))
        return said[batch.wanted]


def found_of(wrong: Any) -> str:
    decoder, head = Reader(wrong), Head()
    expected = read(decoder, head, TEXTS, whole(TEXTS))
    return row_variant(decoder, head, TEXTS, expected)


def test_every_position_of_every_text_is_read_once_whatever_the_cut():
    for cuts in (whole(TEXTS), [(1, 1)] * 23 + [(17, 0)], [(40, 23)]):
        for text, logits in zip(TEXTS, read(Reader(), Head(), TEXTS, cuts), strict=True):
            assert logits.argmax(-1).tolist() == text
            assert logits.amax(-1).tolist() == [1.0 + place for place in range(len(text))]


def test_one_bit_of_one_pass_is_found_and_the_cut_that_shows_it_named():
    assert found_of(lambda batch, threads: False) == ""
    ways = {
        "other bits in passes of (1, 1) tokens and more, on 1 thread": lambda batch, threads: (
            len(batch.token_ids) == 29
        ),
        "other bits in passes of (39, 0) tokens and more, on 1 thread": lambda batch, _: len(batch.token_ids) == 39,
        "other bits in passes of (17, 5) tokens and more, on 2 threads": lambda batch, threads: threads == 2,
    }
    assert {said: found_of(wrong) for said, wrong in ways.items()} == {said: said for said in ways}


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf")])
def test_bits_are_compared_and_not_numbers(number):
    one = torch.tensor([1.0, number])
    assert same_bits(one, one.clone())
    assert same_bits(one[None].T, one[:, None])
    assert not same_bits(one, torch.tensor([1.0, -number]))


def test_a_difference_is_told_in_spreads_of_the_logits():
    expected = torch.randn(12, 100, generator=torch.Generator().manual_seed(0)) * 5 + 3
    assert apart(expected, expected) == 0
    assert apart(expected + 0.05, expected) == pytest.approx(0.01, rel=0.1)
    assert apart(expected + float("nan"), expected) != apart(expected, expected)
    assert far_from([expected, expected + 0.05], [expected, expected]) == apart(expected + 0.05, expected)
