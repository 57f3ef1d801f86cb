"""Defects planted in real runs of the reference model: found, and told apart, from what the store holds."""

from __future__ import annotations

from typing import Any

import pytest

from qualgate.bench import planted_runs
from qualgate.bench.mutants import ANSWERS, DEFECTS, SOUND
from qualgate.bench.planted_runs import Batch, judged, planted_run, rates, rows, truths

CASES = 24
CHOSEN = ("0.5 of the budget", "another role marker", "JSON in a fence", "an accepted token lost", "a weight is NaN",
          "layer 0's down_proj zeroed", "the same")  # fmt: skip


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[dict[str, Any]]:
    mutants = {mutant.what: mutant for mutant in (*DEFECTS, *SOUND)}
    named = tuple((f"m{number}", mutants[what]) for number, what in enumerate(CHOSEN))
    batch = Batch(name="slice", seed=7001, sets=ANSWERS, mutants=named)
    store = tmp_path_factory.mktemp("planted") / "slice.db"
    planted_run(batch, store, CASES)
    return judged(batch, store)


def test_no_defect_of_a_real_run_is_approved_and_the_same_weights_are(lines):
    words = {line["what"]: line["word"] for line in lines}
    assert words.pop("the same") == "approve"
    assert "approve" not in words.values()


def test_the_cause_of_each_is_read_from_the_store(lines):
    assert {line["what"]: line["cause"] for line in lines} == {line["what"]: line["planted"] for line in lines}


def line(seed: int, lost: int, word: str = "approve", *, broken: bool = False, cause: str = "") -> dict[str, Any]:
    losses = [{"rule": "exact_match", "max_drop": 0.15, "n": 100, "lost": lost, "gained": 0}]
    return {"name": "m1", "what": "x", "planted": "recipe", "broken": broken, "seed": seed, "held_out": True,
            "word": word, "cause": cause, "compared": True, "losses": losses}  # fmt: skip


def test_the_truth_about_a_run_is_taken_from_the_other_seeds():
    assert truths([line(1, 0), line(2, 60)]) == ["defect", "sound"]
    assert truths([line(1, 60), line(2, 16)]) == ["", "defect"], "within two standard errors of the limit"
    assert truths([line(1, 0)]) == [""], "one seed alone tells nothing"
    assert truths([line(1, 0, broken=True)]) == ["defect"]


def test_approved_defects_blocked_sound_arms_and_wrong_causes_are_counted():
    missed = rates([line(1, 60), line(2, 60, "block", cause="recipe"), line(3, 60, "block", cause="kernel")])
    assert [missed[name] for name in ("defects", "approved", "found", "cause_right")] == [3, 1, 2, 1]
    alarms = rates([line(1, 0, "block"), line(2, 0), line(3, 0)])
    assert [alarms[name] for name in ("sound", "blocked", "sound_approved")] == [3, 1, 2]


def test_a_rate_beyond_the_goal_fails_its_row_and_a_few_arms_meet_none(monkeypatch):
    monkeypatch.setattr(planted_runs, "declared", lambda cases: {})
    few = {row["id"]: row for row in rows([line(1, 60, "block", cause="recipe"), line(2, 60, "block", cause="recipe")])}
    assert all(row["met"] is None and "too few" in row["reason"] for row in few.values())
    bad = {row["id"]: row["met"] for row in rows([line(1, 60), line(2, 60, "block", cause="kernel")])}
    assert (bad["planted.false_approve"], bad["planted.cause"]) == (False, False)
