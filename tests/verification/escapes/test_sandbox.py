"""The sandbox's benchmark judges what it measured, and says so where it could not measure."""

from __future__ import annotations

import ast
from itertools import cycle

import pytest

from qualgate.sandbox import Limits, Sandbox, Tier, probe
from tests.verification.escapes import sandbox as bench
from tests.verification.escapes.hostile import ESCAPES, FORGERIES, FORGERY_TESTS
from tests.verification.escapes.sandbox import Pair

NOWHERE = Sandbox(tier=Tier(name="A", bwrap="/bin/false"))


def pairs(monkeypatch, *given: Pair) -> None:
    endless = cycle(given)
    monkeypatch.setattr(bench, "overhead", lambda sandbox: next(endless))


def test_overhead_is_the_median_of_the_pairs_that_found_the_machine_quiet(monkeypatch):
    monkeypatch.setattr(bench.os, "cpu_count", lambda: 2)
    pairs(monkeypatch, Pair(wall=0.020, busy=1.0), Pair(wall=0.500, busy=2.0), Pair(wall=0.030, busy=1.2))
    row = bench._overhead_row(NOWHERE, 10, None)
    assert (row["measured"], row["met"], row["spread"]) == (25.0, True, [20, 30])
    pairs(monkeypatch, Pair(wall=0.041, busy=1.0))
    assert bench._overhead_row(NOWHERE, 10, None)["met"] is False


def test_a_machine_that_is_never_quiet_fails_no_healthy_sandbox(monkeypatch):
    monkeypatch.setattr(bench.os, "cpu_count", lambda: 2)
    pairs(monkeypatch, Pair(wall=0.500, busy=2.0))
    row = bench._overhead_row(NOWHERE, 10, None)
    assert row["met"] is None
    assert row["reason"] == "0 of 100 pairs found the machine quiet, 10 are needed"


def test_most_mutants_of_hostile_programs_are_programs_and_differ():
    texts = [bench._mutated(seed) for seed in range(60)]
    assert texts == [bench._mutated(seed) for seed in range(60)]
    assert len(set(texts)) == 60
    whole = 0
    for text in texts:
        try:
            whole += any(getattr(node, "name", "") == "attack" for node in ast.parse(text).body)
        except (SyntaxError, ValueError):
            continue
    assert whole > 40


def test_mutants_that_end_their_sandbox_do_not_spare_those_after_them(monkeypatch, tmp_path):
    found = probe("A")
    if found.tier is None:
        pytest.skip(str(found))
    texts = {
        0: "def attack(outside, marker): open('ran', 'a').write('0')",
        1: "def attack(outside, marker): os.kill(os.getppid(), 9); time.sleep(1)",
        2: "def attack(outside, marker): print(open('ran').read() if os.path.exists('ran') else 'clean')",
        3: f"def attack(outside, marker): print({bench.SECRET[:10]!r} + {bench.SECRET[10:]!r})",
    }
    monkeypatch.setattr(bench, "_mutated", texts.__getitem__)
    sandbox = Sandbox(tier=found.tier, limits=Limits())
    place = bench.Ground(folder=str(tmp_path), marker="1-a-1")
    assert bench.mutants([0, 1, 2], sandbox, place) == (2, [])
    assert bench.mutants([0, 3], sandbox, place) == (1, ["S16 seeds 0 to 3: a secret came out"])


def test_the_suite_is_as_large_as_it_says():
    assert len(FORGERIES) >= 80
    assert len(FORGERY_TESTS) == 10
    assert {name.split()[0] for name in ESCAPES} >= {
        f"S{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15)
    }
