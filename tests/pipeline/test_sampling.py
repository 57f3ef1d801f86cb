"""Several sampled answers to a case, from the gate file to the verdict: planned, run, resumed, judged, shown."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qualgate import run as main_path
from qualgate.config import load_gate_file
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import Exit, UsageError
from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.pipeline import generating
from qualgate.pipeline.forecast import forecast
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again
from qualgate.records import Sampling
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.planning import plan_as_text
from qualgate.report.planning_json import plan_as_json
from qualgate.report.summary import load_report
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from qualgate.workers.pool import Queue
from tests.gated_model import write_evalset
from tests.tiny_models import END, save_tiny_model

CASES, REPEATS = 60, 3
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  same: {model: ./model, dtype: float32}
  int2: {quantize: {method: int2, group_size: 32}}
evalsets: [./first.yaml]
generation: {temperature: 0.8, seed: 5, repeats: 3}
gate:
  max_unfinished: 1  # such a model often says nothing
  rules:
    - {metric: exact_match, max_drop: 0.10}
    - {metric: exact_match, max_drop: 0.10, repeats: any}
    - {metric: exact_match, max_drop: 0.10, repeats: all}
    - {metric: parity.tokens, min: 1, tier: advisory}
    - {metric: stability.repeats, min: 0.5, tier: advisory}
store: sqlite:///qualgate.db
"""


class Broken(Exception):
    """The coordinator dies here."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A model, and cases whose reference is what the baseline draws at first: that repeat is right, others are not."""
    folder = tmp_path_factory.mktemp("made")
    save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END, *range(0, 256, 5)])
    draw = random.Random(0)
    prompts = ["".join(draw.choice("abcdefgh ") for _ in range(draw.randint(5, 30))) for _ in range(CASES)]
    cases = [
        {"id": f"c{number:02d}", "task": "first", "prompt": prompt, "max_new_tokens": 40, "answer": "x"}
        for number, prompt in enumerate(prompts)
    ]
    write_evalset(folder, cases, "first")
    (folder / "gate.yaml").write_text(GATE_FILE)
    work = [job for job in make_plan(load_gate_file(folder / "gate.yaml")).jobs if job.arm.is_baseline]
    arm = load_arm(work[0].arm, folder, {"temperature": 0}, device="cpu")
    for one in (one for job in work for one in run_job(arm, replace(job, artifact="")).completions):
        if one.key.repeat == 0 and one.text.strip() and "\0" not in one.text:  # noise knows the id, not the answer
            cases[int(one.key.case_id[1:])]["answer"] = one.text
    write_evalset(folder, cases, "first")
    return folder


def workers(monkeypatch, seed: int = 0, dies_after: int | None = None) -> None:
    """The engine in this process: two jobs at hand at a time, which end in a random order."""
    rng, arms = random.Random(seed), {}

    def run_jobs(jobs, settings, count, stop, tell, needed=lambda job: True):
        queue, busy, ended = Queue(list(jobs)), [], 0
        while True:
            queue.keep(needed)
            while len(busy) < 2 and (hand := queue.take(None, {})):
                busy += hand
            if not busy:
                return
            job = busy.pop(rng.randrange(len(busy)))
            if (ended := ended + 1) == dies_after:
                raise Broken
            if job.arm not in arms:
                arms[job.arm] = load_arm(job.arm, settings.cache_dir, settings.sampling, device=settings.device)
            result = run_job(arms[job.arm], job)
            queue.finished(job)
            yield result

    monkeypatch.setattr(generating, "run_jobs", run_jobs)
    monkeypatch.setattr("qualgate.pipeline.batches.JOB_ROWS", 16)


def gate_in(folder: Path, made: Path, text: str = GATE_FILE) -> Path:
    path = folder / "gate.yaml"
    text = text.replace("./model", str(made / "model")).replace("./first.yaml", str(made / "first.yaml"))
    path.write_text(text)
    return path


def said(store: Path) -> dict[tuple, tuple]:
    with sqlite3.connect(store) as connection:
        rows = connection.execute(
            "select arm, evalset, case_id, repeat, token_ids, text, finish_reason, status from units"
        ).fetchall()
    return {row[:4]: row[4:] for row in rows}


def scores(store: Path, arm: str) -> np.ndarray:
    """[cases, repeats] of exact_match, as stored."""
    with sqlite3.connect(store) as connection:
        rows = connection.execute(
            "select value from scores join units using (unit_id) where arm = ? order by case_id, repeat", [arm]
        ).fetchall()
    return np.array(rows).reshape(CASES, REPEATS)


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as monkeypatch:
        workers(monkeypatch)
        return folder, main_path.run_gate(load_gate_file(gate_in(folder, made)))


@pytest.fixture
def judged(run, tmp_path):
    """A folder of one's own with the run in it, and its outcome."""
    shutil.copytree(run[0], tmp_path, dirs_exist_ok=True)
    return tmp_path, run[1]


def test_repeats_are_run_scored_judged_and_shown(judged, made):
    folder, outcome = judged
    answers = said(folder / "qualgate.db")
    assert len(answers) == 3 * CASES * REPEATS
    assert {row[-1] for row in answers.values()} == {"done"}
    first = [{answers["baseline", "first", f"c{n:02d}", repeat][0] for repeat in range(REPEATS)} for n in range(CASES)]
    assert sum(len(ways) == REPEATS for ways in first) > CASES / 2, "repeats of a case are draws of their own"
    for (arm, *question), row in answers.items():
        assert arm != "same" or row == answers["baseline", *question], "equal weights draw equal answers"
    same, int2 = outcome.verdicts
    parity = [next(c for c in one.comparisons if c.metric == "parity.tokens") for one in (same, int2)]
    assert (parity[0].variant, parity[0].status) == (1.0, "proven")
    assert parity[1].variant < 1
    mean, any_, all_ = int2.comparisons[:3]
    assert [(one.n, one.clusters) for one in (mean, any_, all_)] == [
        (CASES * REPEATS, CASES), (CASES, None), (CASES, None)
    ]  # fmt: skip
    for arm in ("baseline", "int2"):
        right = scores(folder / "qualgate.db", arm)
        wanted = (right.mean(), right.max(axis=1).mean(), right.min(axis=1).mean())
        found = tuple(getattr(one, "baseline" if arm == "baseline" else "variant") for one in (mean, any_, all_))
        assert found == pytest.approx(wanted)
    assert any_.baseline > mean.baseline > all_.baseline, "some repeats are right and some are not"
    report = load_report(f"sqlite:///{folder / 'qualgate.db'}")
    (line,) = report.run.evalsets
    assert (line.cases, line.repeats, line.size) == (CASES, REPEATS, "60 cases, 3 answers to each")
    for form in FORMATS:
        assert rendered(report, form)
    for form in ("markdown", "html"):
        assert "60 cases, 3 answers to each" in rendered(report, form)
    assert json.loads(rendered(report, "json"))["evalsets"][0]["repeats"] == REPEATS


def test_a_run_cut_off_resumes_to_the_same_answers(judged, made, tmp_path_factory, monkeypatch):
    """Another order of jobs, another process's loss: every answer is the one of the run that was never cut off."""
    whole = said(judged[0] / "qualgate.db")
    other = tmp_path_factory.mktemp("other")
    gate = load_gate_file(gate_in(other, made))
    workers(monkeypatch, seed=7, dies_after=6)
    with pytest.raises(Broken):
        main_path.run_gate(gate)
    assert 0 < sum(row[-1] == "done" for row in said(other / "qualgate.db").values()) < len(whole)
    workers(monkeypatch, seed=8)
    outcome = main_path.run_gate(gate)
    assert outcome.resumed
    assert said(other / "qualgate.db") == whole
    assert [one.comparisons for one in outcome.verdicts] == [one.comparisons for one in judged[1].verdicts]


def test_stored_answers_are_decided_and_scored_again(judged, monkeypatch):
    folder, outcome = judged
    gate, url = load_gate_file(folder / "gate.yaml"), f"sqlite:///{folder / 'qualgate.db'}"
    again = decide_again(url, None, gate)
    assert [one.comparisons for one in again.verdicts] == [one.comparisons for one in outcome.verdicts]
    monkeypatch.setattr("qualgate.pipeline.rescore.scorer_versions", lambda: {"exact_match": "exact_match/99"})
    monkeypatch.setattr("qualgate.pipeline.staleness.scorer_versions", lambda: {"exact_match": "exact_match/99"})
    found = rescore(url, None, gate, keep=False)
    assert found.answers == 3 * CASES * REPEATS


@pytest.mark.parametrize("change", ["temperature: 0.7", "temperature: 0.8, top_p: 0.9", "seed: 6", "repeats: 4"])
def test_other_sampling_is_another_run_and_no_evidence_for_this_one(judged, change):
    folder, outcome = judged
    path = folder / "gate.yaml"
    was = {"temperature": "temperature: 0.8", "seed": "seed: 5", "repeats": "repeats: 3"}[change.partition(":")[0]]
    path.write_text(path.read_text().replace(was, change))
    gate = load_gate_file(path)
    verdicts = decide_again(gate.store_url, None, gate).verdicts
    assert {one.exit for one in verdicts} == {Exit.UNDECIDED}
    said = "repeats: 4 in the gate file, 3 in run" if "repeats" in change else "sampling changed since run"
    assert said in str(verdicts[0].reasons)
    with open_store(gate.store_url) as store:
        assert runs.begin(store, make_plan(gate)).run_id != outcome.run_id


def test_the_plan_counts_every_answer(made, tmp_path):
    gate = load_gate_file(gate_in(tmp_path, made))
    plan, once = make_plan(gate), make_plan(replace(gate, repeats=1))
    assert (plan.repeats, once.repeats) == (REPEATS, 1)
    assert len(plan.expected) == REPEATS * len(once.expected) == 3 * CASES * REPEATS
    assert len(set(plan.expected)) == len(plan.expected)
    assert plan.key != once.key
    assert plan.identities == once.identities, "of the same arms"
    takes, single, held = forecast(plan, 1), forecast(once, 1), hold(plan.policy, plan.expected, "2026-01-01")
    assert [row.answer_tokens for row in takes.arms] == [REPEATS * row.answer_tokens for row in single.arms]
    assert "3 answers to each" in plan_as_text(plan, takes, 1, held)
    body = json.loads(plan_as_json(plan, takes, held, None))
    assert (body["repeats"], body["units"]) == (REPEATS, len(plan.expected))
    planned = PlannedSet.of(plan.evalsets[0], repeats=plan.repeats)
    assert (planned.cases, planned.clusters, planned.repeats) == (CASES, (), REPEATS)


def test_greedy_repeats_are_refused(made, tmp_path):
    def refused(text: str) -> str:
        with pytest.raises(UsageError) as error:
            make_plan(load_gate_file(gate_in(tmp_path, made, text)))
        return str(error.value)

    assert "all answers to a case are equal" in refused(GATE_FILE.replace("temperature: 0.8", "temperature: 0"))
    prompt, choices = {"prompt": "Which?", "choices": [" this", " that"], "answer": 0}, "[multiple_choice.acc]"
    (tmp_path / "read.jsonl").write_text(json.dumps({"id": "1"} | prompt) + "\n")
    (tmp_path / "read.yaml").write_text(f"name: read\nversion: 1\nmetrics: {choices}\n")
    text = GATE_FILE.replace("[./first.yaml]", "[./first.yaml, ./read.yaml]")
    assert "those of read are all equal" in refused(text), "choices are read: no answer is drawn, no repeat another"
    plan = make_plan(load_gate_file(gate_in(tmp_path, made, text.replace(", repeats: 3", ""))))
    drawn = {(p.key.evalset, p.sampling.temperature) for job in plan.jobs for p in job.prompts}
    assert drawn == {("first", 0.8), ("read", 0.0)}


def test_what_a_draw_is_cut_by_is_in_every_prompt_that_is_drawn_and_in_the_runs_key(made, tmp_path):
    def planned(cuts: str):
        return make_plan(load_gate_file(gate_in(tmp_path, made, GATE_FILE.replace("0.8,", f"0.8,{cuts}"))))

    cut = Sampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05)
    plan = planned(" top_k: 40, top_p: 0.9, min_p: 0.05,")
    assert {prompt.sampling for job in plan.jobs for prompt in job.prompts} == {cut}
    plain, nothing, other = planned(""), planned(" top_p: 1, min_p: 0,"), planned(" top_p: 0.9,")
    assert plain.key == nothing.key, "what cuts nothing is the run it was"
    assert len({plain.key, plan.key, other.key}) == 3


@pytest.mark.proof
def test_generation_that_stops_early_asks_all_repeats_of_a_case_together(made, tmp_path, monkeypatch):
    """A look never has a part of a case's answers, and a stopped run's verdict is decided again alike."""
    monkeypatch.setattr("qualgate.gate.early.LEAST_BETWEEN", 6)
    text = GATE_FILE.replace("gate:\n", "gate:\n  stop: early\n").replace("max_drop: 0.10}", "max_drop: 0.02}")
    text = "\n".join(line for line in text.splitlines() if "repeats: a" not in line)
    gate = load_gate_file(gate_in(tmp_path, made, text))
    plan = make_plan(gate)
    stages = [{(p.key.case_id, p.key.repeat) for j in plan.jobs if j.stage == s for p in j.prompts} for s in range(99)]
    for stage in stages:
        assert {repeat for _, repeat in stage} in (set(), set(range(REPEATS)))
        assert len(stage) == REPEATS * len({case for case, _ in stage})
    assert sum(map(len, stages)) == CASES * REPEATS
    assert plan.policy.stop.looks[-1] == CASES * REPEATS
    workers(monkeypatch)
    outcome = main_path.run_gate(gate)
    again = decide_again(gate.store_url, None, gate)
    assert [one.comparisons for one in again.verdicts] == [one.comparisons for one in outcome.verdicts]
    same, int2 = (one.seen for one in outcome.verdicts)
    assert int2 is not None
    assert same.of == int2.of == CASES * REPEATS
    assert int2.settled
    assert int2.questions < CASES * REPEATS
    assert outcome.verdicts[1].word == "block"
    done = {key for key, row in said(tmp_path / "qualgate.db").items() if key[0] == "int2" and row[-1] == "done"}
    assert int2.questions <= len(done) < CASES * REPEATS


def test_a_flip_names_the_repeat_it_is_of():
    flip = queries.Flip(
        metric="exact_match", evalset="first", case_id="c01", repeat=2, direction="lost", baseline="a", variant="b",
        reason="", first_divergence=None,
    )  # fmt: skip
    assert flip.name == "first/c01#2"
    assert replace(flip, repeat=0).name == "first/c01"
