"""A small slice of the scoring benchmark: its mutants are the same each time, and its checks can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.bench import scoring
from qualgate.bench.shape import GOALS
from qualgate.scoring import registry


def test_mutants_are_seeded_and_differ():
    first = list(scoring.mutants(300, 1))
    assert first == list(scoring.mutants(300, 1))
    assert len(set(first)) > 250
    assert first != list(scoring.mutants(300, 2))


def test_no_scorer_fails_or_hangs_on_mutants():
    found = scoring.hostile(150)
    assert (found["crashes"], found["hangs"]) == ([], [])


def test_a_scorer_that_raises_or_hangs_is_found(monkeypatch):
    def raising(case, evalset, text):
        raise RecursionError

    def endless(case, evalset, text):
        while True:
            pass

    json_scorer = registry.find("json")
    monkeypatch.setattr(registry, "SHIPPED", tuple(replace(json_scorer, function=f) for f in (raising, endless)))
    monkeypatch.setattr(scoring, "SLOW", 0.02)
    monkeypatch.setattr(scoring, "HUNG", 0.05)
    found = scoring.hostile(1)
    assert found["crashes"] == ["mutant 0, json/1 strict: RecursionError"]
    assert len(found["hangs"]) == 1


def test_every_row_is_measured_or_says_what_it_waits_for(monkeypatch):
    monkeypatch.setattr(scoring, "hostile", lambda count: {"crashes": [], "hangs": [], "slowest": 0.1})
    monkeypatch.setattr(scoring, "CHECKS", 50)
    result = scoring.run(quick=True)
    assert [row["id"] for row in result["goals"]] == list(GOALS["scoring"])
    for row in result["goals"]:
        assert (row["met"] is None) == ("reason" in row)


@pytest.mark.parametrize("name", ["tool_call_speed", "schema_speed"])
def test_what_is_timed_is_a_right_answer(name):
    said = scoring.checks()[name]()
    assert said is None or all(score.verdict for score in said.values())
