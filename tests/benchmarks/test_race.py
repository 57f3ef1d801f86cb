"""Contenders in turns: who comes when, and what the table says of it. Clocks are made, so that nothing is timed."""

from __future__ import annotations

import pytest

from tests.benchmarks import race as races
from tests.benchmarks.race import Contender, best_sizes, race, standing


class Clock:
    """Seconds that pass when a contender works."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        self.turns: list[str] = []
        monkeypatch.setattr(races, "perf_counter", lambda: self.now)

    def contender(self, name: str, seconds: float, said=lambda kind: [kind]) -> Contender:
        cpu = 0.0

        def answer(kind: str):
            nonlocal cpu
            self.turns.append(name)
            self.now += seconds
            cpu += 2 * seconds
            return said(kind)

        return Contender(answer=answer, cpu=lambda: cpu)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def test_each_answers_each_kind_once_a_round_and_another_begins_every_round(clock):
    contenders = {"a": clock.contender("a", 1), "b": clock.contender("b", 1), "c": clock.contender("c", 1)}
    rounds = race("x", contenders, ["short", "long"], 3)
    assert "".join(clock.turns) == "abcabc" + "bcabca" + "cabcab"
    assert [[list(turns) for turns in one.values()] for one in rounds][1] == [["b", "c", "a"]] * 2


def test_a_ratio_is_the_other_s_seconds_over_one_s_own_over_all_kinds(clock):
    fast = clock.contender("fast", 2)
    slow = Contender(answer=lambda kind: clock.contender("slow", 4 if kind == "short" else 12).answer(kind))
    rounds = race("x", {"fast": fast, "slow": slow}, ["short", "long"], 2)
    stood = standing(rounds, "fast", "slow")
    assert list(stood.ratios) == [4.0, 4.0]
    assert stood.ratio == 4.0
    assert stood.by_kind == {"short": 2.0, "long": 6.0}
    assert (stood.cases, stood.unlike) == (2, 0)


def test_a_case_that_was_answered_otherwise_in_any_round_is_counted_once(clock):
    turns = iter(["abc", "abX", "aYX"])
    odd = clock.contender("odd", 1, lambda kind: list(next(turns)))
    rounds = race("x", {"right": clock.contender("right", 1, lambda kind: list("abc")), "odd": odd}, ["k"], 3)
    stood = standing(rounds, "right", "odd")
    assert (stood.cases, stood.unlike) == (3, 2)


def test_the_best_size_is_looked_for_by_kind_and_no_further_than_there_are_prompts(clock):
    tried: list[tuple[str, int]] = []
    seconds = {("short", 4): 3, ("short", 8): 2, ("long", 4): 1, ("long", 8): 2, ("long", 16): 0.5}

    def answer(kind: str, size: int):
        tried.append((kind, size))
        clock.now += seconds[kind, size]
        return []

    assert best_sizes(answer, {"short": 8, "long": 9}, (4, 8, 16)) == {"short": 8, "long": 16}
    assert tried == list(seconds)
