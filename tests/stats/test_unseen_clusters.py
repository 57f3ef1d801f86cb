"""Clusters that fail as a whole and were not drawn: whatever else was seen, they must not let a wrong claim through."""

import numpy as np
import pytest

from qualgate.stats.intervals import clustered_ratio
from qualgate.stats.paired.compare import compare_clustered_pairs
from qualgate.stats.relative import compare_relative
from qualgate.stats.unseen_clusters import clustered_mean, least_provable, p_at_most, trials_needed

DRAWS = 120
ALLOWED = 0.05 + 3 * np.sqrt(0.05 * 0.95 / DRAWS)


def wholly_lost(generator, clusters: int, size: int, share: float, noise: float, part: float = 1.0):
    """(difference, labels): a share of clusters loses `part` of its cases, the others flip evenly and alone."""
    labels = np.repeat(np.arange(clusters), size)
    u = generator.random(clusters * size)
    even = np.where(u < noise / 2, -1.0, np.where(u < noise, 1.0, 0.0))
    lost = (generator.random(clusters) < share)[labels]
    return np.where(lost, -(generator.random(len(u)) < part).astype(float), even), labels


@pytest.mark.parametrize(
    ("clusters", "size", "noise", "margin", "part"), [(60, 20, 0.05, 0.02, 1.0), (30, 16, 0.1, 0.05, 0.5)]
)
def test_a_loss_by_whole_clusters_is_not_proven_to_be_less(clusters, size, noise, margin, part) -> None:
    generator = np.random.default_rng(1)
    approved = by_t = 0
    for _ in range(DRAWS):
        d, labels = wholly_lost(generator, clusters, size, margin / part, noise, part)
        seen = clustered_ratio(d, np.ones(len(d)), labels, -margin).p_above <= 0.05
        by_t += seen
        # asked of the gate only where one of its two answers agrees: the other takes time
        if seen and clustered_mean(d, labels, -margin).p_above <= 0.05:
            approved += compare_clustered_pairs(d < 0, d > 0, labels, margin).p_within <= 0.05
    assert approved / DRAWS <= 0.05
    assert by_t / DRAWS > ALLOWED or part < 1  # what these cells are there for


def test_a_share_of_the_rate_lost_by_whole_clusters_is_not_proven_to_be_less() -> None:
    generator = np.random.default_rng(5)
    for _ in range(10):
        d, labels = wholly_lost(generator, 40, 40, 0.02, 0.05)
        baseline = np.where(d == 0, generator.random(len(d)) < 0.85, d < 0).astype(float)
        assert compare_relative(baseline, baseline + d, labels, 0.02).p_within > 0.05


def test_the_p_value_is_the_chance_of_what_was_seen_and_what_was_not_together() -> None:
    generator = np.random.default_rng(4)
    for mean, error, count, trials, limit in [
        (-0.01, 0.01, 150, 150, -0.05),
        (0.0, 0.03, 20, 12.3, -0.1),
        (0.0, 0.0005, 30, 30, -0.12),  # hardly any spread
        (-0.9, 0.05, 30, 30, -0.12),  # far on the wrong side
        (0.05, 0.01, 40, 40, 0.02),
    ]:
        by_t = mean + error * generator.standard_t(count - 1, 400_000)
        unseen = generator.beta(1, trials, len(by_t))
        drawn = float(((1 - unseen) * by_t - unseen <= limit).mean())
        found = float(p_at_most(mean, error, count, trials, limit))
        assert found == pytest.approx(drawn, abs=4 * (drawn * (1 - drawn) / len(by_t)) ** 0.5 + 1e-9)
    many = p_at_most([0.0, -1.0, -0.01], [0.0, 0.0, 0.01], 40, 40.0, -0.05)
    assert many == pytest.approx([0.95**40, 1.0, float(p_at_most(-0.01, 0.01, 40, 40.0, -0.05))])


def test_the_bounds_stand_where_the_tests_turn() -> None:
    generator = np.random.default_rng(6)
    d, labels = wholly_lost(generator, 80, 6, 0.0, 0.2)
    found = clustered_mean(d, labels, -0.05)
    assert clustered_mean(d, labels, found.lower).p_above == pytest.approx(0.05, abs=1e-5)
    assert clustered_mean(d, labels, found.upper).p_below == pytest.approx(0.05, abs=1e-5)
    mirrored = clustered_mean(-d, labels, 0.05)
    assert (mirrored.lower, mirrored.p_below) == pytest.approx((-found.upper, found.p_above))
    assert clustered_mean(d, np.zeros(len(d)), -0.05).p_above == 1.0  # one cluster knows nothing


def test_so_few_clusters_prove_nothing_below_a_margin_and_so_many_do() -> None:
    assert trials_needed(0.02) == 149
    assert 0.072 < least_provable(40) < 0.073
    for count in (148, 149):
        assert (float(p_at_most(0.0, 0.0, count, count, -0.02)) <= 0.05) == (count >= trials_needed(0.02))
