"""Plans against every other plan, where all that counts is known."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.speculation.control import PassCost
from qualgate.engine.speculation.plan import Prices, best_plan, faster, prices, shares_of
from tests.depth import examples

seconds = st.floats(1e-4, 1e-2)


def of_one(chances: list[float], price: Prices, count: int) -> float:
    """Tokens a second of one sequence with drafts of so many tokens."""
    tokens, reached = 1.0, 1.0
    for chance in chances[:count]:
        reached *= chance
        tokens += reached
    return tokens / (price.once + price.row + count * (price.step + price.token))


@given(st.lists(st.floats(0, 1), max_size=24), st.builds(Prices, seconds, seconds, seconds, seconds, seconds))
def test_of_one_sequence_no_other_length_says_more_tokens_a_second(chances, price):
    count = best_plan({0: chances}, price, {0: 1.0}).drafted.get(0, 0)
    best = max(of_one(chances, price, other) for other in range(len(chances) + 1))
    assert of_one(chances, price, count) >= best * (1 - 1e-9)


@pytest.mark.parametrize(
    ("alpha", "c", "gamma"), [(0.9, 0.266, 5), (0.95, 0.266, 9), (0.98, 0.266, 15), (0.8, 0.266, 3)]
)
def test_it_is_the_published_one_where_verifying_is_free(alpha, c, gamma):
    """ML-SpecQD's bandwidth floor: S = τ / (1 + γ c), of which the table of best γ is known."""
    price = prices(PassCost(1.0, 0.0, 0.0), PassCost(c, 0.0, 0.0))
    plan = best_plan({0: [alpha] * 32}, price, {0: 1.0})
    assert plan.drafted == {0: gamma}
    tokens = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert plan.expected[0] == pytest.approx(tokens)
    assert faster(plan, price, 1, {0: 1.0}) == pytest.approx(tokens / (1 + gamma * c))


def total(counts: tuple[int, ...], chances: list[float], price: Prices) -> float:
    """Seconds until each of so many rows has said one token more, where all others wait their turn: passes of a row are
    1 / τ, each takes its share of what passes and steps take once."""
    rows, seconds = len(counts), 0.0
    once = price.once + price.step * max(counts)
    for count, chance in zip(counts, chances, strict=True):
        said = sum(chance**place for place in range(count + 1))
        seconds += (once / rows + price.row + price.token * count) / said
    return seconds


@given(
    st.lists(st.floats(0.05, 0.95), min_size=2, max_size=3),
    st.builds(Prices, seconds, seconds, st.floats(0, 1e-4), seconds, seconds),
)
@examples(60)
def test_rows_that_differ_are_drafted_for_as_it_pays_for_each(chances, price):
    rows = range(len(chances))
    found = best_plan(
        {row: [chances[row]] * 5 for row in rows}, price, shares_of(dict.fromkeys(rows, 1.0), len(chances), waits=True)
    )
    mine = total(tuple(found.drafted.get(row, 0) for row in rows), chances, price)
    best = min(total(counts, chances, price) for counts in product(range(6), repeat=len(chances)))
    assert mine <= best * 1.05
    if len(set(chances)) == len(chances):
        by_chance = sorted(rows, key=lambda row: chances[row])
        counts = [found.drafted.get(row, 0) for row in by_chance]
        assert counts == sorted(counts)


def test_where_nobody_waits_the_row_that_is_likely_the_last_counts_most():
    passes = {0: 100.0, 1: 100.0, 2: 20.0}
    waiting = shares_of(passes, 3, waits=True)
    assert waiting == dict.fromkeys(passes, 1 / 3)
    alone = shares_of(passes, 3, waits=False)
    assert sum(alone.values()) == pytest.approx(1)
    assert alone[0] == alone[1] > 3 * alone[2]
    with_others = shares_of(passes, 5, waits=False)  # two that are not told of
    assert 0 < sum(with_others.values()) < 1


def test_of_costs_that_are_not_known_nothing_is_planned():
    nothing = Prices(0.0, 0.0, 0.0, 0.0, 0.0)
    assert best_plan({0: [0.9] * 4}, nothing, {0: 1.0}).drafted == {}
    assert faster(best_plan({}, nothing, {}), nothing, 1, {}) == 1.0
