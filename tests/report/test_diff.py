"""A diff never changes what was said, marks no more than what changed, and lets stored text only be text."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.report.diff import EMPTY, MOST, difference, hashes_of, marked, parts_in
from qualgate.store.queries import Flip
from qualgate.text.escaping import visible

TAGS = re.compile(r"</?(del|ins)>")
words = st.lists(st.sampled_from(["a", "b", " ", "\n", "<b>", "&amp;", "\u202e", "x" * 9, "é", "{", '"']), max_size=12)


def said(found: str) -> str:
    return html.unescape(TAGS.sub("", found.replace(EMPTY, ""))).replace("↵\n", "\n")


@given(words, words)
def test_without_its_marks_a_diff_says_what_each_side_said(left, right):
    before, after = "".join(left), "".join(right)
    old, new = marked(before, after)
    assert (said(old), said(new)) == (visible(before), visible(after))
    assert ("<del>" in old or "<ins>" in new) == (visible(before) != visible(after))


@given(words, words, st.sampled_from([0, 4, MOST]))
def test_the_spans_are_the_answers_and_what_did_not_change_is_the_same_in_both(left, right, most):
    before, after = "".join(left), "".join(right)
    old, new = difference(before, after, most)
    assert "".join(span.text for span in old) == visible(before)
    assert "".join(span.text for span in new) == visible(after)
    kept = ["".join(span.text for span in side if not span.changed) for side in (old, new)]
    assert kept[0] == kept[1]


def test_a_diff_marks_the_piece_that_changed_and_only_that():
    old, new = marked("2+2=4\nAnswer: 4", "2+2=5\nAnswer: 4")
    assert old == "2+2=<del>4</del>\nAnswer: 4"
    assert new == "2+2=<ins>5</ins>\nAnswer: 4"


def test_a_changed_line_end_is_seen():
    assert marked("a b", "a\nb")[1] == "a<ins>↵\n</ins>b"


def test_a_looping_answer_is_compared_quickly():
    start = time.monotonic()
    old, new = marked("the same " * 200, "start " + "the same again " * 4000)
    assert time.monotonic() - start < 10
    assert "<ins>" in new
    assert "<del>" in old


@pytest.mark.parametrize(
    ("way", "variant", "where"),
    [("think", "<think>y</think>A", "thought"), ("think", "<think>x</think>B", "answer"), ("", "B", ""),
     ("think", "<think>x", "thought"), ("auto", "B", "")],
)  # fmt: skip
def test_of_two_answers_with_thoughts_it_is_told_which_part_differs_first(way, variant, where):
    flip = Flip(
        metric="exact_match", evalset="s", case_id="c", repeat=0, direction="lost", baseline="<think>x</think>A",
        variant=variant, reason="", first_divergence=None, reasoning=way,
    )  # fmt: skip
    assert parts_in(flip) == where
    hashes = hashes_of(flip)
    assert bool(hashes) == (way == "think")
    same = {part for part in ("thought", "answer") if hashes and hashes["baseline"][part] == hashes["variant"][part]}
    assert (
        same
        == {"thought": {"answer"} if variant.endswith("A") else {"thought"}, "answer": {"thought"}, "": set()}[where]
    )
