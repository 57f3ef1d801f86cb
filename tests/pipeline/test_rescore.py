"""A stored run scored again: no model, nothing lost, what changes is named, and both arms by the same scorers."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again
from qualgate.records import Evalset, FourArms, Policy, Rule
from qualgate.scoring import answer_format, registry, score, scorer_versions
from qualgate.scoring.exact_match import score_exact_match
from qualgate.store import decisions, queries, runs, scorings
from qualgate.store.database import open_store
from tests.store.made import make_identity, make_plan, make_results, make_run

WRONG = {"int8": 0.0, "int2-g32": 0.22}
EXACT = Policy(rules=(Rule(metric="exact_match", max_drop=0.1),))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'qualgate.db'}"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, str]:
    """A store with a run whose exact_match is today's, decided by it alone."""
    path = tmp_path_factory.mktemp("made") / "qualgate.db"
    with open_store(f"sqlite:///{path}") as store:
        plan = make_plan(cases=60, wrong=WRONG, families=("arithmetic",), policy=EXACT)
        return path, make_run(store, plan, WRONG)


@pytest.fixture
def run_id(url, made):
    """That run, in a store of the test's own."""
    with sqlite3.connect(made[0]) as source, sqlite3.connect(url.removeprefix("sqlite:///")) as target:
        source.backup(target)
    return made[1]


@pytest.fixture
def next_version(monkeypatch):
    """This program with another exact_match: the answer counts when its last character is the reference's."""

    def last_character(case, evalset, text):
        right = text[-1:] == case.body["answer"][-1:]
        [score] = score_exact_match(case.body, text).values()
        said = replace(score, value=float(right), verdict=right, scorer="exact_match/99")
        return {"exact_match": replace(said, error_type="" if right else "other_end")}

    changed = replace(registry.find("exact_match"), version="exact_match/99", function=last_character)
    monkeypatch.setitem(registry._BY_METRIC, "exact_match", changed)
    registry.scorers_of.cache_clear()
    yield changed
    registry.scorers_of.cache_clear()


def rows(url: str, query: str) -> list[tuple]:
    with open_store(url) as store, store.read() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def change(url: str, statement: str) -> None:
    with open_store(url) as store, store.write() as connection:
        connection.execute(text(statement))


def words(found) -> dict[str, tuple[str, str]]:
    return {one.after.variant: (one.before.word, one.after.word) for one in found.verdicts}


RECORDED = "select * from scores where scoring = 0 order by unit_id, metric"


def test_the_verdicts_that_change_are_named_with_the_scores_that_flipped(url, run_id, next_version):
    found = rescore(url, None, None)
    assert found.scorers == {"exact_match": ("exact_match/1", "exact_match/99")}
    assert words(found) == {"int8": ("approve", "approve"), "int2-g32": ("block", "approve")}
    assert (found.answers, found.exit, found.stored) == (180, Exit.APPROVE, True)
    with open_store(url) as store:
        answers = {answer.key: answer for answer in scorings.read(store, run_id).answers}
        cases = {(s.name, c.id): c for s in scorings.read(store, run_id).evalsets for c in s.cases}
    flipped = {
        key
        for key, answer in answers.items()
        if (answer.text == (said := cases[key.evalset, key.case_id].body["answer"])) != (answer.text[-1:] == said[-1:])
    }
    assert len(flipped) > 5
    assert {one.key for one in found.changes} == flipped
    assert all((one.before.verdict, one.after.verdict) == (False, True) for one in found.changes)


def test_old_scores_verdicts_and_decisions_stay(url, run_id, next_version):
    with open_store(url) as store:
        seen = queries.run_summary(store, run_id).verdict("int2-g32")
        decisions.append(
            store,
            run_id,
            "int2-g32",
            decisions.Said(action="block", name="Libe", reason="seen"),
            decisions.Seen(seen.sha256),
        )
        old = runs.evidence(store, run_id)
    before, verdicts = rows(url, RECORDED), rows(url, "select * from verdicts order by verdict_id")
    rescore(url, run_id, None)
    assert rows(url, RECORDED) == before
    assert rows(url, "select * from verdicts order by verdict_id")[: len(verdicts)] == verdicts
    with open_store(url) as store:
        assert runs.evidence(store, run_id, scoring=0) == old
        now = queries.run_summary(store, run_id).verdict("int2-g32")
        assert now.verdict.word == "approve"
        assert (now.decision, len(now.decisions)) == (None, 1), "it was made about another verdict"
        decisions.check_chain(store)


def test_the_gate_refuses_stale_scores_until_they_are_rescored_and_then_agrees(url, run_id, next_version):
    stale = decide_again(url, run_id, None)
    assert stale.exit == Exit.UNDECIDED
    assert any("exact_match/1, which is exact_match/99 in this version: qualgate rescore" in line
               for line in stale.verdicts[0].reasons)  # fmt: skip
    found = rescore(url, run_id, None)
    again = decide_again(url, run_id, None)
    assert again.verdicts == tuple(one.after for one in found.verdicts)
    with open_store(url) as store:
        arms = runs.evidence(store, run_id)
    scorers = {unit.scorers["exact_match"] for arm in (arms.baseline, *arms.variants) for unit in arm.units}
    assert scorers == {"exact_match/99"}, "every arm, the baseline among them"


def test_scores_of_two_versions_are_never_compared(url, run_id, next_version):
    rescore(url, run_id, None)
    with open_store(url) as store:
        old, new = runs.evidence(store, run_id, scoring=0), runs.evidence(store, run_id)
    for verdict in decide_plain(replace(new, baseline=old.baseline), EXACT):
        assert verdict.word == "undecided"
        assert any("not scored by the same scorer version" in reason for reason in verdict.reasons)


def test_with_scorers_of_today_there_is_nothing_to_do(url, run_id):
    verdicts = rows(url, "select * from verdicts")
    found = rescore(url, run_id, None)
    assert (found.scorers, found.answers, found.changes, found.stored) == ({}, 0, (), False)
    assert words(found) == {"int8": ("approve", "approve"), "int2-g32": ("block", "block")}
    assert rows(url, "select * from verdicts") == verdicts
    assert rows(url, "select * from sealed") == []


def test_a_dry_run_says_the_same_and_stores_nothing(url, run_id, next_version):
    verdicts = rows(url, "select * from verdicts")
    dry = rescore(url, run_id, None, keep=False)
    assert rows(url, "select * from verdicts") == verdicts
    assert rows(url, "select count(*) from scores where scoring > 0") == [(0,)]
    wet = rescore(url, run_id, None)
    assert replace(dry, stored=True) == wet


def test_an_interrupted_rescoring_leaves_nothing_and_is_begun_again(url, run_id, next_version, monkeypatch):
    def interrupted(arm, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescore(url, run_id, None, progress=interrupted)
    assert rows(url, "select count(*) from scores where scoring > 0") == [(0,)]
    with monkeypatch.context() as killed:  # after the scores, before the verdicts
        killed.setattr(runs, "add_verdicts", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rescore(url, run_id, None)
    assert len(rows(url, "select * from sealed")) == 1
    rescore(url, run_id, None)
    assert len(rows(url, "select * from sealed")) == 1
    with open_store(url) as store:
        assert queries.run_summary(store, run_id).verdict("int2-g32").verdict.word == "approve"


def test_flips_are_read_from_the_newest_of_several_scorings(url, run_id, next_version, monkeypatch):
    with open_store(url) as store:
        lost = [(one.lost, one.pairs) for one in queries.flip_counts(store, run_id, "int2-g32")]
    rescore(url, run_id, None)
    with open_store(url) as store:
        fewer = [(one.lost, one.pairs) for one in queries.flip_counts(store, run_id, "int2-g32")]
        [flip, *_] = queries.flips(store, run_id, "int2-g32", direction="lost")
        detail = queries.case_detail(store, run_id, "int2-g32", flip.evalset, flip.case_id)
    assert [pairs for _, pairs in fewer] == [pairs for _, pairs in lost], "each pair once, not once a scoring"
    assert sum(count for count, _ in fewer) < sum(count for count, _ in lost)
    assert [(one.scorer, one.error_type) for one in detail.variant.scores] == [("exact_match/99", "other_end")]
    newer = replace(next_version, version="exact_match/100")
    monkeypatch.setitem(registry._BY_METRIC, "exact_match", newer)
    registry.scorers_of.cache_clear()
    assert rescore(url, run_id, None).scorers == {"exact_match": ("exact_match/99", "exact_match/100")}
    assert rows(url, "select part from sealed order by sealed_id") == [("1",), ("2",)]


def test_metrics_whose_scorer_is_the_same_keep_their_scores(url):
    """The made-up run's tool_call.valid is of version 1, by a rule of its own; its exact_match is today's."""
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=20, wrong=WRONG, families=("tool_calls",)), WRONG)
    found = rescore(url, run_id, None)
    assert found.scorers == {"tool_call.valid": ("tool_call/1", scorer_versions()["tool_call.valid"])}
    columns = "unit_id, value, verdict, error_type, extracted, reason, scorer"
    kept = f"select {columns} from scores where metric = 'exact_match' and scoring = %d order by unit_id"
    assert rows(url, kept % 0) == rows(url, kept % 1)
    assert {one.after.metric for one in found.changes} <= {"tool_call.valid"}


@pytest.mark.parametrize(
    "tampering",
    [
        "update scores set value = 1 - value, verdict = 1 - verdict where scoring = 1 and unit_id = 1",
        "update scores set scorer = 'exact_match/98' where scoring = 1",
        "update scores set reason = 'x' where scoring = 1 and unit_id = 7",
        "delete from scores where scoring = 1 and unit_id = 7",
        "update scores set scoring = 1 where scoring = 0 and unit_id = 7",
        "update scores set value = 1 - value where scoring = 0 and unit_id = 7",
        "update units set text = 'x' where unit_id = 7",
    ],
)
def test_new_scores_that_were_changed_are_found(url, run_id, next_version, tampering):
    rescore(url, run_id, None)
    if "set scoring" in tampering:
        change(url, "delete from scores where scoring = 1 and unit_id = 7")
    change(url, tampering)
    assert decide_again(url, run_id, None).exit == Exit.INTEGRITY
    with pytest.raises(IntegrityError, match="cannot be scored again"):
        rescore(url, run_id, None)


def test_a_case_that_the_new_version_cannot_score_is_named(url, run_id, next_version, monkeypatch):
    def needs_more(body: dict, evalset: Evalset):
        yield "exact_match needs `unit`; it is missing"

    monkeypatch.setitem(registry._BY_METRIC, "exact_match", replace(next_version, faults=needs_more))
    registry.scorers_of.cache_clear()
    with pytest.raises(UsageError, match="arithmetic/arithmetic-0000: exact_match needs `unit`") as error:
        rescore(url, run_id, None)
    assert "and 55 more" in str(error.value)


def test_four_arms_are_judged_as_four_arms(url, next_version, monkeypatch):
    wrong = {"int4": 0.2, "drafted": 0.0, "both": 0.2}
    arms = FourArms(quantization="int4", speculation="drafted", both="both", seed=3, blocks=("BQSX",))
    with open_store(url) as store:
        plan = make_plan(cases=60, wrong=wrong, families=("arithmetic",), policy=replace(EXACT, four_arm=arms))
        same = {"drafted": "baseline", "both": "int4"}
        weights = {name: make_identity(same.get(name, name)) for name in plan.identities}
        record = runs.begin(store, replace(plan, identities=weights))
        for result, scores in make_results(plan, wrong):
            runs.record(store, record.run_id, replace(result, identity=weights[result.arm]), scores)
        runs.finish(store, record.run_id, (), complete=True)
    was = decide_four(_all_of(url), plan.policy)
    found = rescore(url, None, None)
    assert [one.before for one in found.verdicts] == list(was)
    assert [one.after.variant for one in found.verdicts] == ["int4", "drafted", "both"]
    last = found.verdicts[-1].after
    assert found.exit == last.four_arm.exit
    quality = {(step.arm, step.step): step.status for step in last.four_arm.steps}["int4", "quality"]
    assert quality == "proven", "by the last character, int4 loses nothing"
    assert {(step.arm, step.step): step.status for step in was[-1].four_arm.steps}["int4", "quality"] == "broken"
    assert decide_again(url, None, None).verdicts == tuple(one.after for one in found.verdicts)
    shown = CliRunner().invoke(app, ["rescore", "--store", url])
    assert shown.stdout.splitlines()[-1].startswith("to be served of the four arms: ")
    assert shown.exit_code == found.exit


def _all_of(url):
    with open_store(url) as store:
        return runs.evidence(store, queries.latest_run(store), answers=True)


def test_a_metric_that_only_a_rule_asked_for_is_scored_again_too(url, monkeypatch):
    """format.* is of no evalset: a rule asks for it."""
    with open_store(url) as store:
        plan = make_plan(cases=20, wrong=WRONG, families=("arithmetic",), policy=EXACT)
        cases = {(item.name, case.id): (case, item) for item in plan.evalsets for case in item.cases}
        record = runs.begin(store, plan)
        for result, scores in make_results(plan, WRONG):
            said = {
                one.key: (*scores[one.key], *score(cases[one.key.evalset, one.key.case_id][0], Evalset(
                    name="x", version="1", sha256="", metrics=()), one.text, one.finish_reason, ("format.nonempty",)))
                for one in result.completions
            }  # fmt: skip
            runs.record(store, record.run_id, result, said)
        runs.finish(store, record.run_id, decide_plain(runs.evidence(store, record.run_id), plan.policy), complete=True)
    monkeypatch.setattr(answer_format, "SCORER", "format/99")
    found = rescore(url, None, None)
    assert found.scorers == {"format.nonempty": ("format/4", "format/99")}
    assert rescore(url, None, None).scorers == {}
    assert rows(url, "select distinct metric, scorer from scores where scoring = 1 order by metric") == [
        ("exact_match", "exact_match/1"), ("format.nonempty", "format/99")
    ]  # fmt: skip


def test_a_normalizer_that_is_not_installed_any_more_is_named(url, next_version):
    with open_store(url) as store:
        plan = make_plan(cases=4, wrong=WRONG, families=("arithmetic",), policy=EXACT)
        sets = tuple(replace(item, normalizers=("strip", "digits_only")) for item in plan.evalsets)
        make_run(store, replace(plan, evalsets=sets), WRONG)
    with pytest.raises(UsageError, match="the normalizer digits_only, which no installed package offers"):
        rescore(url, None, None)


def test_a_metric_that_this_version_does_not_score_is_refused(url, run_id, monkeypatch):
    monkeypatch.setattr("qualgate.pipeline.rescore.scorer_versions", lambda: {"numeric": "numeric/3"})
    with pytest.raises(UsageError, match="no scorer of exact_match, which the run was scored by: run again"):
        rescore(url, run_id, None)


def test_the_command_speaks_to_people_and_to_machines(url, run_id, next_version):
    shown = CliRunner().invoke(app, ["rescore", "--store", url, "--dry-run"])
    assert shown.exit_code == Exit.APPROVE, shown.output
    assert "exact_match: exact_match/1 -> exact_match/99" in shown.stdout
    assert "nothing was stored" in shown.stdout
    assert "int2-g32: exact_match wrong -> right: " in shown.stdout
    last = shown.stdout.splitlines()[-1]
    assert last.startswith("int2-g32  BLOCK -> APPROVE  ")
    body = json.loads(CliRunner().invoke(app, ["rescore", run_id, "--store", url, "--json"]).stdout)
    assert body["scorers"] == {"exact_match": {"before": "exact_match/1", "after": "exact_match/99"}}
    assert [(one["variant"], one["before"], one["after"]) for one in body["verdicts"]] == [
        ("int8", "approve", "approve"), ("int2-g32", "block", "approve")
    ]  # fmt: skip
    assert body["stored"] is True
    assert {"arm", "evalset", "case_id", "repeat", "metric", "before", "after"} == body["changes"][0].keys()
    done = CliRunner().invoke(app, ["rescore", "--store", url])
    assert "every score is by this version's scorers and these evalsets already" in done.stdout
