"""Who is drafted for and how far, where costs and chances are planted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.engine.speculation.acceptance import Fate
from qualgate.engine.speculation.lengths import PROBE_ROWS, PROBE_TOKENS, SURE, Batch, Learned, Lengths, Prospect
from qualgate.engine.speculation.plan import Plan
from qualgate.engine.speculation.propose import Draft

TARGET = {(1, 1): 10e-3, (1, 3): 10.4e-3, (4, 4): 10.6e-3, (16, 16): 13e-3, (16, 48): 19.4e-3}
ROW = Prospect(row=0, most=32, unread=1, remaining=100.0)


def learned(step: float = 3e-3, reading: float = 0.0, right: int = 0, wrong: int = 0) -> tuple[Learned, Lengths]:
    """Of a target of 10 ms a pass, and of a draft that takes `step` seconds; of so many tokens was seen that they were
    right, or wrong."""
    found = Learned()
    found.seed(TARGET)
    lengths = found.lengths("draft")
    lengths.seed({1: step, 4: step * 1.1, 16: step * 1.5}, reading)
    for hits, said in ((right, 1), (wrong, 0)):
        for _ in range(hits):
            found.acceptance.observe(Draft((1,), "draft", 8, None, (3.0 if said else 0.1,)), [said])
    return found, lengths


def rows(count: int, **how: float) -> list[Prospect]:
    return [replace(ROW, row=row, **how) for row in range(count)]


def test_what_pays_is_drafted_long_and_what_does_not_is_not():
    assert learned(right=200)[1].plan([ROW], Batch(1))[0].drafted[0] > 6
    assert learned(wrong=200)[1].plan([ROW], Batch(1))[0].drafted == {}
    assert learned(step=12e-3, right=200)[1].plan([ROW], Batch(1))[0].drafted == {}


def test_the_first_drafts_are_few_and_short():
    plan, gain = learned()[1].plan(rows(16), Batch(16))
    assert gain > 1
    assert len(plan.drafted) == PROBE_ROWS
    assert max(plan.drafted.values()) <= 3
    later, _ = learned(right=SURE)[1].plan(rows(16), Batch(16))
    assert len(later.drafted) == 16


def test_a_row_that_misses_is_left_out_while_others_are_drafted_for():
    found, lengths = learned(right=200)
    bad = Fate()
    for _ in range(20):
        found.acceptance.observe(Draft((1,), "draft", 8), [0], "", bad)
    for _ in range(200):
        found.acceptance.observe(Draft((1,), "draft", 8), [1])
    plan, _ = lengths.plan([*rows(3), replace(ROW, row=3, fate=bad)], Batch(4))
    assert set(plan.drafted) == {0, 1, 2}


@pytest.mark.parametrize(("remaining", "drafted"), [(200.0, True), (3.0, False)])
def test_a_text_is_read_where_the_answer_is_still_long(remaining, drafted):
    _, lengths = learned(reading=1e-3, right=200)
    plan, _ = lengths.plan([replace(ROW, unread=100, remaining=remaining)], Batch(1))
    assert bool(plan.drafted) is drafted
    assert lengths.plan([replace(ROW, unread=2, remaining=remaining)], Batch(1))[0].drafted, "it is read already"


def test_a_draft_goes_on_where_its_tokens_are_sure():
    found, lengths = learned(right=300)
    for _ in range(60):
        found.acceptance.observe(Draft((1,), "draft", 8, None, (0.2,)), [0])
        for _ in range(20):
            found.acceptance.observe(Draft((1,), "draft", 8, None, (5.0,)), [1])
    plan, _ = lengths.plan(rows(2), Batch(2))
    lengths.begin(plan, rows(2), Batch(2))
    assert lengths.goes_on({0: [5.0], 1: [0.2]}, [0, 1]) == {0}
    assert lengths.goes_on({0: [5.0]}, []) == set()
    assert lengths.offered(1, 1) == 1, "a row costs next to nothing"


def test_a_token_that_is_hardly_accepted_is_not_verified_where_rows_are_dear():
    found, lengths = learned(right=300)
    for _ in range(60):
        found.acceptance.observe(Draft((1,), "draft", 8, None, (0.2,)), [0])
        for sequences, of_all in ((1, 1), (1, 3), (2, 2), (2, 6)):
            found.costs.observe(sequences, of_all, 3e-3 * (1 + of_all))
    lengths.begin(Plan({0: 2, 1: 1}, {}, {}), rows(2), Batch(2))
    lengths.goes_on({0: [5.0], 1: [0.2]}, [])
    assert (lengths.offered(0, 1), lengths.offered(1, 1)) == (1, 0)


def test_what_would_not_pay_if_all_were_accepted_is_tried_still_more_seldom():
    def tried(step: float, passed: float) -> bool:
        _, lengths = learned(step=step, wrong=50)
        lengths.passed(passed)
        return bool(lengths.probe([ROW], Batch(1)).drafted)

    assert (tried(9e-3, 8.0), tried(12e-3, 8.0), tried(12e-3, 100.0)) == (True, False, True)
    _, lengths = learned(step=12e-3, wrong=50)
    assert lengths.probe([ROW], Batch(1)).drafted == {}
    assert lengths.because == "it would not pay if all were accepted: a step takes 1.20 passes, a row 0.02"


def test_what_does_not_pay_is_tried_for_a_small_share_of_all_seconds():
    _, lengths = learned(wrong=50)
    for _ in range(5):
        lengths.fared(5, 1)
    assert lengths.probe([ROW], Batch(1)).drafted == {}
    assert lengths.because == "5 proposed, 1 accepted"
    lengths.passed(100.0)
    assert lengths.probe([ROW], Batch(1)).drafted == {0: PROBE_TOKENS}
    lengths.stepped(1, 1, 0, 1, 100.0)  # a step that took long
    assert lengths.probe([ROW], Batch(1)).drafted == {}


def test_reading_is_told_from_steps_and_why_nobody_is_drafted_for_where_texts_are_long():
    _, lengths = learned(right=50)
    for _ in range(200):
        lengths.stepped(1, 101, 100, 1, 0.203)
    assert lengths.plan([replace(ROW, unread=100, remaining=5.0)], Batch(1))[0].drafted == {}
    assert lengths.draft.now.seconds(1, 1) == pytest.approx(3e-3, rel=0.2)
    _, lengths = learned(reading=1.0, right=50)
    assert lengths.plan([replace(ROW, unread=100)], Batch(1))[0].drafted == {}
    lengths.probe([replace(ROW, unread=100)], Batch(1))
    assert lengths.because == "texts to be read take longer than drafts would save"
