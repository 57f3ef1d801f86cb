"""Difference of differences: as likely to be found, and as seldom found wrongly, as it says."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from qualgate.stats.cost_ratio import cost_interaction
from qualgate.stats.interaction import NO_LOSS, interaction
from qualgate.stats.power import blocking_region, chance_to_block


def table(lost: int, gained: int, n: int) -> np.ndarray:
    """Four arms, right on all but the last half's baseline; `both` alone loses and gains."""
    scores = np.ones((n, 4))
    scores[n // 2 :] = 0
    scores[:lost, 3] = 0
    scores[n - gained :, 3] = 1
    return scores


def test_the_planted_two_points_are_found_at_2500_cases_and_their_absence_is_kept_silent():
    assert chance_to_block(2500, NO_LOSS, 0.11, -0.02, 0.05) >= 0.9
    for changed in (0.001, 0.01, 0.05, 0.11, 0.5, 1.0):
        assert chance_to_block(2500, NO_LOSS, changed, 0.0, 0.05) <= 0.05


@pytest.mark.parametrize("n", [12, 25])
def test_the_chance_is_the_sum_over_every_table_that_the_test_calls_worse(n):
    changed, loss = 0.5, 0.2
    p = ((changed + loss) / 2, (changed - loss) / 2, 1 - changed)
    total = 0.0
    for lost, gained in product(range(n + 1), repeat=2):
        if lost + gained <= n and lost >= blocking_region(n, NO_LOSS).edge[gained]:
            ways = comb(n, lost) * comb(n - lost, gained)
            total += ways * p[0] ** lost * p[1] ** gained * p[2] ** (n - lost - gained)
    assert chance_to_block(n, NO_LOSS, changed, -loss, 0.05) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (4, 0), (12, 3), (30, 25), (10, 30)])
def test_the_test_and_the_region_agree_and_the_bound_says_the_same(lost, gained):
    n = 200
    found = interaction(table(lost, gained, n), np.arange(n))
    worse = found.p_worse <= 0.05
    assert worse == (lost >= blocking_region(n, NO_LOSS).edge[gained])
    assert worse == (found.upper < 0)
    assert found.estimate == pytest.approx((gained - lost) / n)


def test_a_loss_that_both_changes_bring_by_themselves_is_no_interaction():
    scores = np.ones((300, 4))
    scores[:30, 1] = scores[20:50, 2] = 0  # each loses its own; both lose what either does
    scores[:50, 3] = 0
    assert interaction(scores, np.arange(300)).p_worse > 0.5  # overlapping losses make `both` better than their sum


def test_clusters_of_copies_prove_no_more_than_their_number():
    few = table(9, 1, 60)
    copied, labels = np.repeat(few, 20, axis=0), np.repeat(np.arange(60), 20)
    assert interaction(copied, np.arange(1200)).p_worse < 1e-6
    one, many = interaction(few, np.arange(60)), interaction(copied, labels)
    assert one.p_worse / 2 < many.p_worse < 0.05


def test_a_case_that_changes_by_two_counts_as_one_case():
    scores = np.tile([0.0, 1.0, 0.0, 1.0], (100, 1))
    scores[:6] = [0.0, 1.0, 1.0, 0.0]  # d = -2
    found = interaction(scores, np.arange(100))
    assert found.estimate == pytest.approx(-0.12)
    assert found.upper < 0 < found.p_worse <= 0.05


def test_under_twenty_clusters_nothing_is_proven():
    assert interaction(table(9, 0, 19), np.arange(19)).p_worse == 1.0


def test_costs_interact_where_both_cost_more_than_their_savings_promise():
    n, noise = 200, np.random.default_rng(3).uniform(0.9, 1.1, 200)
    good = np.ones(n)
    arms = tuple((cost * noise, good) for cost in (10.0, 5.0, 5.0, 2.5))
    none = cost_interaction(arms, np.arange(n))
    assert none is not None
    assert none.estimate == pytest.approx(0)
    worse = cost_interaction((*arms[:3], (5.0 * noise[::-1], good)), np.arange(n))
    assert worse is not None
    assert worse.lower > 0
    assert cost_interaction((*arms[:3], (noise, 0 * good)), np.arange(n)) is None


def test_graded_scores_without_an_interaction_are_rarely_said_to_have_one():
    """One case in fifty gains half a point and the others lose as much between them: t alone finds it in 13 %."""
    generator, n, share, flagged = np.random.default_rng(2), 100, 0.02, 0
    for _ in range(100):
        scores = np.full((n, 4), 0.5)
        scores[:, 3] = np.where(generator.random(n) < share, 1.0, 0.5 - 0.5 * share / (1 - share))
        flagged += interaction(scores, np.arange(n)).p_worse <= 0.05
    assert flagged / 100 <= 0.05
