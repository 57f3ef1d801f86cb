"""How many tokens a thought takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.thoughts import thought_tokens

PIECES = (
    "<think>",
    "</think>",
    "<|channel|>",
    "analysis",
    "<|message|>",
    "<|end|>",
    "x",
    " y",
    "\n\n",
    "é",
    ">\u20ac<",
)


def decoded(*pieces: str) -> Callable[[Sequence[int]], str]:
    return lambda tokens: "".join(pieces[token] for token in tokens)


@pytest.mark.parametrize(
    ("way", "pieces", "count"),
    [
        ("think", ["<think>", "a", " b", "</think>", "\n\n", "A"], 2),
        ("think", ["<", "think", ">", "a", " b", "</", "think>", "A"], 2),
        ("think", ["<think>", "a", " b"], 2),
        ("think", ["A", " is", " it"], 0),
        ("think", ["<think>", "</think>", "A"], 0),
        ("think_opened", ["a", " b", "</think>", "A"], 2),
        ("think", ["<think>", "say `", "</think>", "` not", "</think>", "A"], 3),  # the quoted one ends nothing
        ("harmony", ["<|channel|>", "analysis", "<|message|>", "a", " b", "<|end|>", "A"], 2),
        ("harmony", ["<|channel|>analysis<|message|>", "a", "<|end|>", "<|channel|>analysis<|message|>", "b", "c"], 3),
        ("think", ["<think>a", " b</think>"], 1),  # a token that two share is whose it ends
        ("think", ["<think>", "a b</think>A"], 1),
        ("think", [], 0),
        ("none", ["<think>", "a", "</think>", "A"], None),
    ],
)
def test_tokens_between_the_markers_are_counted(way, pieces, count):
    assert thought_tokens(range(len(pieces)), way, decoded(*pieces)) == count


def test_bytes_of_one_character_are_each_a_token():
    said = "<think>\u20ac\u20ac</think>A".encode()
    assert thought_tokens(range(len(said)), "think", lambda tokens: said[: len(tokens)].decode(errors="replace")) == 6


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.sampled_from(["think", "think_opened", "harmony"]))
def test_no_thought_takes_more_than_the_answer(pieces, way):
    assert 0 <= (thought_tokens(range(len(pieces)), way, decoded(*pieces)) or 0) <= len(pieces)
