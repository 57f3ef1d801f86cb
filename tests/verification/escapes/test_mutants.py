"""Mutants of hostile programs are programs, each is drawn again the same, and one does not spare those after it."""

from __future__ import annotations

import ast

import pytest

from qualgate.sandbox import Limits, Sandbox, probe
from tests.verification.escapes import mutants
from tests.verification.escapes.ground import SECRET, Ground


def test_most_mutants_of_hostile_programs_are_programs_and_differ():
    texts = [mutants.mutated(seed) for seed in range(60)]
    assert texts[:9] == [mutants.mutated(seed) for seed in range(9)]
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
        3: f"def attack(outside, marker): print({SECRET[:10]!r} + {SECRET[10:]!r})",
    }
    monkeypatch.setattr(mutants, "mutated", texts.__getitem__)
    sandbox = Sandbox(tier=found.tier, limits=Limits())
    place = Ground(folder=str(tmp_path), marker="1-a-1")
    assert mutants.mutants([0, 1, 2], sandbox, place) == (2, [])
    assert mutants.mutants([0, 3], sandbox, place) == (1, ["S16 seeds 0 to 3: a secret came out"])
