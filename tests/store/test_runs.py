"""What a run's records promise: at-least-once execution, exactly-once effect, nothing half-written."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import fields, replace
from math import inf

import pytest
from sqlalchemy import event, select, text

from qualgate.errors import IntegrityError, UsageError
from qualgate.gate.verdict import decide_plain
from qualgate.records import Generation, JobFailure, Policy, Rule, Served, Spent, Verdict
from qualgate.store import bulk, queries, runs, seal
from qualgate.store.database import open_store
from qualgate.store.tables import units
from tests.store.conftest import SMALL
from tests.store.made import make_identity, make_plan, make_results, make_run
from tests.store.tampering import tamper


@pytest.fixture
def begun(store):
    return runs.begin(store, SMALL).run_id


def execute(store, statement: str, **values):
    with store.write() as connection:
        return connection.execute(text(statement), values)


def count(store, query: str):
    with store.read() as connection:
        return connection.execute(text(query)).scalar_one()


def test_the_closed_list_is_written_before_anything_is_generated(store, begun):
    evidence = runs.evidence(store, begun)
    assert set(evidence.expected) == set(SMALL.expected)
    assert all(arm.units == () and arm.identity is None for arm in (evidence.baseline, *evidence.variants))
    assert evidence.metrics["tool_calls"] == ("exact_match", "tool_call.valid")
    assert set(evidence.max_new_tokens) == {(key.evalset, key.case_id) for key in SMALL.expected}
    assert set(evidence.max_new_tokens.values()) == {64}, "how many tokens each of its answers may take"
    assert evidence.integrity == ()
    assert runs.policy(store, begun) == SMALL.policy


def test_evidence_is_what_was_recorded(recorded):
    evidence = runs.evidence(*recorded)
    results = list(make_results(SMALL))
    completions = {c.key: c for result, _ in results for c in result.completions}
    drifts = {d.key: d for result, _ in results for d in result.drifts}
    scored = {key: scores for _, job in results for key, scores in job.items()}
    found = {unit.key: unit for arm in (evidence.baseline, *evidence.variants) for unit in arm.units}
    assert set(found) == set(SMALL.expected)
    for key, unit in found.items():
        completion = completions[key]
        assert unit.status == "done"
        assert unit.tokens == len(completion.token_ids)
        assert unit.values["latency.e2e"] == completion.e2e
        assert unit.values["latency.ttft"] == completion.ttft
        assert unit.values["latency.tpot"] == pytest.approx(completion.tpot)
        assert {score.metric: score.value for score in scored[key]}.items() <= unit.values.items()
        assert unit.scorers == {score.metric: score.scorer for score in scored[key]}
        if key.arm != "baseline":
            assert unit.kl == drifts[key].kl
            assert unit.first_divergence == drifts[key].first_divergence
    assert evidence.baseline.identity == make_identity("baseline")


def test_evidence_grows_by_what_was_recorded_since_to_what_reading_all_of_it_gives(store, begun):
    seen = runs.evidence(store, begun)
    for result, scores in make_results(SMALL):
        runs.record(store, begun, result, scores)
        seen = runs.grown(store, seen, {completion.key for completion in result.completions})
        assert seen == runs.evidence(store, begun)
    assert {unit.key for arm in (seen.baseline, *seen.variants) for unit in arm.units} == set(SMALL.expected)


def test_an_answer_that_is_not_what_was_recorded_is_no_growth(store, begun):
    seen, ((result, scores), *_) = runs.evidence(store, begun), make_results(SMALL)
    runs.record(store, begun, result, scores)
    first = result.completions[0].key
    execute(store, "update units set text = 'changed' where unit_id = 1")
    grown = runs.grown(store, seen, {completion.key for completion in result.completions})
    assert [first.case_id in fault for fault in grown.integrity] == [True]
    assert first not in {unit.key for unit in grown.baseline.units}


def test_a_latency_rule_over_drafted_answers_is_undecided(store):
    plan = make_plan(cases=40, wrong={"int8": 0.0})
    run_id = runs.begin(store, plan).run_id
    for result, scores in make_results(plan):
        drafted = 0 if result.arm == "baseline" else 5
        said = tuple(replace(c, baseline_proposed=drafted, ttft=0.01, e2e=0.01) for c in result.completions)
        runs.record(store, run_id, replace(result, completions=said), scores)
    evidence = runs.evidence(store, run_id)
    assert evidence.baseline.units[0].values["latency.e2e"] == 0.01
    timed = [Rule(metric=f"latency.{name}", max_ratio=1.1) for name in ("ttft", "e2e", "tpot")]
    [verdict] = decide_plain(evidence, Policy(rules=(Rule(metric="exact_match", max_drop=0.05), *timed)))
    assert [one.status for one in verdict.comparisons] == ["proven", "undecided", "undecided", "undecided"]
    assert verdict.word == "undecided"


def test_a_jobs_units_are_found_by_their_names_and_not_by_reading_all_that_an_arm_has(file):
    asked = []
    with open_store(file) as store:
        run_id = runs.begin(store, SMALL).run_id
        event.listen(store.engine, "before_cursor_execute", lambda *all: asked.append(all[2:4]))
        runs.record(store, run_id, *next(make_results(SMALL)))
        [found] = [one for one in asked if "units.case_hash" in one[0] and one[0].startswith("SELECT")]
        with store.read() as connection:
            told = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {found[0]}", found[1]).all()
    assert [row[3] for row in told if "case_id=?" not in row[3]] == []


# --------------------------------------------------------------------------------------- stopped, resumed, repeated


def test_an_unfinished_run_is_resumed_under_the_policy_of_today_and_a_complete_one_never(store):
    stopped = make_run(store, SMALL, jobs=2)
    stricter = Policy(rules=(Rule(metric="exact_match", max_drop=0.01),))
    again = runs.begin(store, replace(SMALL, policy=stricter))
    assert (again.run_id, again.resumed) == (stopped, True)
    assert again.done == {prompt.key for job in SMALL.jobs[:2] for prompt in job.prompts}
    assert runs.policy(store, stopped) == stricter
    runs.finish(store, stopped, (), complete=True)
    assert queries.run_summary(store, stopped).status == "incomplete", "units are left undone"
    make_run(store, SMALL)
    fresh = runs.begin(store, SMALL)
    assert fresh.run_id != stopped
    assert (fresh.resumed, fresh.done) == (False, frozenset())


def test_recording_the_same_answers_again_changes_nothing_and_another_answer_is_refused(store, begun):
    result, scores = next(make_results(SMALL))
    runs.record(store, begun, result, scores)
    before = runs.evidence(store, begun)
    slower = replace(result, completions=tuple(replace(c, e2e=c.e2e + 1) for c in result.completions))
    runs.record(store, begun, slower, scores)
    assert runs.evidence(store, begun) == before, "the first measurement stays"
    other = replace(result, completions=tuple(replace(c, text=c.text + "!") for c in result.completions))
    key, [first, *rest] = next(iter(scores.items()))
    rescored = {**scores, key: (replace(first, value=1 - first.value), *rest)}
    for given in ((other, scores), (result, rescored)):
        with pytest.raises(IntegrityError, match="run twice"):
            runs.record(store, begun, *given)


def test_what_is_not_as_planned_is_refused_and_nothing_of_its_job_is_stored(store, begun):
    result, scores = next(make_results(SMALL))
    first = result.completions[0]
    stranger = replace(first, key=replace(first.key, case_id="stranger"))
    [score, *others] = scores[first.key]
    for change, faulty, said in (
        ({"completions": (*result.completions, stranger)}, {}, "not in the plan"),
        ({"completions": (replace(first, case_hash="0" * 64),)}, {}, "not in the plan"),
        ({"identity": replace(result.identity, weights="0" * 64)}, {}, "weights differ from what was planned"),
        ({}, {first.key: (replace(score, value=float("nan")), *others)}, "not a number"),
    ):
        with pytest.raises(IntegrityError, match=said):
            runs.record(store, begun, replace(result, **change), scores | faulty)
    assert runs.evidence(store, begun).baseline.units == ()


def test_a_failed_job_leaves_errors_that_are_tried_again_and_never_undo_answers(store, begun):
    keys = tuple(prompt.key for prompt in SMALL.jobs[0].prompts)
    runs.record_failure(store, begun, JobFailure(index=0, arm="baseline", keys=keys, error="killed"))
    found = runs.evidence(store, begun).baseline.units
    assert {(unit.status, unit.error) for unit in found} == {("error", "killed")}
    assert runs.begin(store, SMALL).done == frozenset()
    runs.record(store, begun, *next(make_results(SMALL)))
    runs.record_failure(store, begun, JobFailure(index=0, arm="baseline", keys=keys, error="killed again"))
    assert {unit.status for unit in runs.evidence(store, begun).baseline.units} == {"done"}
    assert count(store, "select max(attempts) from units") == 2


def test_void_answers_are_as_if_they_had_never_been_and_can_be_given_anew(store, begun):
    result, scores = next(make_results(SMALL))
    runs.record(store, begun, result, scores)
    whole, void = runs.evidence(store, begun).baseline.units, result.keys[:2]
    failure = JobFailure(index=0, arm="baseline", keys=void, error="it changed", part=True, void=True)
    runs.record_failure(store, begun, failure)
    found = {unit.key: unit for unit in runs.evidence(store, begun).baseline.units}
    assert {(found[key].status, found[key].error) for key in void} == {("error", "it changed")}
    assert count(store, "select count(*) from units where status != 'done' and text is not null") == 0
    assert runs.begin(store, SMALL).done == {unit.key for unit in whole} - set(void)
    other = replace(result, completions=tuple(replace(one, text=one.text + "!") for one in result.completions[:2]))
    runs.record(store, begun, other, {key: scores[key] for key in void})
    assert {unit.status for unit in runs.evidence(store, begun).baseline.units} == {"done"}


def test_what_requests_came_to_is_stored_with_the_answers_that_they_brought(store, begun):
    result, scores = next(make_results(SMALL))
    spent = Spent(requests=1, prompt=2, answer=3)
    part = replace(result, generation=Generation(tokens=3), part=True)
    runs.record(store, begun, part, scores, spent)
    assert queries.run_summary(store, begun).arms[0].footprint.spent == spent


def test_a_run_that_is_resumed_is_not_answered_by_another_engine(store):
    """Of a server that the run starts only its command is planned, and an upgrade leaves that as it was."""
    served = Served(command="vllm serve m --port {port}", engine="vllm")
    plan = replace(SMALL, arms=(replace(SMALL.arms[0], served=served), *SMALL.arms[1:]))
    run_id = runs.begin(store, plan).run_id
    first, second = [(result, said) for result, said in make_results(plan) if result.arm == "baseline"][:2]

    def record(one, version: str) -> None:
        runs.record(store, run_id, replace(one[0], generation=Generation(engine=f"vllm {version}", tokens=1)), one[1])

    record(first, "0.31.0")
    with pytest.raises(IntegrityError, match=r"'vllm 0.32.0' answers now, but 'vllm 0.31.0' answered earlier"):
        record(second, "0.32.0")
    record(second, "0.31.0")
    assert runs.evidence(store, run_id).baseline.generation.engine == "vllm 0.31.0"


def write_until_killed(url: str) -> None:
    """Record two jobs, and die of SIGKILL when the third one's units are updated and its scores not written yet."""
    store = open_store(url)
    record = runs.begin(store, SMALL)
    for number, (result, scores) in enumerate(make_results(SMALL)):
        if number == 2:
            bulk.put = lambda *rows: os.kill(os.getpid(), signal.SIGKILL)
        runs.record(store, record.run_id, result, scores)


def test_a_writer_killed_in_mid_transaction_leaves_whole_jobs(url):
    writer = multiprocessing.get_context("fork").Process(target=write_until_killed, args=(url,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    with open_store(url) as store:
        record = runs.begin(store, SMALL)
        assert record.resumed
        assert record.done == {prompt.key for job in SMALL.jobs[:2] for prompt in job.prompts}
        evidence = runs.evidence(store, record.run_id)
        assert evidence.integrity == ()
        assert len(evidence.baseline.units) == len(record.done)
        assert make_run(store, SMALL) == record.run_id
        assert queries.run_summary(store, record.run_id).status == "complete"


# ------------------------------------------------------------------------------------------------ verdicts and texts


def test_deciding_again_adds_a_verdict_only_when_it_says_something_else(recorded):
    store, run_id = recorded
    kept = queries.run_summary(store, run_id).verdict("int8")
    moved = tuple(replace(rule, line=rule.line + 7) for rule in SMALL.policy.rules)  # by a comment in the gate file
    for policy in (SMALL.policy, replace(SMALL.policy, rules=moved)):
        runs.add_verdicts(store, run_id, [kept.verdict], policy)
        assert count(store, "select count(*) from verdicts") == 4
    blocked = Verdict(variant="int8", word="block", exit=10, reasons=("by another policy",))
    runs.add_verdicts(store, run_id, [blocked], SMALL.policy)
    assert queries.run_summary(store, run_id).verdict("int8").verdict == blocked
    assert count(store, "select count(*) from verdicts") == 5


def test_a_changed_verdict_is_refused_by_the_database_and_found_when_read(recorded):
    store, run_id = recorded
    for change in ("update verdicts set word = 'approve'", "delete from verdicts"):
        with pytest.raises(IntegrityError, match="append-only"):
            execute(store, change)
    tamper(store, "update verdicts set body_json = replace(body_json, 'undecided', 'approve')")
    with pytest.raises(IntegrityError, match="not what was recorded"):
        queries.run_summary(store, run_id)


def test_text_no_database_can_hold_is_kept_visibly(store, begun):
    result, scores = next(make_results(SMALL))
    odd = tuple(replace(c, text="lone \ud800, NUL \0, bidi \u202e, 漢字 🙂") for c in result.completions)
    runs.record(store, begun, replace(result, completions=odd), scores)
    assert runs.evidence(store, begun).integrity == ()
    with store.read() as connection:
        [kept] = connection.scalars(select(units.c.text).where(units.c.status == "done").distinct())
    assert kept == "lone \\ud800, NUL \0, bidi \u202e, 漢字 🙂"


def test_an_unknown_run_is_the_user_s_mistake_and_the_store_s_own_are_named(store):
    for ask in (runs.evidence, runs.policy, queries.run_summary):
        with pytest.raises(UsageError, match="no run 'nope'"):
            ask(store, "nope")
    with pytest.raises(UsageError, match="It holds none yet"):
        runs.evidence(store, "nope")
    run_id = make_run(store, SMALL)
    with pytest.raises(UsageError, match=f"newest first: {run_id}"):
        runs.evidence(store, "nope")


# ------------------------------------------------------------------------------------------------------------- seals

CHANGED = [
    "update units set text = 'changed' where unit_id = 1",
    "update units set text = null where unit_id = 1",
    "update units set ttft = 0.0 where unit_id = 1",
    "update units set kl = logprobs where unit_id = 30",
    "update units set case_hash = (select case_hash from units where unit_id = 2) where unit_id = 1",
    "update units set cluster = 'one' where unit_id = 1",
    "update scores set value = 1 - value where unit_id = 1",
    "update scores set scorer = 'other/2' where unit_id = 1",
    "delete from scores where unit_id = 1",
    "update evalsets set metrics_json = '[]' where name = 'tool_calls'",
    "update evalsets set lenient_json = '[\"code_fence\"]' where name = 'json_extract'",
    "update runs set policy_json = replace(policy_json, '0.02', '0.9')",
    "update runs set gate_file = 'version: 1'",
    "update cases set body_json = replace(body_json, 'Extract', 'Invent')",
    "update cases set body_json = 'no JSON'",
    "update arms set observed_json = replace(observed_json, 'dddd', '0000') where name = 'int8'",
    "update arms set footprint_json = replace(footprint_json, '8.1', '2.1') where name = 'int8'",
]


@pytest.mark.parametrize("tampering", CHANGED)
def test_evidence_that_was_changed_is_found(recorded, tampering):
    store, run_id = recorded
    assert runs.evidence(store, run_id).integrity == ()
    execute(store, tampering)
    assert len(runs.evidence(store, run_id).integrity) >= 1


def test_what_was_dropped_from_a_run_is_named_and_no_traceback(recorded):
    store, run_id = recorded
    for table in ("scores", "units"):
        execute(store, f"delete from {table} where unit_id = 1")
    assert "list of expected units" in runs.evidence(store, run_id).integrity[0]
    for table in ("scores", "units", "verdicts", "arms"):
        execute(store, f"drop table {table}" if table == "verdicts" else f"delete from {table}")
    with pytest.raises(IntegrityError, match=f"run {run_id}: the store lacks arms or evalsets"):
        runs.evidence(store, run_id)


def test_answers_moved_to_another_run_are_not_its_own(recorded):
    store, good = recorded
    bad = make_run(store, SMALL, wrong={"int8": 0.9})
    assert runs.evidence(store, bad).integrity == ()
    of_bad = "where run_id = :bad and arm = 'int8'"
    execute(store, f"delete from scores where unit_id in (select unit_id from units {of_bad})", bad=bad)
    execute(store, f"delete from units {of_bad}", bad=bad)
    execute(store, "update units set run_id = :bad where run_id = :good and arm = 'int8'", bad=bad, good=good)
    moved = runs.evidence(store, bad).integrity
    assert len(moved) == len([key for key in SMALL.expected if key.arm == "int8"])


@pytest.mark.parametrize(
    "tampering",
    [
        "update runs set policy_json = replace(policy_json, '0.02', '0.9')",
        "update arms set planned_json = replace(planned_json, 'dddd', '0000') where name = 'int8'",
    ],
)
def test_a_changed_policy_or_arm_is_never_shown_nor_sealed_anew(store, begun, tampering):
    execute(store, tampering)
    for use in (lambda: queries.run_summary(store, begun), lambda: runs.begin(store, SMALL)):
        with pytest.raises(IntegrityError, match="not what was recorded"):
            use()


def with_fields(record, given: dict[str, object]):
    """Return the record with those of these fields that it has."""
    names = {field.name for field in fields(record)}
    return replace(record, **{name: value for name, value in given.items() if name in names})


DRAFTED = {"draft_proposed": 7, "draft_accepted": 5}


@pytest.mark.parametrize(
    ("name", "given", "spoil"),
    [
        ("kernel", {"kernel": "c avx512"}, "kernel = 'c avx2'"),
        ("thought", {"thought": 2}, "thought_tokens = 1"),
        ("masked", {"masked": 0.25}, "constraint_masked = 0.1"),
        ("latency.max_gap", {"max_gap": 0.25}, "max_gap = 0.1"),
        ("draft_proposed", DRAFTED, "draft_proposed = null"),
        ("draft_accepted", DRAFTED, "draft_accepted = 6"),
        ("kl_eta", {"kl": (0.0, 0.1), "kl_eta": 1e-4}, "kl_eta = null"),
        ("kl_upper", {"kl": (0.0, 0.1), "kl_upper": (inf, 0.5)}, "kl_upper = null"),
        ("top1_differs", {"kl": (0.0, 0.1, 0.2, 0.3), "top1_agreement": 0.5, "top1_differs": (0, 2)},
         "top1_agreement = 1.0"),
    ],
)  # fmt: skip
def test_what_is_measured_of_answers_is_kept_and_sealed_and_unknown_of_others(store, begun, name, given, spoil):
    for result, scores in make_results(SMALL):
        if result.arm == "int8":
            said = tuple(with_fields(one, given) for one in result.completions)
            result = replace(result, completions=said, drifts=tuple(with_fields(one, given) for one in result.drifts))
        runs.record(store, begun, result, scores)
    evidence = runs.evidence(store, begun)
    assert evidence.integrity == ()
    for arm in evidence.variants:
        found = {unit.values[name] if "." in name else getattr(unit, name) for unit in arm.units}
        assert (found == {given[name.removeprefix("latency.")]}) == (arm.name == "int8")
        assert all(kl >= 0 for unit in arm.units for kl in unit.kl)
    assert all(point.mean >= 0 for point in queries.drift_by_position(store, begun, "int8"))
    execute(store, f"update units set {spoil} where arm = 'int8'")
    assert len(runs.evidence(store, begun).integrity) == len(evidence.variants[0].units)


def test_signs_that_do_not_add_up_to_the_agreement_stay_for_the_reader_to_refuse():
    for kl, differs in (((0.5, 0.0, 0.25), (1, 2)), ((0.0,), ()), ((0.1, 0.2), (0, 1))):
        packed = seal.pack_kl(kl, differs)
        assert seal.kl(packed, (len(kl) - len(differs)) / len(kl)) == (kl, differs)
    assert seal.kl(seal.pack_kl((0.5, -0.25)), 1.0) == ((0.5, -0.25), None)
    assert seal.kl(seal.pack_kl((0.5, 0.25)), 0.5) == ((0.5, 0.25), None)
    assert seal.kl(b"", None) == seal.kl(None, 1.0) == ((), None)


def test_what_jobs_found_beyond_the_dtype_adds_up_in_any_order_and_is_sealed(store, begun):
    jobs = [one for one in make_results(SMALL) if one[0].arm == "baseline"]
    found = ((1, "a", 2), (4, "c", 1)), ((2, "b", 3), (4, "c", 5))
    for (result, scores), overflow in reversed(list(zip(jobs, found, strict=False))):
        for _ in range(2):  # the same answers again change nothing
            runs.record(store, begun, replace(result, overflow=overflow), scores)
    evidence = runs.evidence(store, begun)
    assert evidence.baseline.overflow == ((1, "a", 2), (2, "b", 3), (4, "c", 6))
    assert evidence.integrity == ()
    execute(store, "update arms set footprint_json = replace(footprint_json, '\"c\"', '\"d\"')")
    assert any("arm" in line for line in runs.evidence(store, begun).integrity)
