"""One of three arms is chosen: the error of the whole choice, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate.errors import Exit
from qualgate.gate.decide import decide, exit_of
from qualgate.records import Verdict
from qualgate.stats.multiplicity import holm, provable_together
from tests.depth import examples
from tests.gate.four import ARMS, NAMES, POLICY, alike, evidence
from tests.gate.four_arm.test_drafting import judged
from tests.gate.four_arm.test_verdict import CHEAPER, words


def test_without_shared_parts_it_is_holms():
    generator = np.random.default_rng(3)
    for p_values in generator.random((500, 3)) ** 3:
        among = {str(k): next((m for m in (3, 2, 1) if p <= 0.05 / m), 0) for k, p in enumerate(p_values)}
        held = provable_together({name: [name] for name in among}, among)
        assert held == {str(k) for k, p in enumerate(holm(p_values)) if p <= 0.05}


def test_two_claims_on_one_part_cost_what_one_does():
    assert provable_together({"a": ["shared", "a"], "b": ["shared", "b"]}, {"shared": 1, "a": 3, "b": 3}) == {"a", "b"}
    assert provable_together({"a": ["a"], "b": ["b"]}, {"a": 1, "b": 1}) == set()
    assert provable_together({"a": ["a"], "b": ["b"]}, {"a": 1, "b": 2}) == {"a", "b"}


def test_arms_near_the_margin_are_not_chosen_for_being_three():
    """Seventy equal cases prove no loss of five points at alpha, and not at a third of it."""
    alone = judged(evidence(alike(70), CHEAPER), arms=replace(ARMS, parity="lossy"))
    assert exit_of(alone) == Exit.UNDECIDED
    assert "one of three arms is chosen: at 0.025" in " ".join(alone[1].reasons)
    assert exit_of(judged(evidence(alike(120), CHEAPER), arms=replace(ARMS, parity="lossy"))) == Exit.APPROVE
    assert set(NAMES[1:]) == set(words(alone))


LOSSY = replace(POLICY, four_arm=replace(ARMS, parity="lossy"))


def decided(*lost: int, cases: int = 200, seconds: tuple[float, ...] = ()) -> tuple[Verdict, ...]:
    """Four arms of which each of the three loses so many answers of the baseline's, each its own. seconds: of an answer
    of each, if not the usual ones."""
    right = dict(zip(NAMES, np.ones((4, cases)), strict=True))
    first = 0
    for name, count in zip(NAMES[1:], lost, strict=True):
        right[name][first : first + count] = 0
        first += count
    return decide(evidence(right, dict(zip(NAMES, seconds, strict=True)) if seconds else CHEAPER), LOSSY).verdicts


def quality(verdicts: tuple[Verdict, ...], arm: int) -> str:
    four = verdicts[-1].four_arm
    assert four is not None
    return next(step.status for step in four.steps if (step.arm, step.step) == (NAMES[arm], "quality"))


@pytest.mark.parametrize(
    ("lost", "exit"),
    [
        ((4, 10, 10), Exit.UNDECIDED),  # one of three chances was enough at alpha
        ((4, 4, 10), Exit.UNDECIDED),
        ((4, 4, 4), Exit.UNDECIDED),
        ((2, 10, 10), Exit.APPROVE),
        ((30, 30, 30), Exit.BLOCK),
    ],
)
def test_an_arm_that_fails_could_have_been_chosen_and_counts(lost, exit):
    """At 200 cases and a margin of 5 points 4 lost are proven at alpha and not at alpha / 2, 2 are at alpha / 3."""
    assert exit_of(decided(*lost)) == exit


@examples(200)
@example((2, 1, 4), 1, 1, (10, 2.4, 5, 1))  # what int4 loses makes drafting the simpler change
@example((2, 1, 4), 1, 1, (10, 5, 2.4, 1))
@given(
    st.tuples(*[st.integers(0, 14)] * 3), st.integers(1, 3), st.integers(1, 6),
    st.sampled_from([(), (10, 2.4, 5, 1), (10, 5, 2.4, 1), (10, 8, 7, 4)]),
)  # fmt: skip
def test_no_arm_s_quality_is_proven_by_what_another_arm_loses(lost, arm, more, seconds):
    worse = tuple(count + more * (at == arm) for at, count in enumerate(lost, 1))
    before, after = decided(*lost, seconds=seconds), decided(*worse, seconds=seconds)
    for other in {1, 2, 3} - {arm}:
        if quality(before, other) != "proven":
            assert quality(after, other) != "proven", (lost, worse)
