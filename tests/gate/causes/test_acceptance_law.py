"""Speculative sampling accepts Σ min(p, q) of what it tests; who accepts more or fewer is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.causes.acceptance_law import off_their_law
from qualgate.records import DraftLevel, Rate
from tests.gate.causes.test_wasted_drafts import level


def told(accepted: float, tested: float, overlap: float) -> DraftLevel:
    def rate(count: float) -> Rate:
        return Rate(numerator=count, denominator=tested, value=count / tested)

    return replace(level(10, 1), accepted_of_tested=rate(accepted), overlap=rate(overlap))


def test_a_sampler_that_keeps_its_law_is_never_named_though_chances_depend_on_what_came_before():
    drawn = np.random.default_rng(5)
    for _ in range(300):
        chance, accepted, overlap = 0.9, 0, 0.0
        for uniform in drawn.random(400):
            overlap += chance
            accepted += uniform < chance
            chance = 0.95 if uniform < chance else 0.4  # who was accepted is likelier to be again
        assert off_their_law([told(accepted, 400, overlap)], "speculative_sampling") == ()


@pytest.mark.parametrize("share", [0.97, 1.03])
def test_one_that_keeps_three_in_a_hundred_too_many_or_too_few_is_named(share):
    tested, overlap = 40_000, 32_000.0
    [said] = off_their_law([told(share * overlap, tested, overlap)], "speculative_sampling")
    assert "int4 draft (level 1)" in said
    assert "Σ min(p, q) of them is 32,000.0" in said


def test_other_rules_have_another_law_and_what_is_not_told_is_not_judged():
    found = told(100, 40_000, 32_000.0)
    for rule in ("keyed", "block_verification", "typical", "lenient"):
        assert off_their_law([found], rule) == ()
    assert off_their_law([replace(found, overlap=None)], "speculative_sampling") == ()
