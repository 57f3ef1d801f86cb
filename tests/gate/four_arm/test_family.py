"""One of three arms is chosen: the error of the whole choice, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qualgate.errors import Exit
from qualgate.gate.decide import exit_of
from qualgate.stats.multiplicity import held_together, holm
from tests.gate.four import ARMS, NAMES, alike, evidence
from tests.gate.four_arm.test_drafting import judged
from tests.gate.four_arm.test_verdict import CHEAPER, words


def test_without_shared_parts_it_is_holms():
    generator = np.random.default_rng(3)
    for p_values in generator.random((500, 3)) ** 3:
        among = {str(k): next((m for m in (3, 2, 1) if p <= 0.05 / m), 0) for k, p in enumerate(p_values)}
        held = held_together({name: [name] for name in among}, among)
        assert held == {str(k) for k, p in enumerate(holm(p_values)) if p <= 0.05}


def test_two_claims_on_one_part_cost_what_one_does():
    assert held_together({"a": ["shared", "a"], "b": ["shared", "b"]}, {"shared": 1, "a": 3, "b": 3}) == {"a", "b"}
    assert held_together({"a": ["a"], "b": ["b"]}, {"a": 1, "b": 1}) == set()
    assert held_together({"a": ["a"], "b": ["b"]}, {"a": 1, "b": 2}) == {"a", "b"}


def test_arms_near_the_margin_are_not_chosen_for_being_three():
    """Seventy equal cases prove no loss of five points at alpha, and not at a third of it."""
    alone = judged(evidence(alike(70), CHEAPER), arms=replace(ARMS, parity="lossy"))
    assert exit_of(alone) == Exit.UNDECIDED
    assert "one of three arms is chosen: at 0.025" in " ".join(alone[1].reasons)
    assert exit_of(judged(evidence(alike(120), CHEAPER), arms=replace(ARMS, parity="lossy"))) == Exit.APPROVE
    assert set(NAMES[1:]) == set(words(alone))
