"""Constraints of cases, from the evalset to the verdict: planned, refused, run with and without a draft, shown."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from qualgate import run as main_path
from qualgate.config import load_gate_file
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import UsageError
from qualgate.pipeline import generating
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.rescore import rescore
from qualgate.report.formats import rendered
from qualgate.report.summary import load_report
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.gated_model import write_evalset
from tests.tiny_models import save_tiny_model

PATTERN = "(yes|no)( sir)?"
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  int4: {quantize: {method: int4, group_size: 32}}
  drafted: {speculation: {draft: ngram, tokens: 4}}
evalsets: [./polite.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1, devices: cpu}
"""


def workspace(folder: Path, constraint: object = None, cases: int = 12) -> Path:
    """A gate file whose every second case is constrained."""
    save_tiny_model(folder / "model", seed=1, dtype="float32")
    rows = [
        {"id": f"c{number:02d}", "prompt": f"Is {number} even? ", "max_new_tokens": 16, "answer": "yes"}
        for number in range(cases)
    ]
    for row in rows[::2]:
        row["constraint"] = constraint or {"regex": PATTERN}
    write_evalset(folder, rows, "polite")
    (folder / "gate.yaml").write_text(GATE_FILE)
    return folder / "gate.yaml"


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_jobs(jobs, settings, count, stop, tell, needed=lambda job: True):
        for job in jobs:
            yield run_job(load_arm(job.arm, settings.cache_dir, settings.sampling, device=settings.device), job)

    monkeypatch.setattr(generating, "run_jobs", run_jobs)


def test_a_plan_is_known_by_its_constraints(tmp_path, monkeypatch):
    path = workspace(tmp_path)
    plan = make_plan(load_gate_file(path))
    assert [bool(prompt.constraint) for prompt in plan.jobs[0].prompts].count(True) == 6
    other = make_plan(load_gate_file(workspace(tmp_path, {"regex": "yes|no"})))
    assert other.key != plan.key
    assert {one.hash for one in other.evalsets[0].cases} != {one.hash for one in plan.evalsets[0].cases}
    monkeypatch.setattr("qualgate.pipeline.run_key.constraint_library", lambda: "llguidance 0")
    assert make_plan(load_gate_file(path)).key not in (plan.key, other.key)


def test_a_constraint_that_no_token_can_begin_is_refused_with_its_cases(tmp_path):
    path = workspace(tmp_path, {"grammar": 'start: start "a"'}, cases=14)
    with pytest.raises(UsageError, match=r"polite/c00, polite/c02, .* and 2 more admits no token of this model"):
        make_plan(load_gate_file(path))


def test_constrained_cases_are_run_stored_judged_shown_and_scored_again(tmp_path, monkeypatch):
    in_this_process(monkeypatch)
    path = workspace(tmp_path)
    gate = load_gate_file(path)
    outcome = main_path.run_gate(gate)
    with sqlite3.connect(tmp_path / "qualgate.db") as connection:
        rows = connection.execute(
            "select arm, case_id, text, token_ids, finish_reason, constraint_masked from units order by unit_id"
        ).fetchall()
    said = {(arm, case): rest for arm, case, *rest in rows}
    for (_arm, case), (text, _, reason, masked) in said.items():
        bound = int(case[1:]) % 2 == 0
        assert (masked is not None) == bound
        assert not bound or (reason == "eos" and re.fullmatch(PATTERN, text) and 0 < masked < 1)
        assert said["drafted", case] == said["baseline", case]
    with open_store(gate.store_url) as store:
        assert runs.evidence(store, outcome.run_id).integrity == ()
    report = load_report(gate.store_url, outcome.run_id)
    verdict = next(one for one in report.verdicts if one.variant == "int4")
    masked = verdict.drift["constraint.masked"]
    assert masked == pytest.approx(sum(said["int4", f"c{n:02d}"][3] for n in range(0, 12, 2)) / 6, abs=1e-12)
    assert "probability outside the cases' constraints" in rendered(report, "markdown").replace("\\", "")
    rescore(gate.store_url, outcome.run_id, gate)
    with open_store(gate.store_url) as store:
        assert runs.evidence(store, outcome.run_id).integrity == ()
