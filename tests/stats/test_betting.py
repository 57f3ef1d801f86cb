"""The anytime-valid test against its own definition case by case, and by simulation at the margin."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest
from scipy.optimize import fminbound

from qualgate.stats.betting import METHOD_SEQUENTIAL, UNTOLD, Presumed, capital, compare_in_sequence, presume


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


@pytest.mark.parametrize(
    "presumed", [UNTOLD, Presumed(disagreement=0.3, weight=2), Presumed(disagreement=0.01, weight=9)]
)
@pytest.mark.parametrize("beyond", [False, True])
def test_every_sequence_of_ten_cases_together_crosses_in_at_most_alpha(beyond, presumed) -> None:
    """All 59,049 of them, each with its chance at the margin, whatever is lost and gained beside it."""
    alpha, margin = 0.1, 0.3
    x = np.array(list(product((1, 0, -1), repeat=10)), dtype=np.int8)
    crossed = x[capital(x, margin, beyond=beyond, presumed=presumed).max(axis=1) >= -log(alpha)]
    lost, gained = (crossed == 1).sum(axis=1), (crossed == -1).sum(axis=1)
    chances = [
        float(((g + margin) ** lost * g**gained * (1 - margin - 2 * g) ** (10 - lost - gained)).sum())
        for g in np.linspace(0, 0.35, 71)
    ]
    assert 0.01 < max(chances) <= alpha


@pytest.mark.parametrize("beyond", [False, True])
def test_after_every_count_of_sixty_cases_the_next_bet_is_fair_at_the_margin(beyond) -> None:
    """Both bets, after each number of cases lost and gained; so neither grows on average, and Ville's bound holds."""
    margin, presumed = 0.05, presume(0.05, 60)
    for seen in (0, 1, 2, 7, 20, 59):
        counts = [(lost, gained) for lost in range(seen + 1) for gained in range(seen + 1 - lost)]
        past = np.array([[1] * lost + [-1] * gained + [0] * (seen - lost - gained) for lost, gained in counts], float)
        for planned in (0.0, 1.0):
            ends = [
                capital(
                    np.c_[past, np.full(len(past), case)], margin, beyond=beyond, presumed=presumed, planned=planned
                )
                for case in (1, -1, 0)
            ]
            times = [np.exp(end[:, -1] - (end[:, -2] if seen else 0.0)) for end in ends]
            for gained in (0.0, 0.2, 0.475):  # fair at two of them is fair at all: it is linear
                fair = np.dot([gained + margin, gained, 1 - 2 * gained - margin], times)
                assert fair == pytest.approx(1, abs=1e-9)


def test_a_list_presumes_the_disagreement_at_which_a_third_of_it_settles_an_identical_variant() -> None:
    found = presume(0.05, 562)
    x = outcomes(found.disagreement / 2, found.disagreement / 2, (600, 1_500))
    crossed = capital(x, 0.05, presumed=Presumed(disagreement=found.disagreement, weight=1_000)) >= log(20)
    assert np.argmax(crossed, axis=1).mean() == pytest.approx(562 / 3, rel=0.12)  # the last bet wins more than it must


def test_a_longer_list_presumes_more_and_one_with_room_for_far_more_tells_nothing() -> None:
    found = [presume(0.05, units).disagreement for units in (10, 200, 300, 500)]
    assert found == sorted(found)
    assert presume(0.05, 20_000) == UNTOLD
    assert presume(0.05, 300, typical=0.5).disagreement < presume(0.05, 300).disagreement


def test_clusters_that_answer_alike_are_one_observation() -> None:
    alike = 4 * outcomes(0.1, 0.05, (500, 100))
    crossed = (capital(alike, 0.05, sizes=4, largest=4).max(axis=1) >= log(20)).mean()
    assert crossed <= 0.05 + 3 * (0.05 * 0.95 / 500) ** 0.5
    single = compare_in_sequence(alike[0] / 4, 0.05)
    whole = compare_in_sequence(alike[0], 0.05, size=np.full(100, 4), largest=4)
    assert (whole.p_within, whole.p_beyond) == pytest.approx((single.p_within, single.p_beyond))
    assert whole.n == 400


def test_a_settled_question_stays_settled_and_bounds_agree_with_it() -> None:
    x = np.concatenate([np.zeros(400), np.ones(30)])
    result = compare_in_sequence(x, 0.05)
    assert result.method == METHOD_SEQUENTIAL
    assert result.p_within <= 0.05
    assert result.lower >= -0.05
    assert (result.lost, result.gained, result.n) == (30, 0, 430)


@pytest.mark.parametrize(
    "wrong", [{"loss": [2.0]}, {"loss": []}, {"loss": [0.0], "margin": 0.0}, {"loss": [0.0], "size": [3], "largest": 2}]
)
def test_what_is_no_evidence_is_refused(wrong) -> None:
    arguments = {"margin": 0.05, **wrong}
    with pytest.raises(ValueError, match=r"units|range"):
        compare_in_sequence(arguments.pop("loss"), arguments.pop("margin"), **arguments)
