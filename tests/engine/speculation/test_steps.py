"""What became of a draft: proposed is accepted, rejected and what stands behind it; what nobody tested is apart."""

from __future__ import annotations

import pytest

from qualgate.engine.speculation.propose import NO_DRAFT, Draft
from qualgate.engine.speculation.steps import step

FIVE = Draft((1, 2, 3, 4, 5), "draft", 8)


@pytest.mark.parametrize(
    ("offered", "accepted", "said", "told"),
    [  # (proposed, accepted, rejected, unverified)
        (5, 5, 6, (5, 5, 0, 0)),  # all, and the target's own
        (5, 2, 3, (5, 2, 1, 0)),  # two behind the rejected one are discarded
        (5, 0, 1, (5, 0, 1, 0)),
        (3, 3, 4, (3, 3, 0, 2)),  # two were never offered
        (3, 1, 2, (3, 1, 1, 2)),
        (5, 2, 2, (2, 2, 0, 3)),  # the second ended the answer
        (5, 5, 5, (5, 5, 0, 0)),
        (0, 0, 1, (0, 0, 0, 5)),
    ],
)
def test_every_token_of_a_draft_is_counted_once(offered, accepted, said, told):
    one = step(7, 30, FIVE, offered, accepted, said)
    assert (one.row, one.position, one.proposer) == (7, 30, "draft")
    assert (one.proposed, one.accepted, one.rejected, one.unverified) == told
    assert one.proposed + one.unverified == 5


def test_a_pass_without_a_draft_is_a_step_too():
    assert step(0, 4, NO_DRAFT, 0, 0, 1).counts == {
        "position": 4, "proposed": 0, "accepted": 0, "rejected": 0, "unverified": 0, "proposer": "",
        "pass_number": None, "sequences": None, "overlap": None,
    }  # fmt: skip


def test_of_what_a_rule_tested_behind_the_end_of_an_answer_nothing_is_told():
    chances = [0.9, 0.5, 0.25]
    assert step(0, 4, FIVE, 5, 2, 3, chances).overlap == pytest.approx(1.65)  # the third was tested, and rejected
    assert step(0, 4, FIVE, 5, 2, 2, chances).overlap == pytest.approx(1.4)  # the second ended the answer
    assert step(0, 4, FIVE, 5, 2, 3).overlap is None


def test_of_a_draft_that_a_dead_end_left_untested_the_sum_is_stored_as_it_is_sealed():
    """The store reads a float, and a whole number has another seal."""
    nothing = step(0, 4, FIVE, 5, 0, 0, [0.9, 0.5]).overlap
    assert (nothing, type(nothing)) == (0.0, float)
