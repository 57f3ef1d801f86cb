"""A stored run scored again by other metrics and corrected references: no model, every arm alike, and always said."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.config import load_gate_file
from qualgate.errors import Exit, UsageError
from qualgate.pipeline.named_sets import load_set
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.sets_today import sets_today
from qualgate.records import ArmFootprint, Case, Completion, Drift, Evalset, JobResult
from qualgate.scoring import score
from qualgate.store import queries, runs, scorings, seals
from qualgate.store.database import open_store
from qualgate.store.rescored_sets import as_rescored, rescored_sets
from tests.gated_model import write_evalset
from tests.tiny_models import save_tiny_model

CASES = 80
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  same: {quantize: {method: int8, group_size: 32}}
  lossy: {quantize: {method: int4, group_size: 32}}
evalsets: [./support.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.05}]}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1, devices: cpu}
"""
RIGHT = {"baseline": range(75), "same": range(75), "lossy": range(40)}  # whose answers hold the reference


def rows() -> list[dict]:
    return [
        {
            "id": f"c{number:02d}",
            "prompt": f"How many are in box {number}? ",
            "max_new_tokens": 8,
            "answer": f"{number}",
        }
        for number in range(CASES)
    ]


def answered(arm: str, case_id: str) -> str:
    number = int(case_id[1:])
    return f"There are {number if number in RIGHT[arm] else 1000 + number} in it."


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a complete run whose answers are sentences, scored by exact_match."""
    folder = tmp_path_factory.mktemp("made")
    save_tiny_model(folder / "model", seed=1, dtype="float32")
    write_evalset(folder, rows(), "support")
    (folder / "gate.yaml").write_text(GATE_FILE)
    gate = load_gate_file(folder / "gate.yaml")
    plan = make_plan(gate)
    cases = {case.id: case for case in plan.evalsets[0].cases}
    with open_store(gate.store_url) as store:
        run_id = runs.begin(store, plan).run_id
        for job in plan.jobs:
            done = tuple(
                Completion(
                    key=prompt.key, case_hash=cases[prompt.key.case_id].hash, token_ids=(1, 2),
                    text=answered(job.arm.name, prompt.key.case_id), finish_reason="eos", prompt_tokens=4,
                    logprobs=(-0.1, -0.1), margins=(1.0, 1.0), ttft=0.01, e2e=0.02,
                )
                for prompt in job.prompts
            )  # fmt: skip
            drifts = () if job.arm.is_baseline else tuple(
                Drift(key=one.key, kl=(0.0, 0.0), top1_agreement=1.0, first_divergence=None, length_ratio=1.0)
                for one in done
            )  # fmt: skip
            size = ArmFootprint(bytes_on_disk=9, bytes_in_memory=9, quantized_bytes=0, effective_bits=16.0)
            result = JobResult(index=job.index, arm=job.arm.name, identity=plan.identities[job.arm.name],
                               footprint=size, completions=done, drifts=drifts)  # fmt: skip
            scores = {one.key: score(cases[one.key.case_id], plan.evalsets[0], one.text, "eos") for one in done}
            runs.record(store, run_id, result, scores)
        runs.finish(store, run_id, (), complete=True)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def qualgate(*args: str):
    return CliRunner().invoke(app, list(args))


def refused(*args: str) -> str:
    error = qualgate(*args).exception
    assert isinstance(error, UsageError), "64, which `main` makes of it"
    return str(error)


def latest() -> str:
    with open_store("sqlite:///qualgate.db") as store:
        return queries.latest_run(store)


def stored(query: str) -> list[tuple]:
    with open_store("sqlite:///qualgate.db") as store, store.read() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def with_metric(folder: Path, *metrics: str) -> None:
    path = folder / "support.yaml"
    path.write_text(f"name: support\nversion: '2'\nmetrics: [{', '.join(metrics)}]\n")


def judged_by(folder: Path, metric: str) -> None:
    path = folder / "gate.yaml"
    path.write_text(path.read_text().replace("{metric: exact_match,", f"{{metric: {metric},"))


def reasons(folder: Path, variant: str) -> tuple[str, ...]:
    body = json.loads(qualgate("gate", "gate.yaml", "--json").stdout)
    return next(one["reasons"] for one in body["verdicts"] if one["variant"] == variant)


def test_a_metric_that_the_file_got_later_is_scored_from_stored_answers_and_decides(folder):
    assert qualgate("gate", "gate.yaml").exit_code == Exit.UNDECIDED, "no answer equals its reference"
    with_metric(folder, "exact_match", "contains")
    judged_by(folder, "contains")
    assert f"qualgate rescore {latest()} gate.yaml" in refused("gate", "gate.yaml")
    dry = qualgate("rescore", latest(), "gate.yaml", "--dry-run", "--json")
    assert (dry.exit_code, stored("select count(*) from sealed")) == (Exit.BLOCK, [(0,)])
    done = qualgate("rescore", latest(), "gate.yaml")
    assert done.exit_code == Exit.BLOCK, done.output
    assert "support: new metrics contains" in done.stdout
    again = qualgate("gate", "gate.yaml")
    assert again.exit_code == Exit.BLOCK
    fell, note, *_ = reasons(folder, "lossy")
    assert "35 lost, 0 gained of 80" in fell
    assert "after the answers were seen: support with contains, exact_match (before: exact_match)" in note
    assert json.loads(dry.stdout)["verdicts"][1]["reasons"][0] == fell
    assert "scored again on " in qualgate("runs").stdout
    assert "Scoring 1, scored again on " in qualgate("report", "--run", latest()).stdout
    assert "after the answers were seen" in reasons(folder, "same")[0], "first, where it approves"
    assert "scored again on " in qualgate("answers", latest()).stdout
    with open_store("sqlite:///qualgate.db") as store:
        assert list(seals.broken(store)) == []
        assert runs.evidence(store, latest(), scoring=0).scored_again is None, "the recorded scoring stays readable"


def test_a_corrected_reference_counts_in_every_arm_and_is_named(folder):
    judged_by(folder, "contains")
    with_metric(folder, "contains")
    key = [row | ({"answer": "1079"} if row["id"] == "c79" else {}) for row in rows()]
    key[78] = key[78] | {"references": ["78", "1078"]}
    (folder / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in key))
    assert qualgate("rescore", "gate.yaml").exit_code == Exit.BLOCK
    note = reasons(folder, "lossy")[1]
    assert "2 references corrected for every arm (support/c78, support/c79)" in note
    scored = stored("select u.arm, s.value from scores s join units u using (unit_id) where s.scoring = 1 and "
                    "s.metric = 'contains' and u.case_id in ('c78', 'c79')")  # fmt: skip
    assert sorted(scored) == [(arm, 1.0) for arm in ("baseline", "baseline", "lossy", "lossy", "same", "same")]
    shown = json.loads(qualgate("answers", latest(), "--case", "c79", "--json").stdout)
    assert shown[0]["reference"] == "1079"
    before = json.loads(qualgate("answers", latest(), "--case", "c79", "--scoring", "0", "--json").stdout)
    assert (before[0]["reference"], [*before[0]["scores"]]) == ("79", ["exact_match"])
    assert "has scorings 0 (as recorded) to 1" in refused("answers", latest(), "--scoring", "2")
    assert stored("select body_json from cases where body_json like '%1079%'") == []
    assert "already" in qualgate("rescore", "gate.yaml").stdout, "nothing is left to do"


def test_a_rule_on_the_form_of_answers_needs_no_new_run(folder):
    path = folder / "gate.yaml"
    path.write_text(
        path.read_text().replace(
            "{metric: exact_match,", "{metric: format.nonempty, max_drop: 0.05}, {metric: exact_match,"
        )
    )
    assert any("rescore" in line for line in reasons(folder, "same"))
    qualgate("rescore", "gate.yaml")
    with open_store("sqlite:///qualgate.db") as store:
        evidence = runs.evidence(store, latest())
    assert evidence.scored_again.metrics == {"support": (("exact_match",), ("exact_match", "format.nonempty"))}
    assert evidence.metrics == {"support": ("exact_match",)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda cases: cases[3].update(prompt="How many? "), "support: 1 case with another question: c03 (prompt)"),
        (lambda cases: cases[3].update(max_new_tokens=9), "c03 (max_new_tokens)"),
        (lambda cases: cases[3].update(cluster="box"), "c03 (cluster)"),
        (lambda cases: cases.pop(7), "1 case missing from the file: c07"),
        (
            lambda cases: cases.append(rows()[0] | {"id": "new", "prompt": "And?"}),
            "1 case that the run did not ask: new",
        ),
    ],
)
def test_other_questions_are_refused_by_name(folder, change, told):
    cases = rows()
    change(cases)
    (folder / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cases))
    message = refused("rescore", latest(), "gate.yaml")
    assert told in message
    assert "qualgate run gate.yaml" in message
    assert stored("select count(*) from sealed") == [(0,)]


BY_LIKELIHOOD = "multiple_choice.acc"


@pytest.mark.parametrize(
    ("metric", "choices", "told"),
    [
        (BY_LIKELIHOOD, ["red", "blue", "grey"], "1 case with another question: c0 (choices, requests)"),
        ("multiple_choice", ["blue", "red", "green"], "1 case with another question: c0 (choices)"),
        ("multiple_choice", ["red", "blue"], "c0 (choices)"),
        ("multiple_choice", ["red", "blue", "grey"], None),
        ("exact_match", ["blue", "red"], None),
    ],
)
def test_choices_that_a_model_read_or_named_by_letter_are_part_of_the_question(folder, metric, choices, told):
    case = {"id": "c0", "prompt": "Which?", "answer": "red"} | (
        {} if metric == BY_LIKELIHOOD else {"max_new_tokens": 1}
    )
    with_metric(folder, metric)
    judged_by(folder, metric)
    gate = load_gate_file(folder / "gate.yaml")

    def read(*choices: str) -> Evalset:
        (folder / "support.jsonl").write_text(json.dumps(case | {"choices": choices}) + "\n")
        return load_set("./support.yaml", folder)

    recorded, today = read("red", "blue", "green"), read(*choices)
    if told is None:
        assert sets_today(gate, "r", (recorded,), partial=False)[0].cases == today.cases
        return
    with pytest.raises(UsageError, match=re.escape(told)):
        sets_today(gate, "r", (recorded,), partial=False)


def test_a_null_that_was_recorded_stays():
    recorded = Evalset(name="s", version="1", sha256="0" * 64, metrics=("exact_match",), cases=(
        Case(evalset="s", body={"id": "c", "prompt": "?", "answer": "1", "pattern": None}),
    ))  # fmt: skip
    today = replace(recorded, cases=(Case(evalset="s", body=recorded.cases[0].body | {"answer": "2"}),))
    stored_again = as_rescored(recorded, rescored_sets((recorded,), (today,)))
    assert stored_again.cases == today.cases, "so nothing is left to do"


def test_a_reference_that_is_null_today_is_scored_once(folder):
    key = [row | ({"pattern": None, "tags": ["late"]} if row["id"] == "c79" else {}) for row in rows()]
    (folder / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in key))
    for _ in range(2):
        qualgate("rescore", "gate.yaml")
    assert stored("select count(*) from sealed") == [(1,)]


def test_a_judge_is_not_asked_where_the_answers_cannot_be_scored(folder, monkeypatch):
    asked = []
    monkeypatch.setattr("qualgate.pipeline.rescore.ask_judge", lambda *args, **named: asked.append(args))
    monkeypatch.setattr("qualgate.pipeline.rescore.scorer_versions", dict)
    assert "this version has no scorer of exact_match" in refused("rescore", "gate.yaml")
    assert asked == []


def test_a_trial_holds_a_part_of_the_file_s_cases(folder):
    with open_store("sqlite:///qualgate.db") as store:
        [item] = scorings.read(store, latest()).recorded
    few, gate = replace(item, cases=item.cases[:5]), load_gate_file(folder / "gate.yaml")
    [found] = sets_today(gate, "r", (few,), partial=True)
    assert found.cases == few.cases
    with pytest.raises(UsageError, match="75 cases that the run did not ask: c"):
        sets_today(gate, "r", (few,), partial=False)


def test_other_tags_are_named_for_rules_choose_by_them(folder):
    tagged = [row | {"tags": ["late" if row["id"] > "c60" else "early"]} for row in rows()]
    (folder / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tagged))
    assert any("evalset support is not the one of run" in line for line in reasons(folder, "same"))
    qualgate("rescore", "gate.yaml")
    assert "other tags on cases of support" in reasons(folder, "same")[1]


def test_without_a_gate_file_a_run_says_that_its_own_rules_no_longer_fit(folder):
    with_metric(folder, "contains")
    judged_by(folder, "contains")
    qualgate("rescore", "gate.yaml")
    assert "qualgate gate GATE.yaml --run" in refused("gate", "--store", "sqlite:///qualgate.db")


def test_references_of_a_scoring_that_were_changed_are_found(folder):
    with_metric(folder, "exact_match", "contains")
    qualgate("rescore", "gate.yaml")
    with open_store("sqlite:///qualgate.db") as store, store.write() as connection:
        connection.execute(text("drop trigger sealed_no_update"))
        changed = "update sealed set body_json = replace(body_json, '\"2\"', '\"3\"')"
        connection.execute(text(changed))
    assert qualgate("gate", "gate.yaml").exit_code == Exit.INTEGRITY
    with open_store("sqlite:///qualgate.db") as store:
        assert any("scoring 1" in line for line in seals.broken(store))


def test_a_later_scoring_by_newer_scorers_keeps_the_corrected_references(folder, monkeypatch):
    with_metric(folder, "contains")
    judged_by(folder, "contains")
    qualgate("rescore", "gate.yaml")
    newer = lambda: {"contains": "contains/99"}  # noqa: E731
    monkeypatch.setattr("qualgate.pipeline.rescore.scorer_versions", newer)
    assert qualgate("rescore", "gate.yaml").exit_code == Exit.BLOCK
    with open_store("sqlite:///qualgate.db") as store:
        last, evidence = scorings.read(store, latest()), runs.evidence(store, latest())
    assert (last.number, last.evalsets[0].metrics, last.recorded[0].metrics) == (2, ("contains",), ("exact_match",))
    assert evidence.scored_again.metrics == {"support": (("exact_match",), ("contains",))}


def test_two_gate_files_or_two_runs_are_refused(folder):
    assert "one run and one gate file" in refused("rescore", "a", "b")
    assert "one run and one gate file" in refused("rescore", "a.yaml", "gate.yaml")
