"""Two servers' answers and log-probs: exact p-values, and how often a planted difference is found."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from qualgate.stats.endpoints import Drawn, compare_endpoints
from qualgate.stats.laws import same_law
from qualgate.stats.planted import Shift, _weighted_sets, chances


def pair(seed: int, apart: float = 0.0, noise: float = 0.0, nats: float = 0.0, prompts: int = 6, count: int = 8):
    """Prompts whose second server has logits `apart` away, behind each beginning others; log-probs with a noise, and
    B's moved by `nats`."""
    generator, drawn = np.random.default_rng(seed), []
    for _ in range(prompts):
        laws: dict[tuple[int, ...], np.ndarray] = {}
        sides: list[list[tuple[int, ...]]] = [[], []]
        for side in (0, 1) * count:
            answer: tuple[int, ...] = ()
            while len(answer) < 3:
                logits = generator.normal(size=4) * 1.5
                law = laws.setdefault(answer, np.array([logits, logits + apart * generator.normal(size=4)]))
                answer = (*answer, int((law[side] + generator.gumbel(size=4)).argmax()))
            sides[side].append(answer)
        moves = np.array([np.zeros(4), nats * generator.normal(size=4)])
        logprobs = [[[-1 - token / 9 + moves[side][token] + noise * generator.normal() for token in answer]
                     for answer in sides[side]] for side in (0, 1)]  # fmt: skip
        drawn.append(Drawn(*sides, *logprobs))
    return drawn


def test_without_log_probs_the_test_is_that_of_laws():
    prompts = [Drawn(drawn.a, drawn.b) for drawn in pair(1, apart=1.0)]
    apart = compare_endpoints(prompts, 0.05).apart
    assert apart.p == same_law([(drawn.a, drawn.b) for drawn in prompts]).p
    assert apart.p_logprobs is None
    assert apart.each == 0.05


def test_the_log_probs_p_value_is_exact():
    [drawn] = pair(3, noise=0.1, nats=0.1, prompts=1, count=5)
    every, logprobs = [*drawn.a, *drawn.b], [*drawn.a_logprobs, *drawn.b_logprobs]

    def squares(of_a: set[int]) -> float:
        total = 0.0
        for depth in range(3):
            for start in {answer[: depth + 1] for answer in every}:
                who = [at for at in range(10) if every[at][: depth + 1] == start]
                sides = [[logprobs[at][depth] for at in who if (at in of_a) is own] for own in (True, False)]
                if all(sides):
                    x, y = sides
                    total += (np.mean(x) - np.mean(y)) ** 2 * len(x) * len(y) / (len(x) + len(y))
        return total

    values = [squares(set(chosen)) for chosen in combinations(range(10), 5)]
    exact = np.mean(np.array(values) >= values[0] - 1e-9)
    assert compare_endpoints([drawn], 0.05, deals=20_000).apart.p_logprobs == pytest.approx(exact, abs=0.012)


def test_equal_servers_are_told_apart_no_more_often_than_alpha():
    results = [compare_endpoints(pair(seed, noise=0.05), 0.1, seed, deals=199).apart.different for seed in range(200)]
    assert np.mean(results) <= 0.1 + 3 * np.sqrt(0.09 / 200)


def test_log_probs_that_move_are_found_unless_the_servers_own_noise_hides_them():
    pairs = [pair(5, noise=noise, nats=0.05) for noise in (0.001, 0.3)]
    forests = [compare_endpoints(prompts, 0.05) for prompts in pairs]
    shift = {"moved": Shift(nats=0.05)}
    sure, rare = (chances(*of, 0.05, shift)["moved"] for of in zip(pairs, forests, strict=True))
    assert sure > 0.95
    assert rare < 0.2
    clear, hidden = (forest.apart for forest in forests)
    assert clear.different
    assert clear.p > clear.each
    assert clear.nats > 10 * max(clear.noise)
    assert not hidden.different
    assert hidden.noise == pytest.approx((0.3, 0.3), rel=0.2)


def test_sets_are_drawn_in_proportion_to_the_product_of_their_weights():
    weights = np.array([0.2, 1.0, 3.0, 0.5, 2.0])
    drawn = _weighted_sets(np.tile(np.log(weights), (40_000, 1)), 2, np.random.default_rng(0))
    assert (drawn.sum(1) == 2).all()
    pairs = list(combinations(range(5), 2))
    product = np.array([weights[i] * weights[j] for i, j in pairs])
    share = np.array([(drawn[:, i] * drawn[:, j]).mean() for i, j in pairs])
    assert share == pytest.approx(product / product.sum(), abs=0.01)


def test_the_stated_chance_grows_with_the_difference_and_is_not_above_the_measured_one():
    pairs = [[Drawn(one.a, one.b) for one in pair(seed, apart=1.0)] for seed in range(150)]
    forests = [compare_endpoints(prompts, 0.05, deals=199) for prompts in pairs]
    shifts = {"none": Shift(), "as it is": Shift(noise=1.0), "more": Shift(noise=3.0)}
    every = [chances(*of, 0.05, shifts) for of in zip(pairs[:15], forests, strict=False)]
    none, stated, more = (np.mean([rates[name] for rates in every]) for name in shifts)
    assert none == pytest.approx(0.05, abs=0.02)
    assert 0.15 < stated < np.mean([forest.apart.different for forest in forests])
    assert more > stated + 0.2


def test_no_answers_and_answers_that_are_all_alike_show_nothing():
    alike = [Drawn([(1, 2)] * 3, [(1, 2)] * 3)]
    for prompts in ([], alike):
        forest = compare_endpoints(prompts, 0.05, deals=99)
        assert forest.apart.p == 1.0
        assert chances(prompts, forest, 0.05, {"noise": Shift(noise=2.0), "swapped": Shift(swapped=True)}) == {
            "noise": 0.0,
            "swapped": 0.0,
        }
