"""Stored text stays text, and a diff never changes what was said."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qualgate_app.text import chip, diff, escape, overrules, table, visible

TAGS = re.compile(r"</?(del|ins)>")
words = st.lists(st.sampled_from(["a", "b", " ", "\n", "<b>", "&amp;", "\u202e", "x" * 9, "é", "{", '"']), max_size=12)


def said(block: str) -> str:
    content = block.removeprefix('<div class="qg-text">').removesuffix("</div>").replace("<i>empty answer</i>", "")
    return html.unescape(TAGS.sub("", content)).replace("↵\n", "\n")


@given(words, words)
def test_without_its_marks_a_diff_says_what_each_side_said(left, right):
    before, after = "".join(left), "".join(right)
    old, new = diff(before, after)
    assert (said(old), said(new)) == (visible(before), visible(after))
    assert ("<del>" in old or "<ins>" in new) == (visible(before) != visible(after))


@given(st.text())
def test_no_text_becomes_markup(text):
    assert not re.search(r"[<>]", escape(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u200b]", escape(text))


def test_a_diff_marks_the_piece_that_changed_and_only_that():
    old, new = diff("2+2=4\nAnswer: 4", "2+2=5\nAnswer: 4")
    assert "2+2=<del>4</del>\nAnswer: 4" in old
    assert "2+2=<ins>5</ins>\nAnswer: 4" in new


def test_a_looping_answer_is_compared_quickly():
    old, new = diff("the same " * 200, "start " + "the same again " * 4000)
    assert "<ins>" in new
    assert "<del>" in old


def test_the_pieces_of_a_page_escape_what_they_are_given():
    assert "<b>" not in chip("<b>")
    assert table(["a", "b"], [("1", escape("<i>"))], numbers=[1]).count('class="qg-number"') == 2


@pytest.mark.parametrize(("action", "words"), [("approve", {"block", "undecided", "invalid"}), ("block", {"approve"})])
def test_a_decision_overrules_a_gate_that_said_otherwise(action, words):
    every = ("approve", "block", "review", "undecided", "invalid", None)
    assert {word for word in every if overrules(action, word)} == words
