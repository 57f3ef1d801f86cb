"""Drafts from texts, against their definition: the longest match, tried place by place."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.speculation import ngram
from qualgate.engine.speculation.ngram import Ngram, Suffix
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.text import Text, repeated

few = st.integers(0, 2)
texts = st.lists(few, max_size=90)


def drafted(proposer: Ngram, row: int, prompt: Sequence[int], said: Sequence[int], most: int) -> Draft:
    [draft] = proposer.propose([DraftRequest(row, prompt, said, most)])
    return draft


@given(st.lists(texts, min_size=1, max_size=6), st.integers(1, 6))
def test_a_text_that_went_on_as_others_is_as_one_that_is_new(steps, most):
    text = Text(())
    for step in steps:  # each rewinds to what it agrees with
        text.go_on(step)
        assert text.tokens == step
        assert repeated(text, most) == repeated(Text(step), most)


@given(texts.filter(bool), texts, texts, st.integers(1, 6))
def test_a_row_whose_said_tokens_were_taken_back_drafts_as_if_they_never_were(prompt, said, other, most):
    proposer = Ngram()
    drafted(proposer, 0, prompt, said, most)
    assert drafted(proposer, 0, prompt, other, most) == drafted(Ngram(), 0, prompt, other, most)


def test_rows_do_not_see_each_other_and_one_that_ended_is_forgotten():
    proposer = Ngram()
    assert drafted(proposer, 0, [1, 2, 3, 1, 2], (), 1) == Draft((3,), "ngram", 2)
    assert drafted(proposer, 1, [1, 2], (), 1) == NO_DRAFT
    proposer.ended(0)
    proposer.ended(7)  # of which nothing was asked
    assert drafted(proposer, 0, [1, 2], (), 1) == NO_DRAFT


def test_an_answer_that_ended_drafts_for_those_that_come_later_up_to_its_end():
    proposer = Suffix()
    drafted(proposer, 0, [5, 6], [7, 8, 9], 4)
    assert drafted(proposer, 1, [6, 7], (), 4) == NO_DRAFT  # it goes on still
    proposer.ended(0)
    assert drafted(proposer, 1, [6, 7], (), 4) == Draft((8, 9), "suffix", 2)
    assert drafted(proposer, 1, [8, 9], (), 4) == NO_DRAFT


def test_where_the_longest_match_ends_an_answer_the_next_longest_drafts():
    proposer = Suffix()
    for row, answer in enumerate(([4, 2, 3, 7], [1, 2, 3])):
        drafted(proposer, row, answer[:1], answer[1:], 1)
        proposer.ended(row)
    assert drafted(proposer, 5, [1, 2, 3], (), 4) == Draft((7,), "suffix", 2)


def test_of_answers_that_ended_only_the_latest_are_remembered(monkeypatch):
    monkeypatch.setattr(ngram, "REMEMBERED", 40)
    drafter = Suffix()
    for row, first in enumerate((10, 50, 90, 130)):
        drafter.propose([DraftRequest(row, tuple(range(first, first + 15)), (), 3)])
        drafter.ended(row)
    assert drafter.propose([DraftRequest(8, (131, 132, 133), (), 3)])[0].tokens == (134, 135, 136)
    assert drafter.propose([DraftRequest(9, (11, 12, 13), (), 3)])[0].tokens == ()
