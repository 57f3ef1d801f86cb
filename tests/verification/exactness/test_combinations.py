"""`bench combinations` on little: each combination is tried, and one that answers otherwise meets no goal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.verification.exactness import combinations


def rows(monkeypatch, unlike: int, tried: int = len(combinations.EXACT)):
    """Of a run whose parts are told."""
    rate = SimpleNamespace(value=1.5, lower=1.2, upper=1.8)
    level = SimpleNamespace(acceptance_rate=rate, tokens_per_verification_with_bonus=rate)
    one = SimpleNamespace(
        prompts=4, unlike=unlike, again=rate, as_json=dict,
        found=SimpleNamespace(levels=[level], gain=SimpleNamespace(measured=rate), memory={}),
    )  # fmt: skip
    turn = combinations.Turn(tokens=(1, 2), seconds=1.0)
    monkeypatch.setattr(combinations, "write_widened", lambda *_: None)
    monkeypatch.setattr(combinations, "_head", lambda *_: None)
    monkeypatch.setattr(combinations, "_tried", lambda *given: [(name, one) for name in list(given[2])[:tried]])
    monkeypatch.setattr(
        combinations, "_prefixed", lambda *_: {"prefixed": [dict.fromkeys(("plain", *combinations.DRAFTS), turn)] * 4}
    )
    return {row["id"]: row for row in combinations.run(quick=True)["goals"]}


def test_no_goal_is_met_where_an_answer_is_another_or_a_combination_is_missing(monkeypatch):
    assert rows(monkeypatch, unlike=0)["combined.answers"]["met"] is True
    wrong = rows(monkeypatch, unlike=1)["combined.answers"]
    assert (wrong["met"], wrong["measured"]) == (False, len(combinations.EXACT) + len(combinations.SERVED))
    assert rows(monkeypatch, unlike=0, tried=2)["combined.answers"]["met"] is False


@pytest.mark.proof
def test_every_combination_runs_and_answers_as_its_target():
    found = {row["id"]: row for row in combinations.run(quick=True)["goals"]}
    assert found["combined.answers"]["met"] is True
    gains = found["combined.gains"]["measured"]
    assert set(gains) == {*combinations.EXACT, *combinations.SERVED}
    assert all(one["accepted_of_proposed"] > 0 for one in gains.values())
    assert found["combined.gains"]["met"] is None, "one case a task proves no gain"
