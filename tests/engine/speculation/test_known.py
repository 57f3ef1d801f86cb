"""Drafts against their definition, tried place by place, and whole rows decoded with them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.speculation.accept import accepted
from qualgate.engine.speculation.known import Known, Sources, aligned
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.text import Text, repeated

few = st.integers(0, 2)
ANSWER = list(range(100, 200))  # no token twice


@st.composite
def rejoined(draw) -> tuple[list[int], list[int]]:
    """(said, answer): pieces of one answer of few different tokens, with others between."""
    answer = draw(st.lists(few, max_size=90))
    places = st.integers(0, len(answer))
    pieces = draw(st.lists(st.tuples(places, st.integers(0, 30), st.lists(few, max_size=3)), max_size=4))
    return [token for start, size, other in pieces for token in (*other, *answer[start : start + size])], answer


def by_definition(said: list[int], answer: list[int], most: int, shift: int) -> tuple[tuple[int, ...], int]:
    """(tokens, matched), each length of match tried at each place."""
    expected = len(said) + shift
    from_the_start = shift == 0 and len(said) < 8 and answer[: len(said)] == said
    if from_the_start or (len(said) >= 8 and expected >= 8 and answer[expected - 8 : expected] == said[-8:]):
        return tuple(answer[expected:][:most]), 8
    for n in range(min(8, len(said)), 1, -1):
        places = [place for place in range(n, len(answer)) if answer[place - n : place] == said[-n:]]
        near = [place for place in places if abs(place - expected) <= 32]
        if near:
            place = min(near, key=lambda place: (abs(place - expected), place))
            return tuple(answer[place:][:most]), n
    if said and 0 < expected < len(answer):
        return tuple(answer[expected:][:most]), int(answer[expected - 1] == said[-1])
    return (), 0


@given(rejoined(), st.integers(1, 12), st.integers(-40, 40) | st.just(0))
def test_an_aligned_draft_follows_the_longest_match_nearest_to_where_it_was_expected(texts, most, shift):
    said, answer = texts
    found = aligned(said, Text(answer), most, shift=shift)
    assert (found.tokens, found.matched) == by_definition(said, answer, most, shift)
    if found.tokens:
        assert tuple(answer[len(said) + found.shift :][:most]) == found.tokens


@pytest.mark.parametrize("away", [-33, -32, 32, 33])
def test_a_match_farther_than_32_tokens_from_the_expected_place_is_none(away):
    place = 50 + away
    said = [*range(1000, 1048), *ANSWER[place - 2 : place]]
    assert aligned(said, Text(ANSWER), 1).tokens == ((ANSWER[place],) if abs(away) == 32 else (150,))
    assert aligned(said, Text(ANSWER), 1, shift=away).tokens == (ANSWER[place],)


def last_repeat(text: list[int], most: int) -> tuple[tuple[int, ...], int]:
    """(tokens, matched): each length tried at each place, the latest first."""
    for n in range(min(8, len(text)), 1, -1):
        for place in range(len(text) - 1, n - 1, -1):
            if text[place - n : place] == text[-n:]:
                draft: list[int] = []
                while len(draft) < most:
                    draft.append((text + draft)[place + len(draft)])
                return tuple(draft), n
    return (), 0


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 12))
def test_a_text_goes_on_as_when_its_last_tokens_were_last_said(text, most):
    draft = repeated(Text(text), most)
    assert (draft.tokens, draft.matched) == last_repeat(text, most)
    assert draft.kind == ("own" if draft.tokens else "")


def test_of_a_pair_that_is_said_over_and_over_the_latest_places_are_tried():
    text = [5, 1, 2, 7, *[1, 2, 8] * 40, 5, 1, 2]  # the longer match is the first of 41
    assert (repeated(Text(text), 1).tokens, last_repeat(text, 1)[0]) == ((8,), (7,))


def drafted(proposer: Known, row: int, said: Sequence[int], most: int) -> Draft:
    [draft] = proposer.propose([DraftRequest(row, (), said, most)])
    return draft


def known(**sources: Sequence) -> Known:
    return Known([Sources(), Sources(**sources)])


def test_the_longest_match_drafts_and_of_equals_the_baseline_then_siblings_then_the_row_itself():
    said = [1, 2, 3, 4]
    baseline, sibling, prompt = [9, 9, 9, 9, 3, 4, 10], [8, 8, 8, 8, 3, 4, 20], [3, 4, 30]
    everything = known(prompt=prompt, baseline=baseline, siblings=[sibling])
    assert drafted(everything, 1, said, 1) == Draft((10,), "baseline", 2)
    assert drafted(known(prompt=prompt, siblings=[sibling]), 1, said, 1) == Draft((20,), "sibling", 2)
    assert drafted(known(prompt=prompt), 1, said, 1) == Draft((30,), "own", 2)
    longer = known(prompt=prompt, baseline=baseline, siblings=[[2, 3, 4, 21]])
    assert drafted(longer, 1, said, 1) == Draft((21,), "sibling", 3)
    assert drafted(everything, 0, said, 1) == NO_DRAFT


def test_a_fork_that_a_sibling_took_before_is_drafted_from_it():
    fork = [*ANSWER[:20], *range(300, 330)]
    proposer = known(baseline=ANSWER, siblings=[ANSWER, fork])
    assert drafted(proposer, 1, fork[:20], 1).kind == "baseline"
    assert drafted(proposer, 1, fork[:21], 99) == Draft(tuple(fork[21:]), "sibling", 8)


def test_a_row_that_drifts_far_from_its_first_place_is_followed():
    said = ANSWER[:10]
    proposer = known(baseline=ANSWER)
    for start in (10, 20, 30):  # after each ten tokens, 25 that the baseline did not say
        said = [*said, *range(1000 + start, 1025 + start), *ANSWER[start : start + 10]]
        assert drafted(proposer, 1, said, 2) == Draft((ANSWER[start + 10], ANSWER[start + 11]), "baseline", 8)


def test_two_tokens_that_match_by_chance_move_no_place():
    strayed = [*ANSWER[:30], 7, *ANSWER[56:58]]
    proposer = known(baseline=ANSWER)
    assert drafted(proposer, 1, strayed, 1).tokens == (158,)
    assert drafted(proposer, 1, [*strayed, 8], 1).tokens == (134,)


def test_no_room_is_no_draft_and_a_draft_is_cut_to_what_is_asked():
    assert drafted(known(baseline=ANSWER), 1, [], 0) == NO_DRAFT
    assert drafted(known(prompt=[1, 2, 1, 2]), 1, [], 0) == NO_DRAFT
    draft = drafted(known(baseline=ANSWER), 1, [], 3)
    assert draft.tokens == (100, 101, 102)
    assert (draft.cut(2).tokens, draft.cut(3), draft.cut(0)) == ((100, 101), draft, NO_DRAFT)


def passes(proposer: Known, row: int, answer: Sequence[int], most: int) -> int:
    """Verifies every draft against what the row is to say, and looks that just that is said."""
    said: list[int] = []
    count = 0
    while len(said) < len(answer):
        draft = drafted(proposer, row, tuple(said), most)
        assert len(draft.tokens) <= most
        would = [*answer[len(said) :], *[-1] * most][: len(draft.tokens) + 1]
        said += accepted(draft.tokens, would, (), len(answer) - len(said)).tokens
        count += 1
    assert said == list(answer)
    return count


@given(rejoined(), st.lists(few, max_size=20), st.integers(1, 9))
def test_a_row_says_what_it_would_have_said_alone(texts, prompt, most):
    answer, baseline = texts
    proposer = known(prompt=prompt, baseline=baseline, siblings=[answer[:7], prompt])
    assert passes(proposer, 1, answer, most) <= len(answer)


def test_a_row_that_leaves_its_baseline_and_comes_back_needs_few_passes():
    rng = random.Random(1)
    tokens = with_drafts = 0
    for _ in range(20):
        baseline = [rng.randrange(500) for _ in range(200)]
        answer = list(baseline)
        for _ in range(5):  # tokens replaced, put in and left out
            place = rng.randrange(len(answer))
            answer[place : place + rng.randint(0, 3)] = [rng.randrange(500) for _ in range(rng.randint(0, 3))]
        tokens += len(answer)
        with_drafts += passes(known(baseline=baseline), 1, answer, 64)
    assert tokens / with_drafts > 8
