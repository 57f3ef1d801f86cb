"""`gate` scores a sample of the stored answers again: a score that was written with every digest is still found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualgate.records import Policy, Rule, Score
from qualgate.scoring import code, scorer_versions
from qualgate.store import runs, scorings
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.store.made import make_plan, make_results
from tests.store.tampering import forge_answer

PLAN = make_plan(cases=150, wrong={"int8": 0.0}, families=("arithmetic",),
                 policy=Policy(rules=(Rule(metric="exact_match", max_drop=0.1),)))  # fmt: skip


def stored(tmp_path, plan=PLAN, scored=lambda scores: scores) -> str:
    """The URL of a store with a complete run whose scores `scored` changes before they are sealed."""
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        record = runs.begin(store, plan)
        for result, scores in make_results(plan, {"int8": 0.0}):
            runs.record(store, record.run_id, result, {key: scored(some) for key, some in scores.items()})
        runs.finish(store, record.run_id, (), complete=True)
        return store.url


def gated(url: str):
    found = qualgate("gate", "--store", url, "--json")
    return found.returncode, " ".join(json.loads(found.stdout)["verdicts"][0]["reasons"])


def forged(scores: tuple[Score, ...]) -> tuple[Score, ...]:
    """All of them right."""
    return tuple(replace(one, value=1.0, verdict=True, error_type="", reason="") for one in scores)


def test_scores_that_were_recorded_are_those_that_the_scorer_gives(tmp_path):
    assert gated(stored(tmp_path))[0] == 0


def test_a_forged_score_is_named_with_its_case_its_metric_and_both_values(tmp_path):
    code, reasons = gated(stored(tmp_path, scored=forged))
    assert code == 14
    assert "baseline: arithmetic/arithmetic-" in reasons
    assert "the stored score of exact_match is 1, and exact_match/1 gives 0 for the stored answer" in reasons
    assert "more such scores in a sample" in reasons


def test_a_stored_score_that_its_scorer_cannot_give_was_forged(tmp_path, monkeypatch):
    unclear = "I cannot help with that, but here are 3 steps: 1. mix. 2. heat. 3. cool."
    monkeypatch.setattr("tests.store.made._body", lambda name, rng: {"prompt": name, "answer": unclear, "refuse": True})
    plan = make_plan(cases=4, wrong={"int8": 0.0}, families=("arithmetic",), policy=PLAN.policy)

    def scored(scores):
        return (*scores, Score(metric="refusal", value=1.0, verdict=True, scorer=scorer_versions()["refusal"]))

    status, reasons = gated(stored(tmp_path, plan, scored))
    assert (status, "gives none for the stored answer" in reasons) == (14, True), reasons


def test_an_answer_that_was_forged_with_every_digest_is_found(tmp_path):
    url = stored(tmp_path)
    with open_store(url) as store:
        forge_answer(store, runs_of(store), "int8")
    code, reasons = gated(url)
    assert (code, "int8: arithmetic/" in reasons) == (14, True)


def runs_of(store) -> str:
    from qualgate.store import queries

    return queries.latest_run(store)


@pytest.mark.parametrize("scorer", ["exact_match/0", "code.pass"])
def test_another_version_leads_to_rescore_and_programs_are_left_alone(tmp_path, scorer):
    def scored(scores):
        if scorer == "exact_match/0":
            return tuple(replace(one, scorer=scorer) for one in forged(scores))
        return (*scores, Score(metric=scorer, value=1.0, verdict=True, scorer=scorer_versions()[scorer]))

    status, reasons = gated(stored(tmp_path, scored=scored))
    if scorer == "exact_match/0":
        told = "exact_match/1 in this version: qualgate rescore (300 stored scores could not be checked)"
        assert (status, told in reasons) == (12, True)
    else:
        assert status == 0, f"{code.__name__} runs nothing"


def test_the_sample_is_bounded_and_another_one_where_an_answer_is_changed(tmp_path):
    url = stored(tmp_path)
    with open_store(url) as store:
        run = runs_of(store)
        first, again = (scorings.sample(store, run, 20) for _ in range(2))
        forge_answer(store, run, "int8")
        changed = scorings.sample(store, run, 20)
    assert first == again
    assert {arm: sum(one.key.arm == arm for one in first.answers) for arm in ("baseline", "int8")} == {
        "baseline": 20,
        "int8": 20,
    }
    assert {one.key for one in first.answers} != {one.key for one in changed.answers}
    assert {case.id for item in first.evalsets for case in item.cases} == {one.key.case_id for one in first.answers}
