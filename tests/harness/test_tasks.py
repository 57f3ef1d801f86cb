"""`evalsets: [{lm_eval: TASK}]`: lm-eval asks and scores, our engine answers, and every sample lands in the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import install_command
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again
from qualgate.records import LmEvalTask, Sampling
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.command_line import forked_workers

pytest.importorskip("lm_eval")

from qualgate.harness import tasks

GATE = """\
version: 1
baseline: {{model: reference, dtype: float32}}
variants:
  same: {{quantize: {{method: int8, group_size: 32}}}}
  int2: {{quantize: {{method: int2, group_size: 64}}}}
evalsets:
  - {{lm_eval: sums, include_path: {tasks}, filter: strict-match}}
  - {{lm_eval: line, include_path: {tasks}}}
  - {{lm_eval: choice, include_path: {tasks}}}
  - {{lm_eval: greedy, include_path: {tasks}}}
  - {{lm_eval: text, include_path: {tasks}}}
gate:
  uncounted: allow
  rules:
    - {{metric: lm_eval.exact_match, per: evalset, max_drop: 0.15}}
    - {{metric: lm_eval.acc, evalset: greedy, max_drop: 0.15}}
    - {{metric: drift.kl_mean, evalset: text, max: 0.5, tier: advisory}}
workers: {{count: 1, devices: cpu}}
"""


def gate(folder: Path, tasks: Path):
    path = folder / "gate.yaml"
    path.write_text(GATE.format(tasks=tasks))
    return load_gate_file(path)


@pytest.fixture(scope="module")
def ran(folder, tmp_path_factory):
    """(outcome, evidence, gate file) of a run over every task."""
    from qualgate.run import run_gate

    loaded = gate(tmp_path_factory.mktemp("run"), folder)
    with forked_workers():
        outcome = run_gate(loaded)
    with open_store(loaded.store_url) as store:
        return outcome, runs.evidence(store, outcome.run_id), loaded


@pytest.mark.proof
def test_a_run_approves_eight_bits_and_blocks_two_and_stores_every_sample_with_lm_evals_scores(ran, theirs):
    """The baseline's float32 weights in our engine and in lm-eval's own model class: the same values everywhere."""
    outcome, evidence, _ = ran
    assert outcome.failures == ()
    assert {verdict.variant: verdict.word for verdict in outcome.verdicts} == {"same": "approve", "int2": "block"}
    ours = {(unit.key.evalset, unit.key.case_id): unit.values for unit in evidence.baseline.units}
    assert len(ours) == 5 * 24
    compared = 0
    for task, rows in theirs["samples"].items():
        for row in rows:
            values = ours[task, str(row["doc_id"])]
            for metric in row["metrics"]:
                other = f"lm_eval.{metric},{row['filter']}"  # not gated, or of the filter that is not
                if isinstance(row[metric], int | float):
                    found = values[other if other in values else f"lm_eval.{metric}"]
                    assert found == pytest.approx(row[metric], abs=1e-4)
                    compared += 1
    assert compared == 24 * (2 + 1 + 3 + 2), "sums by two filters, line, choice by three metrics, greedy by two"
    bits = [ours["text", str(row["doc_id"])]["lm_eval.bits_per_byte,none"] for row in theirs["samples"]["text"]]
    whole = [row["bits_per_byte"] for row in theirs["samples"]["text"]]
    assert bits == pytest.approx([-nats / bytes_ / 0.6931471805599453 for nats, bytes_ in whole], rel=1e-5)


@pytest.mark.proof
def test_a_run_is_scored_again_by_another_version_of_lm_eval_without_a_model(ran, monkeypatch):
    outcome, _, loaded = ran
    url = loaded.store_url
    same = rescore(url, None, None)
    assert (same.scorers, same.stored) == ({}, False)
    monkeypatch.setattr(tasks, "library", lambda: "lm_eval/99")
    stale = decide_again(url, None, loaded)
    assert {verdict.word for verdict in stale.verdicts} == {"undecided"}
    assert any(
        "lm_eval/99 strict-match in this version: qualgate rescore" in line for line in stale.verdicts[0].reasons
    )
    with pytest.raises(UsageError, match=r"qualgate rescore GATE\.yaml"):
        rescore(url, None, None)
    with monkeypatch.context() as loading:
        loading.setattr("qualgate.engine.load.load_arm", lambda *_: pytest.fail("no model is needed"))
        found = rescore(url, None, loaded, keep=False)
    assert found.changes == ()
    version = next(iter(found.scorers["lm_eval.acc"][0].split()))
    assert found.scorers["lm_eval.acc"] == (f"{version} none", "lm_eval/99 none")
    words = {verdict.variant: verdict.word for verdict in outcome.verdicts}
    assert {one.after.variant: one.after.word for one in found.verdicts} == words


@pytest.mark.proof
def test_likelihoods_drift_at_every_token_that_was_read(ran):
    _, evidence, _ = ran
    by_arm = {arm.name: arm for arm in evidence.variants}
    means = {}
    for name, arm in by_arm.items():
        text = [unit for unit in arm.units if unit.key.evalset == "text"]
        assert all(len(unit.kl) == unit.tokens > 40 for unit in text)
        assert max(len(unit.kl) for unit in text) > 1024, "longer than the context, so read in windows"
        means[name] = sum(map(sum, (unit.kl for unit in text))) / sum(len(unit.kl) for unit in text)
    assert 0 < means["same"] < 0.05 < means["int2"]


def test_the_same_gate_file_is_the_same_plan_and_another_filter_another(folder, tmp_path):
    def content(**changed: object) -> str:
        ref = LmEvalTask(**{"task": "sums", "include_path": str(folder), "filter": "strict-match", **changed})
        tasks._loaded.cache_clear()
        return tasks.load(ref).content

    assert content() == content()
    assert len({content(), content(filter="flexible-extract"), content(limit=3)}) == 3


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"task": "nothing"}, "no task 'nothing'"),
        ({"task": "sums"}, "strict-match, flexible-extract"),
        ({"task": "sums", "filter": "lost"}, "no filter 'lost'"),
        ({"task": "line", "metric": "bleu"}, "no metric 'bleu'"),
        ({"task": "text", "metric": "bits_per_byte"}, "worse"),
        ({"task": "broken"}, "cannot be loaded"),
        ({"task": "sampled"}, "samples"),
    ],
    ids=str,
)
def test_a_task_that_cannot_be_asked_or_judged_is_refused(folder, tmp_path, entry, said):
    for path in folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    line = (folder / "line.yaml").read_text()
    changes = {"broken": ("rows.jsonl", "nowhere.jsonl"), "sampled": ("do_sample: false", "do_sample: true")}
    for name, change in changes.items():
        (tmp_path / f"{name}.yaml").write_text(line.replace("task: line", f"task: {name}").replace(*change))
    with pytest.raises(UsageError, match=said):
        tasks.load(LmEvalTask(include_path=str(tmp_path), **entry))


def test_a_task_that_samples_at_a_temperature_has_it_and_the_others_stay_greedy(folder, tmp_path, monkeypatch):
    """Its own temperature is a part of its cases; the gate file's is for other evalsets."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    line = (folder / "line.yaml").read_text()
    how = "do_sample: true, temperature: 0.7, top_p: 0.9"
    warm = line.replace("task: line", "task: warm").replace("do_sample: false", how)
    (tmp_path / "warm.yaml").write_text(warm)
    (tmp_path / "many.yaml").write_text(warm.replace("task: warm", "task: many\nrepeats: 4"))
    sets = {name: tasks.load(LmEvalTask(task=name, include_path=str(tmp_path), limit=3)) for name in ("line", "warm")}
    assert {case.body.get("temperature") for case in sets["warm"].cases} == {0.7}
    assert {case.body.get("temperature") for case in sets["line"].cases} == {None}
    assert sets["line"].content != sets["warm"].content
    with monkeypatch.context() as patch:
        patch.setattr("qualgate.records.sampling.NOISE_ID", "gumbel/0")
        tasks._loaded.cache_clear()
        before = tasks.load(LmEvalTask(task="warm", include_path=str(tmp_path), limit=3))
    tasks._loaded.cache_clear()
    assert before.content != sets["warm"].content, "answers drawn by other noise are no part of this run"
    with pytest.raises(NotInThisVersion, match="draws 4 answers"):
        tasks.load(LmEvalTask(task="many", include_path=str(tmp_path)))

    path = tmp_path / "gate.yaml"
    text = (
        "version: 1\nbaseline: {model: reference}\nvariants: {int8: {quantize: int8}}\n"
        "generation: {temperature: 1.2, repeats: 2}\n"
        f"evalsets: [{{lm_eval: warm, include_path: {tmp_path}, limit: 3}}]\n"
        "gate: {rules: [{metric: lm_eval.exact_match, max_drop: 0.1}]}\n"
    )
    path.write_text(text)
    prompts = [prompt for job in make_plan(load_gate_file(path)).jobs for prompt in job.prompts]
    assert {prompt.sampling for prompt in prompts} == {Sampling(temperature=0.7, top_p=0.9)}
    assert len(prompts) == 2 * 3 * 2
    path.write_text(text.replace("lm_eval: warm", "lm_eval: line"))
    with pytest.raises(UsageError, match="those of line are all equal"):
        make_plan(load_gate_file(path))
    path.write_text(text.replace("evalsets: [", f"evalsets: [{{lm_eval: line, include_path: {tmp_path}, limit: 3}}, ")
                    .replace(", repeats: 2", ""))  # fmt: skip
    for job in make_plan(load_gate_file(path)).jobs:
        assert len({prompt.sampling for prompt in job.prompts}) == 1, "a job has one sampling"


def test_a_gate_files_entry_is_checked_key_by_key(tmp_path):
    for entry, said in (
        ("{lm_eval: sums, filtre: x}", "did you mean 'filter'"),
        ("{lm_eval: 3}", "must be a text"),
        ("{lm_eval: sums, limit: 0}", "from 1"),
        ("{lm_eval: sums, num_fewshot: -1}", "from 0"),
        ("{lm_eval: sums, include_path: ./nowhere}", "no folder"),
        ("{lm_eval: ../sums}", "`include_path`"),
        ("{task: sums}", "known: cases, lm_eval, name"),
    ):
        path = tmp_path / "gate.yaml"
        path.write_text(GATE.format(tasks=tmp_path).replace(f"{{lm_eval: line, include_path: {tmp_path}}}", entry))
        with pytest.raises(UsageError, match=rf"gate\.yaml:8: .*{said}"):
            load_gate_file(path)


def test_without_lm_eval_the_extra_is_named(folder):
    code = (
        "import sys; sys.modules['lm_eval'] = None\n"
        "from qualgate.harness import tasks; from qualgate.records import LmEvalTask\n"
        f"tasks.load(LmEvalTask(task='sums', include_path={str(folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"needs lm-eval. Install it: {install_command('harness')}" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("qualgate.errors.UsageError")
