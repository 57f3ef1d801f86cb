"""Answers of two samplers: how often equal laws are told apart, what different ones take, and the p-value itself."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from qualgate.stats.laws import beginnings, same_law


def drawn(generator: np.random.Generator, law: np.ndarray, start: int, answers: int, length: int = 8):
    """Answers of a sampler whose next token depends on the last one. law: (tokens, tokens), logits."""
    said = []
    for _ in range(answers):
        token, answer = start, []
        for _ in range(length):
            token = int((law[token] + generator.gumbel(size=law.shape[1])).argmax())
            if token == 0:
                break
            answer.append(token)
        said.append(answer)
    return said


def counted_by_hand(answers: list[list[int]]) -> set[frozenset[int]]:
    """Who shares a beginning, of every beginning there is; an end is a token of its own."""
    ended = [(*answer, -1) for answer in answers]
    starts = {answer[:length] for answer in ended for length in range(1, len(answer) + 1)}
    sets = {frozenset(i for i, answer in enumerate(ended) if answer[: len(start)] == start) for start in starts}
    return {one for one in sets if 1 < len(one) < len(answers)}


@pytest.mark.parametrize("seed", range(4))
def test_each_set_of_answers_that_share_a_beginning_counts_once(seed):
    generator = np.random.default_rng(seed)
    answers = drawn(generator, generator.normal(size=(4, 4)) * 2, 1, 9, length=5)
    found = [frozenset(who.tolist()) for _, who in beginnings(answers)]
    assert len(found) == len(set(found))
    assert set(found) == counted_by_hand(answers)
    for length, who in beginnings(answers):
        assert len({tuple(answers[i][:length]) for i in who}) == 1


def exactly(prompts: list[tuple[list[list[int]], list[list[int]]]]) -> float:
    """The p-value over every deal there is."""
    values = []
    for one, other in prompts:
        whole = one + other
        sets, m, n = counted_by_hand(whole), len(one), len(other)
        apart = [[(len(a & of) / m - len(of - a) / n, len(of)) for of in sets]
                 for a in map(set, combinations(range(m + n), m))]  # fmt: skip
        values.append([(sum(d * d / size for d, size in deal), sum(d * size for d, size in deal)) for deal in apart])
    deals = np.array([np.sum(deal, axis=0) for deal in product(*values)])
    far, sharp = ((deals - deals.mean(0)) / deals.std(0)).T
    value = far + sharp**2 / np.sqrt(2)
    return float((value >= value[0] - 1e-9).mean())


@pytest.mark.parametrize("seed", range(3))
def test_the_p_value_is_that_of_all_deals(seed):
    generator = np.random.default_rng(seed)
    laws = generator.normal(size=(2, 3, 3)) * 2
    prompts = [(drawn(generator, laws[0], 1, 4, 3), drawn(generator, laws[1], 2, 3 + k, 3)) for k in range(2)]
    exact, found = exactly(prompts), same_law(prompts, deals=20_000).p
    assert found == pytest.approx(exact, abs=0.01)


def rejected(one: np.ndarray, other: np.ndarray, *, trials: int, alpha: float, coupled: bool = False) -> int:
    found = 0
    for trial in range(trials):
        generator = np.random.default_rng((7, trial))
        prompts = []
        for start in range(12):
            seed = (8, trial, start)
            mine = drawn(np.random.default_rng(seed) if coupled else generator, one, 1 + start % 7, 6)
            prompts.append(
                (mine, drawn(np.random.default_rng(seed) if coupled else generator, other, 1 + start % 7, 6))
            )
        found += same_law(prompts, seed=trial, deals=199).p <= alpha
    return found


LAW = np.random.default_rng(3).normal(size=(8, 8)) * 2


def test_servers_that_draw_by_the_same_seeds_are_not_accused_for_it():
    """Then answers of both to one prompt are more alike than two of one of them."""
    assert rejected(LAW, LAW, trials=12, alpha=0.1, coupled=True) == 0


@pytest.mark.parametrize(
    "other", [LAW * 5.0, LAW[:, ::-1], np.full_like(LAW, 0.0)], ids=["nearly greedy", "other", "flat"]
)
def test_other_laws_are_told_apart(other):
    assert rejected(LAW, other, trials=8, alpha=0.01) == 8


def test_where_they_differ_most_is_told():
    same = [[1, 2], [1, 3], [2]]
    found = same_law([(same, same), ([[5, 1], [5, 2], [5, 3], [6]], [[6], [7], [5, 4]])])
    assert (found.prompt, found.length, found.count, found.of) == (1, 1, (3, 1), (4, 3))


@pytest.mark.parametrize("prompts", [[], [([[1]], [])], [([[1, 2]], [[3]])], [([[1], [1]], [[1], [1]])]])
def test_what_cannot_tell_tells_nothing(prompts):
    assert same_law(prompts).p == 1.0
    assert same_law(prompts).prompt is None
