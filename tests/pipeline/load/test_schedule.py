"""What is asked when: seeded, and distributed as it says."""

from __future__ import annotations

from collections import Counter
from math import exp

import numpy as np
import pytest
from scipy import stats

from qualgate.pipeline.load.schedule import Level, arrivals, is_closed, levels_of, prompt_of, replayed, turns
from qualgate.pipeline.load.trace import Arrival
from qualgate.records import Load

LONG = 20_000.0


def test_poisson_arrivals_have_exponential_gaps_and_poisson_counts():
    come = np.asarray(arrivals(2.0, LONG, 1.0, 5))
    assert stats.kstest(np.diff(come), lambda gap: 1 - np.exp(-2.0 * gap)).pvalue > 1e-3
    counts = np.bincount(come.astype(int), minlength=int(LONG))
    expected = [LONG * exp(-2.0) * 2.0**k / np.prod(range(1, k + 1)) for k in range(6)]
    seen = [int((counts == k).sum()) for k in range(6)]
    assert stats.chisquare([*seen, LONG - sum(seen)], [*expected, LONG - sum(expected)]).pvalue > 1e-3


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_variance_of_the_bursts(burstiness):
    gaps = np.diff(arrivals(5.0, LONG, burstiness, 5))
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1 / burstiness, rel=0.05)


def test_arrivals_lie_inside_their_time_and_come_again_by_their_seed_alone():
    come = arrivals(50.0, 10.0, 1.0, 5, 0, "50/s")
    assert come == tuple(sorted(come))
    assert come[0] >= 0
    assert come[-1] < 10.0
    assert come == arrivals(50.0, 10.0, 1.0, 5, 0, "50/s")
    others = {arrivals(50.0, 10.0, 1.0, 6, 0, "50/s"), arrivals(50.0, 10.0, 1.0, 5, 1, "50/s")}
    assert len(others | {come}) == 3


def test_a_trace_keeps_its_gaps_and_is_played_as_fast_as_asked():
    assert replayed([Arrival(at=100.0), Arrival(at=101.0), Arrival(at=105.0)], 2.0) == (0.0, 0.5, 2.5)


def test_every_prompt_is_asked_once_before_any_comes_again():
    asked = [prompt_of(number, 7, 5, 0, "4 at once") for number in range(21)]
    for cycle in (asked[:7], asked[7:14], asked[14:]):
        assert sorted(cycle) == list(range(7))
    assert len({tuple(asked[:7]), tuple(asked[7:14]), tuple(asked[14:])}) == 3
    assert asked == [prompt_of(number, 7, 5, 0, "4 at once") for number in range(21)]


def test_so_large_a_share_is_closed_and_always_the_same():
    closed = [is_closed(number, 0.25, 5, 0, "4 at once") for number in range(4_000)]
    assert stats.binomtest(sum(closed), 4_000, 0.25).pvalue > 1e-3
    assert closed == [is_closed(number, 0.25, 5, 0, "4 at once") for number in range(4_000)]
    assert not any(is_closed(number, 0.0, 5) for number in range(100))


def test_arms_come_right_after_each_other_and_each_is_first_as_often():
    levels = levels_of(Load(concurrency=(1, 4), rate=(2.0,)))
    order = turns(["a", "b", "c"], 400, levels, 5)
    groups = [order[at : at + 3] for at in range(0, len(order), 3)]
    for group in groups:
        assert {name for _, _, name in group} == {"a", "b", "c"}
        assert len({(number, level) for number, level, _ in group}) == 1
    firsts = Counter(tuple(name for _, _, name in group) for group in groups)
    assert len(firsts) == 6
    assert stats.chisquare(list(firsts.values())).pvalue > 1e-3
    assert [number for number, _, _ in order] == sorted(number for number, _, _ in order)


def test_levels_are_named_as_people_say_them():
    load = Load(concurrency=(16,), rate=(0.5,), trace="t.jsonl", speed=2.0)
    assert [level.label for level in levels_of(load)] == ["16 at once", "0.5/s", "trace x2"]
    assert levels_of(Load())[0] == Level(kind="concurrency", value=1)
