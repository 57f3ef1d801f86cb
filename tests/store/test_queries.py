"""The read models against a plain count over the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event, text, update

from qualgate.errors import IntegrityError, UsageError
from qualgate.gate.causes.noise_floor import flips as flips_of
from qualgate.gate.verdict import decide_plain
from qualgate.records import CALL_UNREAD, Policy, Trial, Verdict
from qualgate.store import decisions, prune, queries, runs
from qualgate.store.database import open_store
from qualgate.store.tables import runs as runs_table
from tests.store.conftest import JUDGED
from tests.store.made import RULES, make_plan, make_results, make_run


def expected_flips(store, run_id, variant):
    evidence = runs.evidence(store, run_id)
    arm = next(arm for arm in evidence.variants if arm.name == variant)
    before = {(u.key.evalset, u.key.case_id): u.values for u in evidence.baseline.units}
    found = set()
    for unit in arm.units:
        for metric, value in unit.values.items():
            was = before[unit.key.evalset, unit.key.case_id][metric]
            if not metric.startswith("latency.") and was != value:
                found.add((metric, unit.key.evalset, unit.key.case_id, "lost" if was else "gained"))
    return found


def test_a_list_names_the_gate_file_of_a_run_and_the_name_is_sealed(store):
    run_id = make_run(store, replace(make_plan(cases=3), gate_name="nightly.yaml"))
    named = {line.run_id: str(line.called) for line in queries.queue(store)}
    assert named[run_id] == "nightly.yaml, support: tool_calls, json_extract, arithmetic"
    with store.write() as connection:
        connection.execute(update(runs_table).where(runs_table.c.run_id == run_id).values(gate_name="release.yaml"))
    with pytest.raises(IntegrityError, match="gate file"):
        queries.list_runs(store)


def test_flips_are_every_changed_answer_right_to_wrong_first(judged):
    store, run_id = judged
    found = queries.flips(store, run_id, "int2-g32", limit=1000)
    facts = [(flip.metric, flip.evalset, flip.case_id, flip.direction) for flip in found]
    assert set(facts) == expected_flips(store, run_id, "int2-g32")
    assert len(facts) == len(set(facts)) > 10
    directions = [flip.direction for flip in found]
    assert directions == sorted(directions, key=["lost", "gained"].index)
    assert all(flip.reason for flip in found)


def test_what_the_noise_arm_changes_too_is_looked_at_last(store):
    run_id = make_run(store, make_plan(cases=40, wrong=(wrong := {"int2-g32": 0.4, "baseline@aa": 0.4})), wrong)
    flips = queries.flips(store, run_id, "int2-g32", direction="lost", limit=1000)
    by_case = {}
    for flip in flips:
        by_case.setdefault((flip.evalset, flip.case_id), set()).add(flip.noisy)
    evidence = runs.evidence(store, run_id)
    moved = {arm.name: flips_of(evidence.baseline, arm).values() for arm in evidence.variants}
    noise = {case for one in moved["baseline@aa"] for case in one.lost | one.gained}
    lost = {case for one in moved["int2-g32"] for case in one.lost}
    assert by_case == {case: {case in noise} for case in lost}, "gate and store call the same cases noise"
    assert lost & noise
    assert lost - noise
    assert [flip.noisy for flip in flips] == sorted(flip.noisy for flip in flips)
    every = [queries.flips(store, run_id, "int2-g32", direction="lost", limit=7, offset=at) for at in range(0, 1000, 7)]
    assert [flip for page in every for flip in page] == list(flips)


def test_flips_are_filtered_and_paged(judged):
    store, run_id = judged
    every = queries.flips(store, run_id, "int2-g32", limit=1000)
    paged = [f for page in range(20) for f in queries.flips(store, run_id, "int2-g32", limit=7, offset=7 * page)]
    assert tuple(paged) == every
    assert {flip.noisy for flip in every} == {None}, "without a noise arm"
    some = queries.flips(store, run_id, "int2-g32", metric="exact_match", evalset="tool_calls", direction="lost")
    assert some
    assert {(f.metric, f.evalset, f.direction) for f in some} == {("exact_match", "tool_calls", "lost")}


def test_flip_counts_agree_with_the_gate_s_comparisons(judged):
    store, run_id = judged
    counts = queries.flip_counts(store, run_id, "int2-g32")
    summary = queries.run_summary(store, run_id)
    pooled = next(c for c in summary.verdict("int2-g32").verdict.comparisons if c.slice == "pooled")
    ours = [count for count in counts if count.metric == pooled.metric]
    assert sum(count.pairs for count in ours) == pooled.n == 120
    assert (sum(count.lost for count in ours), sum(count.gained for count in ours)) == (pooled.lost, pooled.gained)


def test_calls_that_lost_their_wrapper_are_among_what_was_lost(store):
    plan = make_plan(cases=40, wrong=(wrong := {"int2-g32": 0.4}))
    record, unread = runs.begin(store, plan), set()
    for result, found in make_results(plan, wrong):
        for key, each in found.items() if result.arm == "int2-g32" else ():
            if any(score.metric == "tool_call.valid" and score.value == 0 for score in each):
                unread.add(key.case_id)
                found[key] = tuple(
                    replace(score, value=None, verdict=None, error_type=CALL_UNREAD, reason="mistral reads it")
                    if score.metric == "tool_call.valid" else score
                    for score in each
                )  # fmt: skip
        runs.record(store, record.run_id, result, found)
    evidence = runs.evidence(store, record.run_id)
    (verdict,) = decide_plain(evidence, plan.policy)
    runs.finish(store, record.run_id, (verdict,), complete=True)
    lost = queries.flips(store, record.run_id, "int2-g32", metric="tool_call.valid", direction="lost", limit=1000)
    right = {unit.key.case_id for unit in evidence.baseline.units if unit.values.get("tool_call.valid")}
    assert {flip.case_id for flip in lost} == unread & right
    assert {flip.reason for flip in lost} == {"mistral reads it"}
    (told,) = (one for one in verdict.comparisons if one.metric == "tool_call.valid")
    (count,) = (one for one in queries.flip_counts(store, record.run_id, "int2-g32") if one.metric == "tool_call.valid")
    assert (count.pairs, count.lost, count.gained) == (told.n, told.lost, told.gained) == (40, len(lost), 0)


def test_a_case_shows_both_answers_with_what_was_measured(judged):
    store, run_id = judged
    flip = queries.flips(store, run_id, "int2-g32", direction="lost")[0]
    detail = queries.case_detail(store, run_id, "int2-g32", flip.evalset, flip.case_id)
    assert (detail.baseline.text, detail.variant.text) == (flip.baseline, flip.variant)
    assert detail.body["id"] == flip.case_id
    assert detail.baseline.text == detail.body["answer"]
    assert len(detail.variant.margins) == len(detail.variant.token_ids)
    assert detail.variant.margin_at_divergence == detail.variant.margins[detail.variant.first_divergence]
    assert detail.baseline.margin_at_divergence is None
    with pytest.raises(UsageError, match="no case"):
        queries.case_detail(store, run_id, "int2-g32", flip.evalset, "nope")


def test_runs_are_listed_newest_first_with_their_variants(store):
    small = [make_plan(cases=3, seed=seed) for seed in range(3)]
    first = make_run(store, small[0])
    second = make_run(store, small[1], jobs=1)
    third = make_run(store, small[2])
    lines = queries.list_runs(store)
    assert [line.run_id for line in lines] == [third, second, first]
    assert queries.latest_run(store) == third
    assert [line.status for line in lines] == ["complete", "running", "complete"]
    assert [(line.done, line.expected, line.errors) for line in lines] == [(45, 45, 0), (9, 45, 0), (45, 45, 0)]
    assert [variant.word for variant in lines[1].variants] == [None] * 4
    assert [variant.variant for variant in lines[0].variants] == ["int8", "int4-g32", "mxfp4", "int2-g32"]
    assert queries.count_runs(store) == 3
    assert queries.list_runs(store, limit=1, offset=1) == lines[1:2]
    waiting = queries.queue(store)
    assert {line.run_id for line in waiting} == {third}, "neither a run under way nor an older night"
    assert queries.count_queue(store) == len(waiting) == queries.count_superseded(store) == 4


def test_of_a_nightly_gate_file_only_the_last_night_waits_and_others_wait_beside_it(store):
    def night(model: str, seed: int, **options) -> str:
        plan = make_plan(cases=3, seed=seed, **options)
        arms = tuple(replace(arm, model=model) for arm in plan.arms)
        return make_run(store, replace(plan, arms=arms))

    support = [night("models/support", seed) for seed in range(3)]
    other_model, other_sets = (
        night("models/sales", 3),
        night("models/support", 4, families=("arithmetic", "json_extract"), policy=Policy(rules=RULES[:1])),
    )
    tried = replace(make_plan(cases=3, seed=5, policy=Policy(rules=RULES, trial=Trial(limit=3))), key="t")
    make_run(store, tried)
    make_run(store, make_plan(cases=3, seed=6), jobs=1)
    said = {line.run_id: str(line.called) for line in queries.queue(store)}
    assert said == {
        support[-1]: "support: tool_calls, json_extract, arithmetic",
        other_model: "sales: tool_calls, json_extract, arithmetic",
        other_sets: "support: arithmetic, json_extract",
    }
    by = {line.run_id: {one.superseded_by for one in line.variants} for line in queries.list_runs(store)}
    assert [by[run] for run in (*support, other_model, other_sets)] == [{support[2]}, {support[2]}, {""}, {""}, {""}]
    assert (queries.count_queue(store), queries.count_superseded(store)) == (12, 8)
    last = next(line for line in queries.queue(store) if line.run_id == support[2])
    verdict = queries.run_summary(store, last.run_id).verdict(last.variant)
    decisions.append(
        store,
        last.run_id,
        last.variant,
        decisions.Said(action="block", name="Ana", reason="no"),
        decisions.Seen(verdict.sha256),
    )
    waiting = [line.variant for line in queries.queue(store) if line.run_id in support]
    assert last.variant not in waiting, "decided, it brings back no older night"


def test_the_queue_lists_the_most_severe_verdicts_first_and_of_one_kind_the_longest_wait(store):
    def finished(model: str, *words: str) -> str:
        plan = make_plan(cases=3, wrong=dict.fromkeys([f"v{place}" for place in range(len(words))], 0.0))
        run_id = make_run(store, replace(plan, arms=tuple(replace(arm, model=model) for arm in plan.arms)))
        verdicts = [Verdict(variant=f"v{place}", word=w, exit=12, reasons=("",)) for place, w in enumerate(words)]
        runs.add_verdicts(store, run_id, verdicts, runs.policy(store, run_id))
        return run_id

    def decide(run_id: str, variant: str, action: str) -> None:
        stored = queries.run_summary(store, run_id).verdict(variant)
        last = stored.decisions[-1].hash if stored.decisions else None
        said = decisions.Said(action=action, name="Ada", reason="a reason that is long enough", overrules="")
        decisions.append(store, run_id, variant, said, decisions.Seen(stored.sha256, last))

    old, new = finished("old", "approve", "undecided", "block"), finished("new", "review", "undecided", "invalid")
    order = [(new, "v2"), (old, "v2"), (old, "v1"), (new, "v1"), (new, "v0"), (old, "v0")]
    assert [(line.run_id, line.variant) for line in queries.queue(store)] == order
    assert [(line.run_id, line.variant) for line in queries.queue(store, 2, 2)] == order[2:4]
    after = [queries.next_in_queue(store, *this) for this in order]
    assert [(line.run_id, line.variant) for line in after if line] == [*order[1:], order[0]], (
        "after the last, the first"
    )
    decide(old, "v1", "block")
    following = queries.next_in_queue(store, old, "v1")
    assert (following.run_id, following.variant) == order[3], "one that was just decided keeps its place"
    decide(old, "v1", "revoke")
    again = [(line.run_id, line.variant) for line in queries.queue(store)]
    assert again == [*order[:2], order[3], order[2], *order[4:]], "it waits since the revocation"
    assert queries.next_in_queue(store, "no such run", "v0").variant == "v2"
    for run_id, variant in order[1:]:
        decide(run_id, variant, "block")
    assert queries.next_in_queue(store, *order[0]) is None


def test_the_verdict_before_is_of_the_last_complete_run_of_the_same_gate_file_that_was_not_pruned(store):
    plan = make_plan(cases=3)
    runs_ = [make_run(store, plan) for _ in range(3)]
    make_run(store, replace(plan, arms=tuple(replace(arm, model="models/sales") for arm in plan.arms)))
    make_run(store, plan, jobs=1)
    last = make_run(store, plan)
    found = queries.verdict_before(store, last, "int8")
    assert (found.run_id, found.verdict) == (runs_[-1], queries.run_summary(store, runs_[-1]).verdict("int8").verdict)
    assert found.created_at == queries.run_summary(store, runs_[-1]).created_at
    assert queries.verdict_before(store, runs_[0], "int8") is None
    assert queries.verdict_before(store, last, "no such variant") is None
    prune.prune_run(store, runs_[-1])
    assert queries.verdict_before(store, last, "int8").run_id == runs_[-2]


def test_the_latest_run_of_a_gate_file_has_its_arms_and_sets_and_no_others(store):
    arms, sets = ["baseline", "int8"], ["arithmetic", "json_extract"]
    options = {"cases": 3, "policy": Policy(rules=RULES[:1])}
    with pytest.raises(UsageError, match="no run yet"):
        queries.latest_run(store)
    mine = make_plan(wrong={"int8": 0.0}, families=("arithmetic", "json_extract"), **options)
    assert queries.latest_run_of(store, arms, sets) is None
    make_run(store, mine)
    newest = make_run(store, mine)
    make_run(store, make_plan(families=("arithmetic", "json_extract"), **options))
    make_run(store, make_plan(wrong={"int8": 0.0}, **options))
    assert queries.latest_run_of(store, arms, sets) == newest
    assert queries.latest_run_of(store, arms[:1], sets) is None
    assert queries.latest_run_of(store, arms, sets[:1]) is None


def test_a_summary_holds_what_a_report_needs(judged):
    store, run_id = judged
    summary = queries.run_summary(store, run_id)
    assert [arm.name for arm in summary.arms] == ["baseline", "int8", "int4-g32", "mxfp4", "int2-g32"]
    assert [arm.name for arm in summary.evalsets] == ["tool_calls", "json_extract", "arithmetic"]
    assert {item.cases for item in summary.evalsets} == {40}
    assert [item.content for item in summary.evalsets] == [item.content for item in JUDGED.evalsets]
    assert all((arm.expected, arm.done, arm.errors) == (120, 120, 0) for arm in summary.arms)
    assert all(arm.identity == arm.planned and arm.footprint for arm in summary.arms)
    assert [found.verdict.variant for found in summary.verdicts] == [arm.name for arm in summary.arms[1:]]
    assert summary.policy == JUDGED.policy


def test_drift_by_position_is_the_mean_over_the_answers_that_long(judged):
    store, run_id = judged
    evidence = runs.evidence(store, run_id)
    units = next(arm for arm in evidence.variants if arm.name == "int2-g32").units
    for point in queries.drift_by_position(store, run_id, "int2-g32", positions=20):
        values = [unit.kl[point.position] for unit in units if len(unit.kl) > point.position]
        assert point.answers == len(values)
        assert point.mean == pytest.approx(sum(values) / len(values))


def test_answer_times_are_those_of_every_unit_that_is_done(judged):
    store, run_id = judged
    evidence, found = runs.evidence(store, run_id), queries.answer_times(store, run_id)
    done = {unit.key: unit for arm in (evidence.baseline, *evidence.variants) for unit in arm.units}
    assert found.keys() == done.keys()
    for key, unit in done.items():
        assert (found[key].tokens, found[key].case_hash) == (unit.tokens, unit.case_hash)
        assert found[key].seconds > 0
        timed = unit.values["latency.e2e"]
        assert found[key].drafted if timed is None else timed == found[key].seconds
    engines = {arm.name: arm.identity.engine for arm in (evidence.baseline, *evidence.variants) if arm.identity}
    assert {(key.arm, one.engine) for key, one in found.items()} == set(engines.items())
    assert queries.answer_times(store, "no such run") == {}


def test_a_case_that_flips_under_several_metrics_is_counted_and_shown_once(judged):
    store, run_id = judged
    scores = expected_flips(store, run_id, "int2-g32")
    of = [("exact_match", "arithmetic"), ("tool_call.valid", None), ("tool_call.args", None)]
    for asked in ((), of):
        fitting = {
            (evalset, case, way)
            for metric, evalset, case, way in scores
            if not asked or any(metric == one and evalset in (where, where or evalset) for one, where in asked)
        }
        shown = queries.flipped_cases(store, run_id, "int2-g32", asked, limit=1000)
        assert {(flip.evalset, flip.case_id, flip.direction) for flip in shown} == fitting
        assert len(shown) == len(fitting) < len(scores)
        paged = [queries.flipped_cases(store, run_id, "int2-g32", asked, limit=7, offset=at) for at in range(0, 300, 7)]
        assert [flip for page in paged for flip in page] == list(shown)
        ways = [flip.direction for flip in shown]
        assert queries.count_flipped_cases(store, run_id, "int2-g32", asked) == {
            "lost": ways.count("lost"), "gained": ways.count("gained"),
        }  # fmt: skip
        assert ways == sorted(ways, reverse=True)


def test_the_flips_of_a_verdict_are_those_of_the_rules_that_broke(judged):
    store, run_id = judged
    run = queries.run_summary(store, run_id)
    sets = {item.name for item in run.evalsets}
    blocked = next(one.verdict for one in run.verdicts if one.verdict.word == "block")
    broken = [one for one in blocked.comparisons if one.status == "broken" and one.tier == "critical"]
    assert {metric for metric, _ in queries.judged_by(blocked, sets)} == {one.metric for one in broken}
    whole = replace(blocked, comparisons=tuple(replace(one, status="proven") for one in blocked.comparisons))
    assert len(queries.judged_by(whole, sets)) >= len(queries.judged_by(blocked, sets))
    assert queries.judged_by(replace(blocked, comparisons=()), sets) == ()


def test_what_a_run_s_page_counts_is_read_from_indices_alone(file):
    with open_store(file) as store:
        run_id, asked = make_run(store, make_plan(cases=3)), []
        with store.write() as connection:
            connection.execute(text("update units set kernel = 'cpu int4' where arm = 'int8'"))
        event.listen(store.engine, "before_cursor_execute", lambda *of: asked.append((of[2], of[3])))
        arms = {arm.name: arm.kernels for arm in queries.run_summary(store, run_id).arms}
        assert arms["int8"] == ("cpu int4",)
        of_units = [one for one in asked if "FROM units" in one[0] and "units.error" not in one[0]]
        assert len(of_units) == 2
        with store.read() as connection:
            for statement, values in of_units:
                steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]
                assert "USING COVERING INDEX" in steps[0], steps
