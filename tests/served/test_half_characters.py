"""Halves of a character in two pieces of a stream are one character again."""

from __future__ import annotations

import json

import pytest

from qualgate.served.half_characters import made_whole, with_halves


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["\ud83c", "\udf0d"], "🌍"),
        (["a\ud83c", "\udf0db"], "a🌍b"),
        (["🌍"], "🌍"),
        (["\\ud83c", "x"], "\\ud83cx"),  # a backslash, and letters behind it
        (["\ud83c", "x"], "\ufffdx"),
        (["\udf0d", "\ud83c"], "\ufffd\ufffd"),
        (["\ud83c", "\ud83c", "\udf0d"], "\ufffd🌍"),
    ],
)
def test_halves_are_joined_and_a_lone_one_is_no_character(pieces, whole):
    read = [json.loads(with_halves(json.dumps(piece).encode())) for piece in pieces]
    assert made_whole("".join(read)) == whole
