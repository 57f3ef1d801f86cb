"""Mutants of answers are the same each time, no scorer fails on them, and one that did would be found."""

from __future__ import annotations

from dataclasses import replace

from qualgate.scoring import registry
from tests.verification.escapes import hostile_answers


def test_mutants_are_seeded_and_differ():
    first = list(hostile_answers.mutants(60, 1))
    assert first == list(hostile_answers.mutants(60, 1))
    assert len(set(first)) > 50
    assert first != list(hostile_answers.mutants(60, 2))


def test_no_scorer_fails_or_hangs_on_mutants():
    found = hostile_answers.hostile(50)
    assert (found["crashes"], found["hangs"]) == ([], [])


def test_a_scorer_that_raises_or_hangs_is_found(monkeypatch):
    def raising(case, evalset, text):
        raise RecursionError

    def endless(case, evalset, text):
        while True:
            pass

    json_scorer = registry.find("json")
    monkeypatch.setattr(registry, "SHIPPED", tuple(replace(json_scorer, function=f) for f in (raising, endless)))
    monkeypatch.setattr(hostile_answers, "SLOW", 0.02)
    monkeypatch.setattr(hostile_answers, "HUNG", 0.05)
    found = hostile_answers.hostile(1)
    assert found["crashes"] == [f"mutant 0, {json_scorer.version} strict: RecursionError"]
    assert len(found["hangs"]) == 1
