"""A fall told from noise: exact chances, the definition of the evidence, where a fall began, what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from qualgate.stats.trend import HORIZON, level_counts, lower_tail, sign_test, trend


def test_the_chance_of_a_night_is_that_of_every_draw_written_out():
    rng = np.random.default_rng(3)
    for _ in range(20):
        x = rng.integers(0, 4, (3, 5))
        sums = [sum(draw) for draw in product(*x.T.tolist())]
        expected = sum(total <= x[-1].sum() for total in sums) / len(sums)
        assert lower_tail(level_counts(x, 3), x[-1]) == pytest.approx(expected, abs=1e-12)


def test_signs_are_those_of_every_sign_written_out():
    rng = np.random.default_rng(4)
    for _ in range(20):
        losses = rng.integers(-3, 4, 8) / 4
        sums = [
            sum(s * abs(loss) for s, loss in zip(signs, losses, strict=True)) for signs in product((1, -1), repeat=8)
        ]
        expected = sum(total >= losses.sum() - 1e-9 for total in sums) / len(sums)
        assert sign_test(losses) == pytest.approx(expected, abs=1e-12)
    assert sign_test(np.zeros(5)) == 1.0


def test_nights_that_never_change_tell_nothing():
    x = np.tile([1, 0, 1, 1], (40, 1))
    found = trend(x, weight=4)
    assert set(found.p) == {1.0}
    assert not found.falls


def test_a_fall_is_told_with_its_first_night_and_its_size_and_the_lower_level_is_the_next_reference():
    rng = np.random.default_rng(6)
    p = np.where(np.arange(800) < 80, 0.5, 1.0)
    x = (rng.random((90, 800)) < p).astype(int)
    x[40:, 100:140] = 0
    x[70:, 200:248] = 0
    first, second = trend(x, weight=800).falls
    assert abs(first.began - 40) <= 1
    assert abs(second.began - 70) <= 1
    assert first.detected <= 43
    assert second.detected <= 73
    assert first.size == pytest.approx(0.05, abs=0.02)
    assert second.size == pytest.approx(0.06, abs=0.02)


def test_one_update_that_changes_answers_both_ways_is_no_fall_however_often_its_nights_are_repeated():
    x = np.ones((200, 400), int)
    x[:, 350:] = 0
    x[50:, :12] = 0  # 12 lost, 10 gained: the same on every later night
    x[50:, 350:360] = 1
    assert not trend(x, weight=400).falls
    x[50:, 12:40] = 0  # 40 lost, 10 gained
    [fall] = trend(x, weight=400).falls
    assert fall.began == fall.detected == 50
    assert fall.size == pytest.approx(30 / 400)


def test_series_beside_each_other_share_alpha():
    x = np.zeros((2, 3), int)
    alone, five = trend(x, weight=3), trend(x, weight=3, series=5)
    assert np.exp(alone.threshold) == pytest.approx(HORIZON / 0.05)
    assert np.exp(five.threshold) == pytest.approx(5 * HORIZON / 0.05)


@pytest.mark.parametrize(
    ("values", "more"),
    [
        (np.zeros(3, int), {}),
        (np.zeros((2, 3)), {}),
        (np.zeros((0, 3), int), {}),
        (np.zeros((2, 3), int), {"alpha": 0.6}),
        (np.zeros((2, 3), int), {"series": 0}),
        (np.zeros((2, 3), int), {"weight": 0.0}),
    ],
)
def test_what_is_no_series_of_nights_is_refused(values, more):
    with pytest.raises(ValueError, match=r"values are|out of range"):
        trend(values, **more)
