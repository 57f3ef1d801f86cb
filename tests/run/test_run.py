"""The main path, end to end, through the command line: a user's own model, evalset and gate file."""

from __future__ import annotations

import json
import re

from qualgate.errors import Exit
from qualgate.pipeline import staleness
from qualgate.pipeline.stored import decide_again
from tests.command_line import in_a_process, qualgate
from tests.drafting_engine import drafting
from tests.run.commands import changed, rows, with_variants


def test_a_run_approves_the_same_weights_and_blocks_two_bits(finished):
    folder, done = finished
    assert done.returncode == Exit.BLOCK, done.stderr
    last = done.stdout.strip().splitlines()[-2:]
    assert [line.split()[:2] for line in last] == [["same", "APPROVE"], ["int2", "BLOCK"]]
    assert "qualgate dashboard" in done.stdout
    assert "Traceback" not in done.stderr
    reports = sorted(path.suffix for path in (folder / "qualgate-reports").iterdir())
    assert reports == [".html", ".json", ".md"]


def test_the_report_is_the_same_bytes_each_time_and_json_for_machines(finished):
    folder, _ = finished
    first = qualgate("report", "gate.yaml", "--json", cwd=folder)
    second = in_a_process(
        "report", "--store", "sqlite:///qualgate.db", "--json", cwd=folder, PYTHONHASHSEED="7", TZ="Asia/Tokyo"
    )
    assert first.returncode == 0
    assert first.stdout == second.stdout
    body = json.loads(first.stdout)
    words = {verdict["variant"]: verdict["word"] for verdict in body["verdicts"]}
    assert words == {"same": "approve", "int2": "block"}
    written = next((folder / "qualgate-reports").glob("*.json")).read_text(encoding="utf-8")
    assert json.loads(written) == body


BLAMED = """\
variants:
  same: {model: ./model, dtype: float32}
  int2: {quantize: {method: int2, group_size: 32}}
  drafted: {quantize: {method: int2, group_size: 32}, speculation: {draft: ngram}}
"""


def test_blame_runs_the_torch_twin_and_what_speculates_without_its_draft_and_names_the_cause(workspace):
    with_variants(workspace, BLAMED)
    done = qualgate("run", "gate.yaml", "--blame", "--json", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    causes = {verdict["variant"]: verdict["cause"] for verdict in body["verdicts"]}
    assert causes == {"same": "", "int2": "recipe", "drafted": "recipe"}
    assert "decoding without a draft the same weights breaks" in body["verdicts"][-1]["reasons"][-1]
    kernels = {arm["name"]: arm["kernels"] for arm in body["arms"]}
    twins = {"int2@torch", "drafted@torch", "drafted@plain"}
    assert set(kernels) == {"baseline", "same", "int2", "drafted", *twins}
    assert kernels["int2@torch"] == ["torch twin: asked for"]
    assert kernels["int2"] != kernels["int2@torch"]
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)  # the gate file does not name the twins
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


def test_blame_without_quantized_weights_is_refused(workspace):
    changed(workspace, ("  int2: {quantize: {method: int2, group_size: 32}}\n", ""))
    done = qualgate("run", "gate.yaml", "--blame", cwd=workspace)
    assert (done.returncode, "no variant of this gate file has any of these" in done.stderr) == (Exit.USAGE, True)


def test_gate_decides_again_from_the_store_without_generating(judged):
    folder = judged
    before = rows(folder, "select count(*) from units")
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder)
    assert again.returncode == Exit.BLOCK
    assert rows(folder, "select count(*) from units") == before
    changed(folder, ("max_drop: 0.10", "max_drop: 0.01"), file="strict.yaml")
    strict = qualgate("gate", "strict.yaml", "--json", cwd=folder)
    words = {verdict["variant"]: verdict["word"] for verdict in json.loads(strict.stdout)["verdicts"]}
    assert words["same"] == "undecided", "60 cases cannot exclude a loss of one point"


def test_plan_tells_what_would_run_and_touches_nothing(workspace):
    shown = qualgate("plan", "gate.yaml", "--json", cwd=workspace)
    assert shown.returncode == 0, shown.stderr
    body = json.loads(shown.stdout)
    assert body["units"] == 180
    assert body["seconds"] > 0
    assert body["policy"]["decidable"]
    assert not (workspace / "qualgate.db").exists()
    assert "60 cases" in qualgate("plan", "gate.yaml", cwd=workspace).stdout


def test_a_plan_counts_the_noise_floor_the_quarantine_and_the_price_table(workspace):
    gate_file = workspace / "gate.yaml"
    held = "[{case: echo-003, owner: ana, expires: 2999-01-01, reason: wrong}]"
    under = f"gate:\n  noise_floor: true\n  quarantine: {held}\n"
    text = gate_file.read_text().replace("gate:\n", f"prices: p.yaml\n{under}")
    gate_file.write_text(text)
    (workspace / "p.yaml").write_text("{version: '1', currency: EUR, output_token: 0.5}")
    body = json.loads(qualgate("plan", "gate.yaml", "--json", cwd=workspace).stdout)
    assert [arm["name"] for arm in body["arms"]] == ["baseline", "same", "int2", "baseline@aa"]
    assert body["units"] == 240
    assert body["policy"]["rules"][0]["n"] == 59
    assert body["evalsets"][0]["quarantined"] == 1
    assert body["cost"]["expected"] == 0.5 * sum(arm["expected_tokens"] for arm in body["arms"]) > 0
    gate_file.write_text(text.replace("[{", "[{case: echo-004, owner: ana, expires: 2999-01-01, reason: wrong}, {"))
    over = qualgate("plan", "gate.yaml", cwd=workspace)
    assert over.returncode == Exit.UNDECIDED
    assert "2 of 60 cases are quarantined, over 2%" in over.stdout


def test_a_plan_takes_its_times_from_the_run_before_and_knows_the_four_arms(judged):
    folder = judged
    (run_id,) = rows(folder, "select run_id from runs")[0]
    body = json.loads(qualgate("plan", "gate.yaml", "--json", cwd=folder).stdout)
    assert body["measured_in"] == run_id
    assert {arm["measured_in"] for arm in body["arms"]} == {run_id}
    answered = dict(rows(folder, "select arm, sum(answer_tokens) from units group by arm"))
    assert {arm["name"]: arm["expected_tokens"] for arm in body["arms"]} == answered
    roles = "four_arm: {quantization: int2, speculation: same, both: third}\n"
    changed(folder, ("evalsets", f"  third: {{quantize: int8}}\n{roles}evalsets"), file="four.yaml")
    with drafting("same", "third"):
        four = qualgate("plan", "four.yaml", "--four-arm", COLUMNS="80", cwd=folder)
    assert "240 answers in all" in four.stdout, four.stderr
    assert "parity, service level and value of the four arms" in four.stdout
    assert max(map(len, four.stdout.splitlines())) <= 80


def test_evidence_about_other_weights_than_today_s_approves_nothing(judged):
    weights = judged / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = qualgate("gate", "gate.yaml", cwd=judged)
    assert done.returncode == Exit.UNDECIDED
    assert "weights changed since run" in done.stdout


def test_scores_of_an_older_scorer_decide_nothing(judged, monkeypatch):
    newer = {**staleness.scorer_versions(), "exact_match": "exact_match/99"}
    monkeypatch.setattr(staleness, "scorer_versions", lambda: newer)
    outcome = decide_again(f"sqlite:///{judged / 'qualgate.db'}", None, None)
    assert {verdict.word for verdict in outcome.verdicts} == {"undecided"}
    assert "exact_match/99" in " ".join(outcome.verdicts[0].reasons)


def test_a_longer_list_is_not_asked_by_the_test_that_was_asked_before(judged):
    lines = (judged / "echo.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines[:4]]
    more = [json.dumps(case | {"id": f"more-{case['id']}", "prompt": f"{case['prompt']} and"}) for case in cases]
    (judged / "echo.jsonl").write_text("\n".join([*lines, *more]) + "\n")
    done = qualgate("run", "gate.yaml", "--json", cwd=judged)
    assert done.returncode == Exit.UNDECIDED, done.stderr
    assert f"same was judged before at {len(lines)} answers of this list" in " ".join(done.stderr.split())
    verdicts = json.loads(done.stdout)["verdicts"]
    assert {verdict["word"] for verdict in verdicts} == {"undecided"}
    assert all(f"judged before at {len(lines)} answers" in verdict["reasons"][0] for verdict in verdicts)
    again = qualgate("gate", "gate.yaml", "--json", cwd=judged)
    assert json.loads(again.stdout)["verdicts"] == verdicts
    (run_id,) = rows(judged, "select run_id from runs order by created_at limit 1")[0]
    then = qualgate("gate", "--store", "sqlite:///qualgate.db", "--run", run_id, "--json", cwd=judged)
    assert then.returncode == Exit.BLOCK, "the first look is judged as it was, whatever came after"


def test_a_trial_is_a_run_of_its_own_that_decides_nothing(judged):
    folder = judged
    before = json.loads(qualgate("report", "gate.yaml", "--json", cwd=folder).stdout)
    tried = qualgate("run", "gate.yaml", "--limit", "5", "--only", "same", cwd=folder)
    assert tried.returncode == Exit.UNDECIDED, tried.stderr
    said = "rial: 5 of 60 cases, 1 of 2 variants"
    told = tried.stderr.splitlines()
    assert told[:3] == [
        "planning: reading 1 evalset", "planning: reading 1 model folder", "planning: rendering 5 prompts",
    ]  # fmt: skip
    assert told[3].startswith(f"note: t{said}: it decides nothing")
    assert re.fullmatch(r"planned: 10 answers to generate, about \d+ s, guessed from a probe of this machine", told[4])
    assert tried.stdout.startswith(f"T{said}. It decides nothing.")
    ((trial, units),) = rows(folder, "select run_id, count(*) from units group by run_id order by run_id desc limit 1")
    assert (trial != before["run"], units) == (True, 10)
    assert qualgate("gate", "gate.yaml", "--run", trial, cwd=folder).returncode == Exit.UNDECIDED
    assert qualgate("gate", "--store", "sqlite:///qualgate.db", "--run", trial, cwd=folder).returncode == Exit.UNDECIDED
    assert json.loads(qualgate("report", "gate.yaml", "--json", cwd=folder).stdout) == before, "the run, not the trial"
    assert qualgate("gate", "gate.yaml", cwd=folder).returncode == Exit.BLOCK


def test_what_cannot_be_tried_is_told(finished):
    folder, _ = finished
    for words, said in (
        (("--only", "sane"), "--only 'sane': gate.yaml has no such variant; did you mean 'same'?"),
        (("--limit", "0"), "--limit 0: a trial asks 1 case of each evalset or more"),
        (("--limit", "5", "--warn-only"), "--warn-only concerns verdicts, and a trial has none"),
    ):
        refused = qualgate("run", "gate.yaml", *words, cwd=folder)
        assert (refused.returncode, said in refused.stderr) == (Exit.USAGE, True), refused.stderr
