"""A server that says the likeliest token where it was to draw one: nothing is approved of it, nor against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit
from qualgate.gate.decide import decide
from qualgate.gate.evidence.sampler import says_likeliest
from qualgate.records import Generation, RunEvidence
from tests.gate.four import POLICY
from tests.gate.four_arm.test_served_drafting import AT, MOVED, by_itself, counted

GREEDY, DRAWS = (60.0, 40.0, 20.0), (-90.0, -30.0, -5.0)


def judged(arm: tuple[float, ...], baseline: tuple[float, ...] = DRAWS, *, wrong: bool = False):
    given: RunEvidence = by_itself(replace(counted(AT, MOVED), drawing=arm), said=False)
    given = replace(given, baseline=replace(given.baseline, generation=Generation(engine="v", drawing=baseline)))
    if wrong:
        [one] = given.variants
        units = tuple(replace(unit, values={**unit.values, "exact_match": 0.0}) for unit in one.units)
        given = replace(given, variants=(replace(one, units=units),))
    [verdict] = decide(given, replace(POLICY, four_arm=None)).verdicts
    return verdict


@pytest.mark.parametrize(("arm", "baseline", "who"), [(GREEDY, DRAWS, "drafted"), (DRAWS, GREEDY, "baseline")])
def test_neither_side_may_be_silently_greedy_and_a_proven_loss_blocks_all_the_same(arm, baseline, who):
    verdict = judged(arm, baseline)
    assert (verdict.word, verdict.exit) == ("undecided", Exit.UNDECIDED)
    assert verdict.reasons[0].startswith(f"{who}'s server says the likeliest token so often")
    assert "once in 10^25 times" in verdict.reasons[0]
    assert judged(arm, baseline, wrong=True).exit == Exit.BLOCK


@pytest.mark.parametrize("told", [(), DRAWS, (9.0, 9.0, 9.0)])
def test_what_chance_may_show_is_no_accusation(told):
    assert judged(told).exit == Exit.APPROVE


def test_odds_are_shown_as_far_as_anyone_reads_them():
    arm = by_itself(Generation(engine="v", drawing=(1e9, 1.0, 1.0)), said=False).variants[0]
    assert "10^300" in says_likeliest(arm)


def test_jobs_add_up_what_they_tell():
    total = Generation() + Generation(drawing=(1.0, 2.0, 3.0)) + Generation() + Generation(drawing=(1.0, 1.0, 1.0))
    assert total.drawing == (2.0, 3.0, 4.0)
