"""Stopping early, through the main path: real planning, scoring, storing and judging of made-up answers."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.gate.decide import decide
from qualgate.gate.early import lay_out
from qualgate.gate.peers.nel_policy import NelBenchmark, NelPolicy, as_text
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline import generating
from qualgate.pipeline.evidence import known, with_labels
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again, standing
from qualgate.records import EarlyStop, Job, JobFailure, Plan, Policy, Rule, Sampling, Stopped, Verdict
from qualgate.records.identity import content_hash
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.formats.body import report_schema
from qualgate.report.summary import load_report
from qualgate.store import queries, runs, stoppings
from qualgate.store.database import open_store
from qualgate.store.sealed import COVERED
from qualgate.workers.pool import Queue
from tests.depth import with_proofs
from tests.store.made import make_plan, make_result

WRONG = {"int8": 0.0, "mxfp4": 0.05, "int2-g32": 0.4}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),), stop=EarlyStop(seed=3))


def staged(plan: Plan) -> Plan:
    """The plan's jobs laid out anew, one a look and arm."""
    stop, stages = lay_out(plan.policy, (case for item in plan.evalsets for case in item.cases))
    jobs = []
    for arm in plan.arms:
        prompts = [prompt for job in plan.jobs if job.arm == arm for prompt in job.prompts]
        for index, questions in enumerate(stages):
            mine = tuple(p for p in prompts if (p.key.evalset, p.key.case_id, p.key.repeat) in questions)
            jobs.append(Job(index=index, arm=arm, prompts=mine, artifact="a", drafted=False, stage=index))
    return replace(plan, jobs=tuple(jobs), policy=replace(plan.policy, stop=stop))


PLAN = staged(make_plan(cases=150, wrong=WRONG, families=("arithmetic", "json_extract"), policy=POLICY))


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'qualgate.db'}"


class Broken(Exception):
    """The coordinator dies here."""


def workers(
    monkeypatch, seed: int = 0, *, fails: Callable[[Job], bool] = lambda job: False, dies_after: int | None = None,
    greedy: bool = False,
) -> None:  # fmt: skip
    """Two workers without a model, that take jobs by the pool's own rule and end them in a random order. greedy: they
    take whatever is ready, and never hear that it is not needed any more."""
    rng = random.Random(seed)
    known = {(item.name, case.id): case for item in PLAN.evalsets for case in item.cases}

    def run_jobs(jobs, settings, count, stop, tell, needed=lambda job: True):
        queue, busy, ended = Queue(list(jobs)), [], 0
        while True:
            if not greedy:
                queue.keep(needed)
            while len(busy) < 2 and (hand := queue.take(None, {})):
                busy += hand
            if not busy:
                return
            job = busy.pop(rng.randrange(len(busy)))
            ended += 1
            if ended == dies_after:
                raise Broken
            if fails(job):
                keys = tuple(prompt.key for prompt in job.prompts)
                yield JobFailure(index=job.index, arm=job.arm.name, keys=keys, error="out of memory")
                for orphan in queue.blocked_by(job):
                    keys = tuple(prompt.key for prompt in orphan.prompts)
                    yield JobFailure(index=orphan.index, arm=orphan.arm.name, keys=keys, error="no baseline")
                continue
            queue.finished(job)
            yield make_result(job, known, WRONG.get(job.arm.name, 0.0))[0]

    monkeypatch.setattr(generating, "run_jobs", run_jobs)


def run(url: str, plan: Plan = PLAN) -> tuple[str, tuple[Verdict, ...]]:
    """As `qualgate run`, from the plan on."""
    ours = SimpleNamespace(served=None)
    gate = SimpleNamespace(
        baseline=ours, variants=(ours,), budget=None, store_url=url, seed=0,
        sampling=Sampling(), evalset_refs=(), repeats=1, devices="cpu", workers=2, job_timeout=60.0, ray=None,
        path=Path("gate.yaml"),
    )  # fmt: skip
    with open_store(url) as store:
        record = runs.begin(store, plan)
        failures = generating.generate(plan, record, store, gate, lambda *said: None, lambda: None)  # type: ignore[arg-type]
        verdicts = decide(with_labels(known(store, record.run_id), plan), plan.policy).verdicts
        runs.finish(store, record.run_id, verdicts, complete=not failures)
    return record.run_id, verdicts


def query(url: str, statement: str) -> list[tuple]:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return connection.execute(statement).fetchall()


def said(verdicts: tuple[Verdict, ...]) -> dict[str, tuple[str, int]]:
    return {v.variant: (v.word, v.seen.questions if v.seen else 0) for v in verdicts}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> tuple[str, str, tuple[Verdict, ...]]:
    """A run that ended early, to be read alone: its store, id and verdicts."""
    url = f"sqlite:///{tmp_path_factory.mktemp('stopped') / 'qualgate.db'}"
    with pytest.MonkeyPatch.context() as patch:
        workers(patch)
        return url, *run(url)


@pytest.fixture
def copied(stopped, tmp_path) -> tuple[str, str]:
    url, run_id, _ = stopped
    shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "copy.db")
    return f"sqlite:///{tmp_path / 'copy.db'}", run_id


def test_an_equal_variant_and_a_collapse_are_settled_before_the_end_and_cost_no_more_answers(stopped):
    url, _, verdicts = stopped
    words = said(verdicts)
    assert words["int2-g32"][0] == "block"
    assert words["int8"][0] == "approve"
    assert words["int2-g32"][1] < words["int8"][1] < 300
    done = dict(query(url, "select arm, count(*) from units where status = 'done' group by arm"))
    assert words["int2-g32"][1] <= done["int2-g32"] < 300
    assert query(url, "select status from runs") == [("complete",)]
    (early,) = [v for v in verdicts if v.variant == "int8"]
    assert early.comparisons[0].method == "paired_betting/4"
    assert any(f"stopped early: {early.seen.questions} of 300 cases seen" in why for why in early.reasons)


@pytest.mark.parametrize("seed", with_proofs((2, 3), {2}))
def test_the_same_answers_give_the_same_verdicts_whichever_came_first(monkeypatch, url, stopped, seed):
    workers(monkeypatch, seed, greedy=seed == 3)
    assert run(url)[1] == stopped[2]


def test_the_stored_run_gives_the_same_verdicts_and_the_same_report_again(stopped):
    url, run_id, verdicts = stopped
    before = rendered(load_report(url, run_id), "json")
    again = decide_again(url, run_id, None)
    assert (again.verdicts, again.exit) == (verdicts, Exit.BLOCK)
    assert rendered(load_report(url, run_id), "json") == before


@pytest.mark.parametrize("after", with_proofs((2, 12), {2}))
def test_a_crash_loses_no_look_and_resuming_ends_where_an_unbroken_run_does(monkeypatch, url, stopped, after):
    workers(monkeypatch, dies_after=after)
    with pytest.raises(Broken):
        run(url)
    workers(monkeypatch, seed=5)
    assert run(url)[1] == stopped[2]
    assert query(url, "select count(*) from runs") == [(1,)]


def test_a_crash_between_the_answers_and_the_look_is_made_up_for(monkeypatch, url, stopped):
    with monkeypatch.context() as patch:
        workers(patch)
        patch.setattr(stoppings, "stop", lambda *told: (_ for _ in ()).throw(Broken))
        with pytest.raises(Broken):
            run(url)
    assert query(url, "select count(*) from sealed") == [(0,)]
    workers(monkeypatch, seed=6)
    assert run(url)[1] == stopped[2]


def test_a_failed_unit_ends_what_is_looked_at_and_the_run_until_it_is_done(monkeypatch, url, stopped):
    workers(monkeypatch, fails=lambda job: (job.arm.name, job.index) == ("int8", 1))
    found = {verdict.variant: verdict for verdict in run(url)[1]}
    assert (found["int8"].exit, found["int2-g32"].word) == (Exit.INFRASTRUCTURE, "block")
    assert query(url, "select status from runs") == [("incomplete",)]
    again = decide_again(url, None, None)
    assert {v.variant: v.exit for v in again.verdicts} == {name: v.exit for name, v in found.items()}
    workers(monkeypatch)
    assert run(url)[1] == stopped[2]
    assert query(url, "select status, count(*) from runs") == [("complete", 1)]


def test_a_failure_after_what_settled_the_verdict_changes_nothing(monkeypatch, url, stopped):
    last = len(PLAN.policy.stop.looks) - 1  # type: ignore[union-attr]
    workers(monkeypatch, fails=lambda job: job.arm.name == "int2-g32" and job.index == last, greedy=True)
    assert run(url)[1] == stopped[2]
    assert query(url, "select status from runs") == [("complete",)]


def test_a_variant_that_is_never_settled_is_judged_on_every_case_by_the_same_test(monkeypatch, url):
    strict = replace(POLICY, rules=(Rule(metric="exact_match", max_drop=0.01),))
    plan = staged(make_plan(cases=50, wrong={"int8": 0.0}, families=("arithmetic",), policy=strict))
    monkeypatch.setattr("tests.pipeline.test_early_stop.PLAN", plan)
    workers(monkeypatch)
    (verdict,) = run(url, plan)[1]
    assert (verdict.word, verdict.seen.questions, verdict.seen.settled) == ("undecided", 50, False)
    assert verdict.comparisons[0].method == "paired_betting/4"
    assert query(url, "select distinct status from units") == [("done",)]


def test_another_policy_decides_nothing_about_cases_chosen_by_looking(stopped):
    url, run_id, _ = stopped
    looser = replace(PLAN.policy, rules=(Rule(metric="exact_match", max_drop=0.19),))
    with open_store(url) as store:
        evidence = runs.evidence(store, run_id)
    for policy in (
        looser,
        replace(looser, stop=None),
        replace(PLAN.policy, stop=None),
        replace(PLAN.policy, alpha=0.1),
    ):
        found = {v.variant: v for v in decide(evidence, policy).verdicts}
        assert found["int8"].exit == found["int2-g32"].exit == Exit.UNDECIDED
        assert "another policy" in found["int8"].reasons[0]
    assert {v.exit for v in decide_plain(evidence, PLAN.policy) if v.variant != "mxfp4"} == {Exit.UNDECIDED}


def test_a_run_planned_with_looks_is_never_judged_by_a_second_test_though_nothing_stopped_it(monkeypatch, url):
    plan = staged(make_plan(cases=62, wrong={"int8": 0.0}, families=("arithmetic",), policy=POLICY))
    monkeypatch.setattr("tests.pipeline.test_early_stop.PLAN", plan)
    workers(monkeypatch)
    run_id, (looked,) = run(url, plan)
    assert looked.word == "undecided"
    with open_store(url) as store:
        assert all(arm.stopped is None for arm in runs.evidence(store, run_id).variants)
        stands = standing(store, run_id, None)
    assert stands.decided(stands.evidence).verdicts == (looked,)
    fixed = replace(plan.policy, stop=None)
    assert decide_plain(stands.evidence, fixed)[0].word == "approve", "what shopping for a test would bring"
    nel = NelPolicy(defaults=NelBenchmark(), benchmarks={})
    for policy in (fixed, replace(fixed, nel=as_text(nel))):
        (verdict,) = replace(stands, policy=policy).decided(stands.evidence).verdicts
        assert (verdict.word, verdict.exit) == ("undecided", Exit.UNDECIDED)
        assert "the better of two errs more often" in verdict.reasons[0]
    planned = replace(stands, then=fixed, policy=fixed)  # the reverse: one test, whatever a gate file says today
    assert planned.decided(stands.evidence).verdicts[0].word == "approve"


SET = "update sealed set body_json = json_set(body_json,"


def forge(url: str, statement: str) -> None:
    """Change the stopping record, and seal it again as one who knows how."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        for verb in ("update", "delete"):
            connection.execute(f"drop trigger sealed_no_{verb}")
        connection.execute(statement)
        connection.row_factory = sqlite3.Row
        for row in connection.execute("select * from sealed").fetchall():
            seal = content_hash({name: row[name] for name in COVERED})
            connection.execute("update sealed set sha256 = ? where part = ?", (seal, row["part"]))


@pytest.mark.parametrize(
    "statement",
    [
        "delete from sealed where part = 'int8'",
        f"{SET} '$.look', 1, '$.seen', 32, '$.word', 'approve') where part = 'int2-g32'",
        f"{SET} '$.look', 1, '$.seen', 32)",
        f"{SET} '$.look', body_json ->> 'look' + 1)",
        f"{SET} '$.seen', body_json ->> 'seen' + 1)",
        f"{SET} '$.seen', 1000000)",
        f"{SET} '$.look', 8, '$.seen', 268)",
        f"{SET} '$.order', 'x')",
        f"{SET} '$.policy.alpha', 0.2)",
        f"{SET} '$.word', 'approve') where part = 'int2-g32'",
    ],
)
def test_a_stopping_record_that_is_absent_or_forged_approves_nothing(copied, statement):
    url, run_id = copied
    changes_collapse = "int2" in statement
    forge(url, statement)
    found = {v.variant: v for v in decide_again(url, run_id, None).verdicts}
    assert found["int2-g32"].word != "approve"
    if not changes_collapse:
        assert found["int8"].exit in (Exit.UNDECIDED, Exit.INFRASTRUCTURE, Exit.INTEGRITY), found["int8"]


def test_a_record_that_was_changed_without_its_seal_is_found(copied):
    url, run_id = copied
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("drop trigger sealed_no_update")
        connection.execute(f"{SET} '$.look', 2)")
    found = decide_again(url, run_id, None)
    assert {v.exit for v in found.verdicts} == {Exit.INTEGRITY}
    assert "why 'int2-g32' was stopped" in " ".join(found.verdicts[0].reasons)


def test_units_called_settled_without_a_record_are_missing(copied):
    url, run_id = copied
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute(
            "update units set status = 'settled' where arm = 'mxfp4' and status = 'done' and unit_id % 2 = 0"
        )
    (found,) = [v for v in decide_again(url, run_id, None).verdicts if v.variant == "mxfp4"]
    assert found.exit in (Exit.INFRASTRUCTURE, Exit.INTEGRITY)


def test_an_early_run_is_scored_again_on_the_answers_that_there_are(copied):
    url, run_id = copied
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        before = connection.execute("select count(*) from units where status = 'settled'").fetchone()
    found = rescore(url, run_id, None)
    assert (found.scorers, before[0] > 0) == ({}, True)
    assert all(change.before == change.after for change in found.verdicts)


def test_stopping_by_another_policy_than_the_run_s_is_refused(url):
    plan = staged(make_plan(cases=40, wrong={"int8": 0.0}, families=("arithmetic",), policy=POLICY))
    with open_store(url) as store:
        record = runs.begin(store, plan)
        real = Stopped(look=1, seen=32, word="approve", order="", policy=plan.policy)
        with pytest.raises(UsageError, match="another policy"):
            stoppings.stop(store, record.run_id, "int8", replace(real, policy=replace(plan.policy, alpha=0.2)))
        stoppings.stop(store, record.run_id, "int8", real)
        with pytest.raises(IntegrityError):
            stoppings.stop(store, record.run_id, "int8", real)


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_says_how_many_cases_its_verdicts_saw(stopped, form):
    url, run_id, verdicts = stopped
    (block,) = [v.seen for v in verdicts if v.variant == "int2-g32"]
    (approve,) = [v.seen for v in verdicts if v.variant == "int8"]
    report = load_report(url, run_id)
    text = rendered(report, form)
    if form == "json":
        body = json.loads(text)
        Draft202012Validator(report_schema()).validate(body)
        assert {v["variant"]: v["seen"]["questions"] for v in body["verdicts"]} == {
            v.variant: v.seen.questions for v in verdicts if v.seen
        }
        return
    assert f"{block.questions} of 300 cases seen" in text
    if form not in ("annotations", "gitlab", "sarif"):  # which speak of what was not kept alone
        assert f"{approve.questions} of 300 cases seen" in text
    assert any(f"{approve.questions} of 300 cases seen, look {approve.look} of" in line for line in report.lines())


def test_lists_of_runs_tell_what_was_not_asked_from_what_is_missing(stopped):
    url, run_id, _ = stopped
    with open_store(url, create=False) as store:
        (line,) = queries.list_runs(store)
    assert (line.run_id, line.done + line.settled, line.errors) == (run_id, line.expected, 0)
    assert line.settled > 0
