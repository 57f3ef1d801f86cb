"""The anytime-valid test against its own definition case by case, and by simulation at the margin."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from scipy.optimize import fminbound

from qualgate.stats.sequential import METHOD_SEQUENTIAL, capital, compare_in_sequence


def outcomes(lost: float, gained: float, shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).choice([1, -1, 0], size=shape, p=[lost, gained, 1 - lost - gained])


def bet_case_by_case(x: np.ndarray, margin: float, beyond: bool, flips: float = 0.05) -> float:
    """The planned bet alone, with stakes found by maximising the expected growth numerically."""
    money, worth = 1.0, 1 / flips  # cases that the assumed disagreement weighs
    for seen, case in enumerate(x):
        before = x[:seen]
        if beyond:
            gains = (np.count_nonzero(before < 0) + worth * flips / 2) / (seen + worth)
            losses = (np.count_nonzero(before > 0) + worth * (flips / 2 + 2 * margin)) / (seen + worth)

            def unlikely(gained: float, gains=gains, losses=losses) -> float:  # Poisson counts of both
                return 2 * gained - gains * log(gained) - losses * log(2 * margin + gained)

            gained = float(fminbound(unlikely, 1e-9, 1, xtol=1e-10))
            truth = (gained + 2 * margin, gained)
        else:
            rate = (np.count_nonzero(before) + worth * flips) / (seen + worth)
            truth = (rate / 2, rate / 2)
        sign = -1 if beyond else 1

        def growth(stakes: float, truth=truth, sign=sign) -> float:
            lost, gained = truth
            each = ((lost, 1), (gained, -1), (1 - lost - gained, 0))
            return -sum(p * log(1 + stakes * sign * (margin - value)) for p, value in each)

        top = 0.99 / (1 - sign * margin)
        best = float(fminbound(growth, 0, top, xtol=1e-9))
        money *= 1 + best * sign * (margin - case)
    return money


@pytest.mark.parametrize("beyond", [False, True])
def test_the_planned_stakes_are_those_that_grow_fastest(beyond: bool) -> None:
    x = outcomes(0.12 if beyond else 0.04, 0.04, (60,))
    found = capital(x, 0.05, beyond=beyond, planned=1.0)[-1]
    assert exp(found) == pytest.approx(bet_case_by_case(x, 0.05, beyond), rel=2e-3)


@pytest.mark.parametrize(("margin", "flips"), [(0.05, 0.0), (0.05, 0.1), (0.02, 0.02)])
@pytest.mark.parametrize("beyond", [False, True])
def test_looking_after_every_case_at_the_margin_errs_in_at_most_alpha(margin, flips, beyond) -> None:
    x = outcomes(margin + flips / 2, flips / 2, (2_000, 400))
    crossed = (capital(x, margin, beyond=beyond).max(axis=1) >= log(20)).mean()
    assert crossed <= 0.05 + 3 * (0.05 * 0.95 / 2_000) ** 0.5


@pytest.mark.parametrize("beyond", [False, True])
def test_no_single_bet_wins_on_average_whatever_has_been_seen(beyond: bool) -> None:
    """Given any past, the next case at the margin multiplies the capital by 1 on average: enumerated."""
    margin, rng = 0.04, np.random.default_rng(3)
    for _ in range(20):
        past = outcomes(0.1, 0.1, (int(rng.integers(1, 50)),), int(rng.integers(1_000_000)))
        gained = rng.uniform(0, 0.4)
        ends = [capital(np.append(past, case), margin, beyond=beyond)[-1] for case in (1, -1, 0)]
        start = capital(past, margin, beyond=beyond)[-1]
        expected = np.dot([gained + margin, gained, 1 - 2 * gained - margin], np.exp(ends))
        assert expected == pytest.approx(exp(start), rel=1e-9)


def test_clusters_that_answer_alike_are_one_observation() -> None:
    alike = 4 * outcomes(0.1, 0.05, (1_500, 100))
    crossed = (capital(alike, 0.05, sizes=4, largest=4).max(axis=1) >= log(20)).mean()
    assert crossed <= 0.05 + 3 * (0.05 * 0.95 / 1_500) ** 0.5
    single = compare_in_sequence(alike[0] / 4, 0.05)
    whole = compare_in_sequence(alike[0], 0.05, size=np.full(100, 4), largest=4)
    assert (whole.p_within, whole.p_beyond) == pytest.approx((single.p_within, single.p_beyond))
    assert whole.n == 400


def test_no_flip_proves_as_soon_as_the_exact_test_does_or_soon_after() -> None:
    assert compare_in_sequence(np.zeros(58), 0.05).p_within > 0.05
    assert compare_in_sequence(np.zeros(80), 0.05).p_within <= 0.05


def test_a_settled_question_stays_settled_and_bounds_agree_with_it() -> None:
    x = np.concatenate([np.zeros(400), np.ones(30)])
    result = compare_in_sequence(x, 0.05)
    assert result.method == METHOD_SEQUENTIAL
    assert result.p_within <= 0.05
    assert result.lower >= -0.05
    assert (result.lost, result.gained, result.n) == (30, 0, 430)


def test_bounds_hold_the_truth_at_every_look() -> None:
    missed = 0
    for seed in range(60):
        x = outcomes(0.07, 0.03, (200,), seed)
        results = [compare_in_sequence(x[:n], 0.02) for n in (50, 200)]
        missed += any(not one.lower <= -0.04 for one in results)
    assert missed <= 9  # 5 % of 60 is 3; more than 9 has a chance of 0.1 %


@pytest.mark.parametrize(
    "wrong", [{"loss": [2.0]}, {"loss": []}, {"loss": [0.0], "margin": 0.0}, {"loss": [0.0], "size": [3], "largest": 2}]
)
def test_what_is_no_evidence_is_refused(wrong) -> None:
    arguments = {"margin": 0.05, **wrong}
    with pytest.raises(ValueError, match=r"units|range"):
        compare_in_sequence(arguments.pop("loss"), arguments.pop("margin"), **arguments)
