"""The ratio of two perplexities: how often it errs at its limit, and what it can prove at all."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from scipy import stats

from qualgate.stats.likelihood_ratio import LikelihoodRatio, least_texts
from tests.depth import DEEP

LIMIT, NATS = 1.02, log(1.02)


def ratio(loss, words, clusters=None, limit: float = LIMIT, logs: bool = True) -> LikelihoodRatio:
    """loss: nats a word of each text, in times of what the limit allows."""
    words = np.asarray(words, float)
    each = np.arange(len(words)) if clusters is None else clusters
    return LikelihoodRatio(
        np.asarray(loss) * words * (log(limit) if logs else limit - 1), words, each, limit, 0.05, logs=logs
    )


LENGTHS = {
    "alike": lambda g, n: np.full(n, 300.0),
    "unequal": lambda g, n: np.ceil(300 * g.lognormal(0, 0.6, n)),
    "three long": lambda g, n: np.where(np.arange(n) < 3, 20_000.0, 100.0),
}
LOSSES = {  # of a text, on average 1
    "normal": lambda g, w: g.normal(1, 3, len(w)),
    "Student's t, 2 degrees": lambda g, w: 1 + 2 * g.standard_t(2, len(w)),
    "lognormal, sigma 2": lambda g, w: g.lognormal(-2, 2, len(w)),
    "Pareto, index 1.5": lambda g, w: (g.pareto(1.5, len(w)) + 1) / 3,
    "one in ten": lambda g, w: 10.0 * (g.random(len(w)) < 0.1),
    "one in twenty": lambda g, w: 20.0 * (g.random(len(w)) < 0.05),
    "long texts alone": lambda g, w: np.where(
        w > 647, 1 / 0.2476, 0.0
    ),  # a tenth of the unequal, a quarter of the words
}
FEWEST = {"one in twenty": 59}  # with fewer, more than 5 % of draws hold none of them


def rates(loss, length, n: int, draws: int) -> tuple[float, float]:
    """Shares of draws that prove the ratio to be below its limit, and beyond it, though it is neither."""
    generator, below, above = np.random.default_rng(n), 0, 0
    for _ in range(draws):
        words = LENGTHS[length](generator, n)
        found = ratio(LOSSES[loss](generator, words), words)
        below, above = below + (found.p_below(LIMIT) <= 0.05), above + (found.p_above(LIMIT) <= 0.05)
    return below / draws, above / draws


CELLS = [(loss, length) for loss in LOSSES for length in LENGTHS if "long texts" not in loss or length == "unequal"]


@pytest.mark.parametrize(("loss", "length"), CELLS if DEEP else [CELLS[1], CELLS[7], CELLS[13], CELLS[-1]])
def test_a_ratio_at_its_limit_is_rarely_proven_either_way(loss, length):
    draws = 2000 if DEEP else 150
    for n in (FEWEST.get(loss, 44), 120, 400) if DEEP else (62,):
        assert max(rates(loss, length, n, draws)) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / draws), n


def test_nothing_is_proven_by_fewer_texts_than_that():
    least = least_texts(0.05)
    assert least == 44
    for n in (least - 1, least):
        assert (ratio(np.zeros(n), np.full(n, 80)).bounds().p_below <= 0.05) == (n == least)


def test_of_many_texts_alike_the_bounds_are_those_of_t():
    loss = np.random.default_rng(2).normal(0.3, 0.5, 20_000)
    bounds = ratio(loss, np.full(20_000, 50)).bounds()
    low, high = stats.t.interval(0.9, 19_999, loss.mean() * NATS, stats.sem(loss) * NATS)
    assert (bounds.lower, bounds.upper) == pytest.approx((exp(low), exp(high)), abs=4e-5)
    assert bounds.estimate == pytest.approx(exp(loss.mean() * NATS))


@pytest.mark.parametrize("logs", [True, False])
def test_bounds_and_tests_say_the_same_and_no_unit_matters(logs):
    generator = np.random.default_rng(3)
    for average in (-2.0, 0.1, 0.9, 2.0, 30.0):
        words = LENGTHS["unequal"](generator, 90)
        loss = generator.normal(average, 1, 90)
        bounds, times = (ratio(loss, words * unit, logs=logs).bounds() for unit in (1, 5))
        assert (bounds.lower, bounds.upper, bounds.p_below) == pytest.approx((times.lower, times.upper, times.p_below))
        assert bounds.lower < bounds.estimate < bounds.upper
        assert (bounds.upper < LIMIT, bounds.lower > LIMIT) == (bounds.p_below <= 0.05, bounds.p_above <= 0.05)


def test_so_many_texts_as_are_asked_for_would_tell():
    generator = np.random.default_rng(4)
    for average, spread in ((0.0, 0.1), (0.5, 1.0), (0.8, 0.3), (1.3, 2.0)):
        loss, words = generator.normal(average, spread, 40), LENGTHS["unequal"](generator, 40)
        found = ratio(loss, words)
        needed = found.texts_needed()
        assert needed is not None
        assert needed > 40
        many = -(-needed // 40) + 1  # times: a number of texts between has no copies
        bounds = ratio(np.tile(loss, many), np.tile(words, many)).bounds()
        assert min(bounds.p_below, bounds.p_above) <= 0.05
    assert ratio(np.ones(40), np.full(40, 9)).texts_needed() is None, "at the limit no number would"


def test_texts_of_one_cluster_are_one():
    loss = np.random.default_rng(5).normal(0, 0.3, 50)
    alone = ratio(loss, np.full(50, 200)).bounds()
    again = ratio(np.repeat(loss, 2), np.full(100, 100), np.repeat(np.arange(50), 2)).bounds()
    assert (again.lower, again.upper, again.clusters) == pytest.approx((alone.lower, alone.upper, 50))
