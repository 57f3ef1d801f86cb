"""Stored text stays text on a page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.report.html_blocks import table_html
from qualgate_app.text import chip, diff, escape, overrules, waits


@given(st.text())
def test_no_text_becomes_markup(text):
    assert not re.search(r"[<>]", escape(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u200b]", escape(text))


@pytest.mark.parametrize(
    ("waited", "words"),
    [
        (timedelta(seconds=-5), "0 minutes"), (timedelta(seconds=90), "1 minute"),
        (timedelta(minutes=59), "59 minutes"), (timedelta(minutes=60), "1 hour"),
        (timedelta(hours=47), "47 hours"), (timedelta(hours=48), "2 days"),
        (timedelta(days=400), "400 days"),
    ],
)  # fmt: skip
def test_a_wait_is_told_in_minutes_hours_or_days(waited, words):
    now = datetime(2026, 12, 1, tzinfo=UTC)
    assert waits((now - waited).isoformat().replace("+00:00", "Z"), now) == f"waits for {words}"


def test_a_diff_shows_each_answer_in_a_block_of_its_own():
    old, new = diff("2+2=4", "")
    assert old == '<div class="qg-text"><del>2+2=4</del></div>'
    assert new == '<div class="qg-text"><i>empty answer</i></div>'


def test_the_pieces_of_a_page_escape_what_they_are_given():
    assert "<b>" not in chip("<b>")
    assert table_html(["a", "b"], [("1", escape("<i>"))], numbers=[1]).count('class="number"') == 2


@pytest.mark.parametrize(("action", "words"), [("approve", {"block", "undecided", "invalid"}), ("block", {"approve"})])
def test_a_decision_overrules_a_gate_that_said_otherwise(action, words):
    every = ("approve", "block", "review", "undecided", "invalid", None)
    assert {word for word in every if overrules(action, word)} == words
