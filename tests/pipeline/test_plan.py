from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from qualgate.config import GateFile, load_gate_file
from qualgate.errors import UsageError
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.pipeline.arms import with_noise_arm
from qualgate.pipeline.batches import LEAST_BATCHES
from qualgate.pipeline.forecast import forecast
from qualgate.pipeline.plan import make_plan
from qualgate.records import NOISE, Plan, Prices, UnitEvidence, UnitKey
from tests.gated_model import GATE_FILE, write_evalset
from tests.served.scripted import scripted
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("plan") / "model", dtype="float32")


@pytest.fixture
def gate_file(model, tmp_path) -> Path:
    shutil.copytree(model, tmp_path / "model")
    rows = [
        {"id": f"c{number:03d}", "prompt": "x" * (1 + number % 40), "cluster": f"of {number % 40}",
         "max_new_tokens": 4 + number % 30, "answer": "y"}
        for number in range(150)
    ]  # fmt: skip
    write_evalset(tmp_path, rows)
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    return tmp_path / "gate.yaml"


def test_job_k_of_every_arm_holds_the_same_cases_and_names_the_same_artifact(gate_file):
    plan = make_plan(load_gate_file(gate_file))
    assert plan.arms[0].is_baseline
    expected = {UnitKey(arm, "echo", f"c{n:03d}") for arm in ("baseline", "same", "int2") for n in range(150)}
    assert Counter(plan.expected) == Counter(expected), "every unit once"
    by_index: dict[int, set] = {}
    for job in plan.jobs:
        cases = tuple(prompt.key.case_id for prompt in job.prompts)
        by_index.setdefault(job.index, set()).add((cases, job.artifact))
    assert len(by_index) > 1
    assert all(len(found) == 1 for found in by_index.values())
    assert [job.arm.is_baseline for job in plan.jobs] == sorted((j.arm.is_baseline for j in plan.jobs), reverse=True)


def test_the_drift_of_a_share_of_the_cases_is_measured_and_every_plan_draws_the_same(gate_file):
    whole = make_plan(load_gate_file(gate_file))
    assert all(prompt.weighed for job in whole.jobs for prompt in job.prompts)
    without_drift_rule = [line for line in GATE_FILE.splitlines() if "drift." not in line]
    gate_file.write_text("\n".join([*without_drift_rule, "generation: {drift: 0.1}"]))
    plan, again = (make_plan(load_gate_file(gate_file)) for _ in range(2))
    weighed = {
        arm: {
            prompt.key.case_id for job in plan.jobs if job.arm.name == arm for prompt in job.prompts if prompt.weighed
        }
        for arm in ("baseline", "same", "int2")
    }
    assert len(weighed["baseline"]) == 15
    assert weighed["baseline"] == weighed["same"] == weighed["int2"]
    assert plan.jobs == again.jobs
    assert plan.key == again.key != whole.key


def test_the_key_follows_content_and_not_names_or_rules(gate_file):
    key = make_plan(load_gate_file(gate_file)).key
    folder = gate_file.parent
    gate_file.write_text(GATE_FILE.replace("max_drop: 0.10", "max_drop: 0.02"))
    assert make_plan(load_gate_file(gate_file)).key == key, "another rule is the same generation"
    (folder / "model").rename(folder / "renamed")
    gate_file.write_text(GATE_FILE.replace("./model", "./renamed"))
    assert make_plan(load_gate_file(gate_file)).key == key, "the same weights under another name"
    gate_file.write_text(
        GATE_FILE.replace("./model", "./renamed").replace("int2, group_size: 32", "int2, group_size: 16")
    )
    assert make_plan(load_gate_file(gate_file)).key != key
    gate_file.write_text(GATE_FILE.replace("./model", "./renamed"))
    cases = (folder / "echo.jsonl").read_text()
    (folder / "echo.jsonl").write_text(cases.replace('"answer": "y"', '"answer": "z"', 1))
    assert make_plan(load_gate_file(gate_file)).key != key


def test_arithmetic_is_a_part_of_the_key_and_told_of_every_arm(gate_file):
    gate_file.write_text(GATE_FILE.replace("dtype: float32", "dtype: bfloat16"))
    exact = make_plan(load_gate_file(gate_file))
    gate_file.write_text("arithmetic: float32\n" + gate_file.read_text())
    assert make_plan(load_gate_file(gate_file)).key == exact.key
    gate_file.write_text(gate_file.read_text().replace("arithmetic: float32", "arithmetic: served"))
    served = make_plan(load_gate_file(gate_file))
    assert served.key != exact.key
    assert [arm.weights for arm in forecast(served, 1).arms] == ["bfloat16, served"] * 2 + ["int2 g32, served"]
    assert [arm.weights for arm in forecast(exact, 1).arms] == ["bfloat16", "bfloat16", "int2 g32"]
    gate_file.write_text("arithmetic: served\n" + GATE_FILE)
    with pytest.raises(UsageError, match=r"baseline: `arithmetic: served`.*float32, in which nothing is rounded"):
        make_plan(load_gate_file(gate_file))


def test_a_served_arm_that_is_said_to_draft_by_itself_says_every_token_itself(tmp_path):
    """Else nothing would be seen of its own drafts."""
    write_evalset(tmp_path, [{"id": "a", "prompt": "say a", "answer": "a", "max_new_tokens": 4}])
    with scripted() as one, scripted() as two, scripted() as three:
        arms = [
            f"{{endpoint: '{server.address}', model: m, tokenizer: reference, prompt_logprobs: 2{more}}}"
            for server, more in ((one, ""), (two, ""), (three, ", arm: speculation"))
        ]
        (tmp_path / "gate.yaml").write_text(
            f"version: 1\nbaseline: {arms[0]}\nvariants: {{plain: {arms[1]}, fast: {arms[2]}}}\n"
            "evalsets: [./echo.yaml]\ngate: {rules: [{metric: exact_match, max_drop: 0.1}]}\n"
        )
        jobs = make_plan(load_gate_file(tmp_path / "gate.yaml")).jobs
    assert {job.arm.name for job in jobs if job.drafted} == {"plain"}
    assert all(job.artifact for job in jobs)  # drift is read of all


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("store:", "    - {metric: json.valid, max_drop: 0.1}\nstore:", r"gate.yaml:11.*json.valid"),
        ("int2, group_size: 32", "int2, group_size: 48", "not a multiple of the group size 48"),
    ],
)
def test_a_gate_file_that_cannot_be_planned_is_refused_before_the_run(gate_file, old, new, said):
    gate_file.write_text(GATE_FILE.replace(old, new))
    with pytest.raises(UsageError, match=said):
        make_plan(load_gate_file(gate_file))


def test_the_forecast_counts_what_will_run(gate_file):
    plan = make_plan(load_gate_file(gate_file))
    rows = forecast(plan, 2).arms
    assert [row.name for row in rows] == ["baseline", "same", "int2"]
    assert all(row.cases == 150 and (row.seconds or 0) > 0 for row in rows)
    assert rows[0].prompt_tokens == sum(len(p.token_ids) for j in plan.jobs if j.arm.is_baseline for p in j.prompts)
    assert rows[2].weights == "int2 g32"


def test_a_forecast_does_not_count_what_a_server_makes_of_messages(gate_file):
    plan = make_plan(load_gate_file(gate_file))
    first = replace(plan.jobs[0], prompts=tuple(replace(one, token_ids=()) for one in plan.jobs[0].prompts))
    prices = Prices(version="1", currency="EUR", prompt_token=1.0)
    policy = replace(plan.policy, prices=prices)
    rows = forecast(replace(plan, jobs=(first, *plan.jobs[1:]), policy=policy), 2).arms
    assert [(row.prompt_tokens is None, row.cost is None) for row in rows] == [(True, True), (False,) * 2, (False,) * 2]


@pytest.mark.parametrize("change", ["version: '2'", "lenient: [code_fence]", "normalizers: [casefold]"])
def test_the_key_follows_the_whole_evalset_not_its_cases_alone(gate_file, change):
    key = make_plan(load_gate_file(gate_file)).key
    header = gate_file.parent / "echo.yaml"
    if change.startswith("lenient"):  # exact_match reads none, so a set of it alone must not declare one
        header.write_text(header.read_text().replace("metrics: [exact_match]", "metrics: [exact_match, json.valid]"))
        key = make_plan(load_gate_file(gate_file)).key
    name = change.split(":")[0]
    kept = [line for line in header.read_text().splitlines() if not line.startswith(name)]
    header.write_text("\n".join([*kept, change]) + "\n")
    assert make_plan(load_gate_file(gate_file)).key != key


def with_variant(gate_file: Path, **config) -> None:
    """Adds a variant that is the baseline's copy with another config."""
    folder = Path(shutil.copytree(gate_file.parent / "model", gate_file.parent / "other"))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | config))
    gate_file.write_text(GATE_FILE.replace("  same:", "  other: {model: ./other}\n  same:"))


def test_prompts_over_a_variants_own_context_are_refused(gate_file):
    with_variant(gate_file, max_position_embeddings=64)
    named = "model: ./other, allow_config: [max_position_embeddings]"
    gate_file.write_text(gate_file.read_text().replace("model: ./other", named))
    with pytest.raises(UsageError, match=r"do not fit the 64 tokens of context of .*other: echo/c115"):
        make_plan(load_gate_file(gate_file))


def test_a_variant_with_another_output_head_is_refused(gate_file):
    with_variant(gate_file)
    file = gate_file.parent / "other" / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:256].contiguous()
    save_file(tensors, file)
    with pytest.raises(UsageError, match="output head has 256 entries"):
        make_plan(load_gate_file(gate_file))


def test_devices_cpu_is_planned_and_changes_nothing_else(gate_file, monkeypatch):
    for room in ("device", "identity"):
        monkeypatch.setattr(f"qualgate.engine.{room}.version", lambda name: "1")
    before = dict(os.environ)
    gate_file.write_text(GATE_FILE.replace("count: 1", "count: 1, devices: cpu"))
    plan = make_plan(load_gate_file(gate_file))
    assert all(identity.engine.endswith("cpu float32") for identity in plan.identities.values())
    assert dict(os.environ) == before


def test_a_format_rule_has_every_set_scored_by_it_and_leaves_the_sets_as_they_are(gate_file):
    before = make_plan(load_gate_file(gate_file))
    text = gate_file.read_text()
    gate_file.write_text(text.replace("  rules:\n", "  rules:\n    - {metric: format.no_loop, max_drop: 0.05}\n"))
    after = make_plan(load_gate_file(gate_file))
    assert (before.also, after.also) == ({"echo": ()}, {"echo": ("format.no_loop",)})
    assert after.evalsets == before.evalsets
    assert after.key != before.key  # finished runs of the other policy hold no such scores
    gate_file.write_text(gate_file.read_text().replace("no_loop, max_drop: 0.05", "no_loop, max_drop: 0.06"))
    assert make_plan(load_gate_file(gate_file)).key == after.key


def early(gate_file: Path, more: str = "") -> Plan:
    gate_file.write_text(GATE_FILE.replace("gate:\n", f"gate:\n  stop: early\n{more}"))
    return make_plan(load_gate_file(gate_file))


def test_a_run_that_may_stop_early_has_no_job_with_cases_of_two_looks(gate_file):
    plan = early(gate_file)
    assert (plan.policy.stop.looks[-1], len(plan.policy.stop.looks)) == (150, 9)
    assert Counter(plan.expected) == Counter(make_plan(plain(gate_file)).expected)
    ends = {}
    for arm in ("baseline", "same", "int2"):
        jobs = [job for job in plan.jobs if job.arm.name == arm]
        assert [job.stage for job in jobs] == sorted(job.stage for job in jobs)
        ends[arm] = [(job.index, job.stage, {prompt.key.case_id for prompt in job.prompts}) for job in jobs]
    assert ends["baseline"] == ends["same"] == ends["int2"]
    clusters = [{int(case[1:]) % 40 for case in cases} for _, _, cases in ends["same"]]
    assert sum(map(len, clusters)) == 40, "a cluster is looked at whole"


def test_what_is_generated_early_depends_on_the_policy_so_its_run_does_too(gate_file):
    key = make_plan(plain(gate_file)).key
    first = early(gate_file)
    assert key != first.key == early(gate_file, "  # a comment\n").key
    assert early(gate_file, "  alpha: 0.1\n").key != first.key
    gate_file.write_text(GATE_FILE.replace("gate:\n", "gate:\n  stop: end\n  alpha: 0.1\n"))
    assert make_plan(load_gate_file(gate_file)).key == key


def plain(gate_file: Path) -> GateFile:
    gate_file.write_text(GATE_FILE)
    return load_gate_file(gate_file)


TPOT = "    - {metric: latency.tpot, max_ratio: 1.1, tier: advisory}\n"
TAILS = "    - {metric: latency.e2e, percentile: 95, max_ratio: 1.2, tier: advisory}\n"


def timed_gate(gate_file: Path, rule: str = TPOT, more: str = "") -> GateFile:
    gate_file.write_text(GATE_FILE.replace("store:", f"{rule}store:").replace("gate:\n", f"gate:\n{more}"))
    return load_gate_file(gate_file)


def timed(gate_file: Path, rule: str = TPOT, more: str = "") -> Plan:
    return make_plan(timed_gate(gate_file, rule, more))


def passages(gate_file: Path, count: int, questions: int = 4) -> None:
    """Clusters of which each holds the shortest answers and the longest."""
    rows = [
        {"id": f"{number:03d}", "prompt": f"passage {number // questions}, question {number}", "answer": "y",
         "cluster": f"{number // questions}", "max_new_tokens": 4 + 40 * (number % questions)}
        for number in range(count * questions)
    ]  # fmt: skip
    write_evalset(gate_file.parent, rows)


def groups(plan: Plan, questions: int = 4) -> int:
    """As the gate counts what may depend on each other in time."""
    ran = {prompt.key: job.index for job in plan.jobs for prompt in job.prompts}
    arms = [
        [
            UnitEvidence(key=key, case_hash="", status="done", job=ran[key], began=float(ran[key]))
            for key in sorted(ran)
            if key.arm == name
        ]
        for name in ("baseline", "same")
    ]
    together, _ = timed_together([int(unit.key.case_id) // questions for unit in arms[0]], *arms)
    return len(set(together.tolist()))


@pytest.mark.parametrize(("rule", "expected"), [(TPOT, 30), (TAILS, 60)])
def test_passages_are_whole_in_batches_so_that_their_times_stay_independent(gate_file, rule, expected):
    passages(gate_file, 60)
    assert groups(timed(gate_file, rule)) == expected, "two passages a batch of at most ten rows; one of at most four"
    assert groups(timed(gate_file, rule, "  stop: early\n")) >= expected


def test_answers_to_one_case_and_a_question_of_two_sets_are_in_one_batch(gate_file):
    for name, short in (("echo", 4), ("again", 90)):
        rows = [{"id": f"{n:03d}", "prompt": "p" * n, "max_new_tokens": short + n, "answer": "y"} for n in range(1, 49)]
        write_evalset(gate_file.parent, rows, name)
    text = timed_gate(gate_file).text.replace("[./echo.yaml]", "[./echo.yaml, ./again.yaml]")
    gate_file.write_text(text + "generation: {temperature: 0.5, repeats: 2}\n")
    jobs = [job for job in make_plan(load_gate_file(gate_file)).jobs if job.arm.is_baseline]
    asked = [Counter(prompt.key.case_id for prompt in job.prompts) for job in jobs]
    assert len(asked) == 24
    assert all(set(batch.values()) == {4} for batch in asked), "two sets, two answers each"


def test_where_times_decide_arms_alternate_and_what_is_compared_is_warmed_up(gate_file):
    untimed = make_plan(load_gate_file(gate_file))
    assert {(job.stage, job.timed) for job in untimed.jobs} == {(0, False)}
    plan = timed(gate_file)
    assert all(job.timed and not job.drafted for job in plan.jobs), "every token is decoded"
    assert all(job.drafted != job.arm.is_baseline for job in untimed.jobs)
    turns = [[job.arm.name for job in plan.jobs if job.stage == stage] for stage in range(len(plan.jobs) // 3)]
    assert all(sorted(turn) == ["baseline", "int2", "same"] for turn in turns), "one batch an arm"
    assert {turn[0] for turn in turns} == {"baseline", "int2", "same"}
    assert Counter(plan.expected) == Counter(untimed.expected)
    assert len({untimed.key, plan.key, timed(gate_file, TAILS).key}) == 3


def test_a_service_level_that_nothing_is_held_against_is_no_reason_to_decode_every_token(gate_file):
    """It may stand there for `qualgate load` alone."""
    plain_plan = make_plan(load_gate_file(gate_file))
    gate_file.write_text(gate_file.read_text() + "slo: {ttft: 0.5}\n")
    limited = make_plan(load_gate_file(gate_file))
    assert limited.key == plain_plan.key
    assert any(job.drafted for job in limited.jobs)
    judged = timed(gate_file, "    - {metric: goodput, min: 0.5, tier: advisory}\nslo: {ttft: 0.5}\n")
    assert not any(job.drafted for job in judged.jobs)


def test_an_early_run_takes_turns_within_its_looks(gate_file):
    plan, untimed = timed(gate_file, more="  stop: early\n"), early(gate_file)
    assert all(job.timed for job in plan.jobs)
    assert Counter(Counter(job.stage for job in plan.jobs).values()).keys() == {3}
    asked = [[p.key.case_id for job in one.jobs if job.arm.is_baseline for p in job.prompts] for one in (plan, untimed)]
    ends = [0, *plan.policy.stop.looks]
    assert [set(asked[0][a:b]) for a, b in pairwise(ends)] == [set(asked[1][a:b]) for a, b in pairwise(ends)]


def test_arms_that_do_not_fit_together_take_as_few_turns_as_decide(gate_file, monkeypatch):
    monkeypatch.setattr("qualgate.pipeline.residency.memory", lambda device: 1000)
    passages(gate_file, 60)
    plan = timed(gate_file)
    assert 1 + max(job.index for job in plan.jobs) > LEAST_BATCHES
    assert len({job.stage for job in plan.jobs}) == LEAST_BATCHES


def test_an_a_a_arm_keeps_its_own_batches_where_times_decide_and_comes_last(gate_file):
    plan = make_plan(with_noise_arm(timed_gate(gate_file)))
    untimed = make_plan(with_noise_arm(plain(gate_file)))
    names = [job.arm.name for job in plan.jobs]
    again = names.index(f"baseline{NOISE}")
    assert set(names[again:]) == {f"baseline{NOISE}"}
    cases = [
        [p.key for job in one.jobs if job.arm.name.endswith(NOISE) for p in job.prompts] for one in (plan, untimed)
    ]
    assert cases[0] == cases[1]
