"""Chances against what was planted."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from qualgate.engine.speculation.acceptance import PRIOR_SURE, Acceptance, Fate, prior
from qualgate.engine.speculation.control import Costs, PassCost, window
from qualgate.engine.speculation.propose import Draft
from tests.engine.speculation.test_control import rate


def draft(matched: int = 8, size: int = 16, kind="baseline") -> Draft:
    return Draft(tuple(range(size)), kind, matched)


def said(agreed: int) -> list[int]:
    """What the model says of such a draft: so many of its tokens, then another one."""
    return [*range(agreed), -1]


def drawn(chance: float, rng: random.Random, most: int = 16) -> int:
    agreed = 0
    while agreed < most and rng.random() < chance:
        agreed += 1
    return agreed


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_chances_become_the_planted_ones_and_forget_what_was(chance):
    acceptance = Acceptance()
    rng = random.Random(3)
    for planted in (0.7, chance):
        for _ in range(3000):
            acceptance.observe(draft(0, 4), said(drawn(planted, rng, 4)))
    assert acceptance.chances(draft(0, 1)) == pytest.approx([chance], abs=0.1)


def test_chances_are_kept_by_kind_and_by_how_many_tokens_agreed():
    acceptance = Acceptance()
    before = acceptance.chances(draft(kind="own"))
    for _ in range(200):
        acceptance.observe(draft(2), said(0))
        acceptance.observe(draft(8), said(16))
    assert acceptance.chances(draft(2))[0] < 0.1
    assert acceptance.chances(draft(8))[0] > 0.9
    assert acceptance.chances(draft(2))[6:] == acceptance.chances(draft(8, 10))
    assert acceptance.chances(draft(kind="own")) == before


def test_before_anything_is_seen_chances_are_the_prior_ones_and_a_longer_match_promises_more():
    chances = Acceptance().chances(draft(0, 64))
    assert chances == prior(0, 64)
    assert all(0 < one <= other < 1 for one, other in pairwise(chances))


def test_what_follows_the_first_other_token_tells_nothing():
    one, other = Acceptance(), Acceptance()
    one.observe(draft(), [0, 1, -1])
    other.observe(draft(), [0, 1, -1, 3, 4, -1])
    assert one.chances(draft()) == other.chances(draft())


def surely(margin: float) -> Draft:
    return Draft((1,), "draft", 8, None, (margin,))


def test_chances_are_known_by_how_surely_a_token_was_drawn():
    acceptance = Acceptance()
    for at in range(300):
        acceptance.observe(surely(0.3), [at % 4 == 0])
        acceptance.observe(surely(5.0), [1])
    assert acceptance.sure("draft", 0.3) == pytest.approx(0.25, abs=0.1)
    assert acceptance.sure("draft", 5.0) > 0.95
    assert acceptance.sure("draft", 0.0) == PRIOR_SURE[0], "none was seen there"


@pytest.mark.parametrize("margins", [(), (5.0,)])
def test_a_row_and_a_task_that_miss_oftener_have_chances_of_their_own(margins):
    acceptance, good, bad = Acceptance(), Fate(), Fate()
    one = Draft((1,), "draft", 8, None, margins)
    for _ in range(60):
        for _ in range(4):
            acceptance.observe(one, [1], "easy", good)
        acceptance.observe(one, [0], "hard", bad)

    def chance(task: str, row: Fate | None) -> float:
        return acceptance.sure("draft", 5.0, task, row) if margins else acceptance.chances(one, task, row)[0]

    assert chance("", None) == pytest.approx(0.8, abs=0.1)
    assert chance("easy", None) > 0.9 > 0.5 > chance("hard", None)
    assert chance("easy", bad) < chance("easy", good)
    assert chance("hard", bad) <= chance("hard", None)


def test_what_was_tested_is_counted_and_never_forgotten():
    acceptance = Acceptance()
    for _ in range(1000):
        acceptance.observe(draft(8), [0, -1])
    assert acceptance.tested("baseline") == 2000
    assert acceptance.tested("own") == 0


@pytest.mark.parametrize("cost", [PassCost(3e-3, 2e-4, 5e-5), PassCost(1e-3, 5e-5, 4e-4)])
@pytest.mark.parametrize("chance", [0.0, 0.6, 0.95])
def test_what_is_learned_on_the_way_comes_near_the_best_fixed_window(cost, chance):
    sequences, rng = 16, random.Random(4)
    costs, acceptance = Costs(), Acceptance()
    tokens = seconds = 0.0
    for _ in range(400):
        proposed = draft()
        windows = [window(acceptance.chances(proposed), costs.now, sequences) for _ in range(sequences)]
        took = cost.seconds(sequences, sequences + sum(windows)) * rng.uniform(0.9, 1.1)
        costs.observe(sequences, sequences + sum(windows), took)
        for w in windows:
            now = said(drawn(chance, rng))[: w + 1]
            acceptance.observe(proposed, now)
            tokens += len(now)
        seconds += took
    best = max(rate([chance] * 16, w, cost, sequences) for w in range(17))
    assert tokens / seconds > 0.97 * best
