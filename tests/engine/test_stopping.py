"""Answers that end at a text: where they end and what of them is text."""

from __future__ import annotations

import pytest

from qualgate.engine.prompts import load_tokenizer
from qualgate.engine.stopping import Stops
from qualgate.quant.model_files import read_files
from qualgate.refmodel import PATH


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(read_files(PATH))


def said(stops: Stops, tokens: list[int]) -> str:
    """What a row says that is stopped as soon as it may be, token by token."""
    for end in range(1, len(tokens) + 1):
        if stops.reached(0, tokens[:end]):
            return stops.text(0, tokens[:end])
    return stops.text(0, tokens)


@pytest.mark.parametrize("text", ["9+7+0=16\n0+7+1=8\nAnswer: 14886", "x" * 200 + "STOP and on", "né → ✓\n\nda"])
@pytest.mark.parametrize("until", [("\n",), ("\n\n",), ("Answer", "\n0"), ("STOP",), ("✓",), ()])
def test_a_row_ends_at_the_first_text_and_says_nothing_of_it(tokenizer, text, until):
    expected = text
    for stop in until:
        expected = expected.split(stop)[0]
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert said(Stops(tokenizer, [until]), tokens) == expected


def test_a_text_is_seen_however_many_tokens_without_text_stand_in_it(tokenizer):
    tokens = tokenizer.encode("xa" + 25 * "<|im_start|>" + "b", add_special_tokens=False)
    stops = Stops(tokenizer, [("ab",)])
    assert stops.reached(0, tokens)
    assert not stops.reached(0, tokens[:-1])
    assert stops.text(0, tokens) == "x"


def test_special_tokens_are_text_only_where_no_texts_are_watched_for(tokenizer):
    tokens = tokenizer.encode("a<|im_start|>b", add_special_tokens=False)
    watched, plain = Stops(tokenizer, [("\n",)]), Stops(tokenizer, [None])
    assert watched.text(0, tokens) == "ab"
    assert plain.text(0, tokens) == "a<|im_start|>b"
    assert (watched.any, plain.any) == (True, False)
