"""A judge's reply is its form or nothing, orders that contradict each other are a tie, and style is antisymmetric."""

from __future__ import annotations

from random import Random

import pytest

from qualgate.scoring.preference.reading import Unread, judged, style, verdict
from tests.judges import says
from tests.tables import each_row


@pytest.mark.parametrize(
    ("reply", "meant"),
    [("A", "A"), (" B\n", "B"), ("tie", "tie"), ('{"verdict": "A"}', "A"), (says("tie"), "tie"), ("Tie", "tie"),
     ("a", "A"), ("**B.**", "B"), ('"A"', "A"), ('{"verdict": " b"}', "B"), ('{"verdict": "TIE"}', "tie"),
     ('```json\n{"verdict": "A"}\n```', "A"), ("```\ntie\n```\n", "tie"),
     ('\n{"verdict":"B","reason":"A is wrong"}\n', "B")],
)  # fmt: skip
def test_its_form_is_read(reply, meant):
    assert verdict(reply) == meant


@each_row(
    "reply",
    ["", "AB", "A?", "Answer A", "C", "Tied", "ties A", '{"verdict": "not a"}',
     '{"verdict": "A", "verdict": "B"}',
     '{"verdict": ["A"]}', '{"verdict": null}', '{"winner": "A"}', '{"verdict": "A", "score": 3}', '["A"]',
     '```json\n{"verdict": "A"}\n```\nB', '```\n```', '```json {"verdict": "A"}', '{"verdict": "Both"}',
     '{"verdict": "A"} {"verdict": "B"}', "<think>x</think>A", "A" * 30_000],
)  # fmt: skip
def test_everything_else_is_nothing_with_why(reply):
    with pytest.raises(Unread):
        verdict(reply)


@pytest.mark.parametrize(
    ("replies", "win", "consistent"),
    [(("A", "B"), 0.0, True), (("B", "A"), 1.0, True), (("tie", "tie"), 0.5, True), (("A", "A"), 0.5, False),
     (("B", "B"), 0.5, False), (("A", "tie"), 0.5, False), (("tie", "A"), 0.5, False)],
)  # fmt: skip
def test_two_orders_that_contradict_each_other_are_a_tie(replies, win, consistent):
    found = judged("one", "two", replies)
    assert (found.win, found.consistent, found.places) == (win, consistent, replies)


def test_equal_answers_are_a_tie_that_nobody_is_asked_about():
    assert judged("one", "one").win == 0.5


def test_one_reply_that_is_missing_or_outside_the_form_leaves_the_pair_without_a_verdict():
    assert judged("one", "two", (None, "A"), ("it refuses", "")).why == "no reply: it refuses"
    found = judged("one", "two", ("A", "I think B"))
    assert found.win is None
    assert found.why.startswith("outside its form in the second order: ")


def test_style_is_the_opposite_when_the_answers_are_swapped():
    draw = Random(0)
    parts = ("word ", "**bold** ", "\n- item", "\n# Title\n", "`code` ", "longer words stand here ")
    for _ in range(300):
        one, two = ("".join(draw.choices(parts, k=draw.randint(0, 12))) for _ in range(2))
        assert style(one, two) == tuple(-part for part in style(two, one))


def test_a_tenth_of_the_length_or_ten_characters_are_alike():
    assert style("x" * 100, "x" * 110) == (0, 0)
    assert style("x" * 100, "x" * 112) == (1, 0)
    assert style("x", "x" * 11) == (0, 0)
    assert style("- a\n- b", "a, b, c") == (0, -1)
