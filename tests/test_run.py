"""The main path, end to end, through the command line: a user's own model, evalset and gate file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate import run as run_module
from qualgate.errors import Exit
from qualgate.records import UnitEvidence, UnitKey
from tests.gated_model import make_workspace, write_evalset
from tests.tiny_sets import CALIBRATION, write_set


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def judged(made, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A workspace that `qualgate run` has been through once."""
    folder = tmp_path_factory.mktemp("judged")
    shutil.copytree(made.parent, folder, dirs_exist_ok=True)
    return folder, qualgate("run", "gate.yaml", cwd=folder)


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path


def qualgate(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qualgate", *arguments],
        capture_output=True, text=True, cwd=cwd, check=False, env={**os.environ, **options},
    )  # fmt: skip


def rows(folder: Path, query: str) -> list[tuple]:
    with sqlite3.connect(folder / "qualgate.db") as connection:
        return connection.execute(query).fetchall()


def test_a_run_approves_the_same_weights_and_blocks_two_bits(judged):
    folder, done = judged
    assert done.returncode == Exit.BLOCK, done.stderr
    last = done.stdout.strip().splitlines()[-2:]
    assert [line.split()[:2] for line in last] == [["same", "APPROVE"], ["int2", "BLOCK"]]
    assert "qualgate dashboard" in done.stdout
    assert "Traceback" not in done.stderr
    reports = sorted(path.suffix for path in (folder / "qualgate-reports").iterdir())
    assert reports == [".html", ".json", ".md"]


def test_the_report_is_the_same_bytes_each_time_and_json_for_machines(judged):
    folder, _ = judged
    first = qualgate("report", "gate.yaml", "--json", cwd=folder)
    second = qualgate(
        "report", "--store", "sqlite:///qualgate.db", "--json", cwd=folder, PYTHONHASHSEED="7", TZ="Asia/Tokyo"
    )
    assert first.returncode == 0
    assert first.stdout == second.stdout
    body = json.loads(first.stdout)
    words = {verdict["variant"]: verdict["word"] for verdict in body["verdicts"]}
    assert words == {"same": "approve", "int2": "block"}
    written = next((folder / "qualgate-reports").glob("*.json")).read_text(encoding="utf-8")
    assert json.loads(written) == body


def test_blame_runs_the_torch_twin_too_and_names_the_cause_of_a_block(workspace):
    done = qualgate("run", "gate.yaml", "--blame", "--json", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    causes = {verdict["variant"]: verdict["cause"] for verdict in body["verdicts"]}
    assert causes == {"same": "", "int2": "recipe"}
    kernels = {arm["name"]: arm["kernels"] for arm in body["arms"]}
    assert kernels["int2@torch"] == ["torch twin: asked for"]
    assert kernels["int2"] != kernels["int2@torch"]
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)  # the gate file does not name the twin
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


def test_a_rule_by_task_decides_with_the_gate_file_beside_its_evalsets(workspace):
    file = workspace / "gate.yaml"
    file.write_text(file.read_text().replace("max_drop: 0.10}", "max_drop: 0.10, per: task}"))
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == 10, done.stderr
    verdicts = json.loads(done.stdout)["verdicts"]
    assert [verdict["comparisons"][0]["slice"] for verdict in verdicts] == ["task:echo"] * 2
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert json.loads(again.stdout)["verdicts"] == verdicts
    alone = qualgate("gate", "--store", "sqlite:///qualgate.db", "--json", cwd=workspace)
    assert alone.returncode == 12, "tags and tasks are not known without the evalsets"


def test_a_noise_floor_runs_the_baseline_again_in_other_batches(workspace):
    file = workspace / "gate.yaml"
    file.write_text(file.read_text().replace("gate:\n", "gate:\n  noise_floor: true\n"))
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == 10, done.stderr
    body = json.loads(done.stdout)
    assert [arm["name"] for arm in body["arms"]] == ["baseline", "same", "int2", "baseline@aa"]
    assert [verdict["variant"] for verdict in body["verdicts"]] == ["same", "int2"]
    assert all(any("noise floor, lost / gained" in why for why in v["reasons"]) for v in body["verdicts"])
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


@pytest.fixture(scope="module")
def early(made, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A workspace with each case twice, run with `stop: early`."""
    folder = tmp_path_factory.mktemp("early")
    shutil.copytree(made.parent, folder, dirs_exist_ok=True)
    grow(folder, copies=2)
    file = folder / "gate.yaml"
    file.write_text(file.read_text().replace("gate:\n", "gate:\n  stop: early\n"))
    return folder, qualgate("run", "gate.yaml", "--json", cwd=folder)


def test_a_run_that_may_stop_early_generates_no_more_than_settles_each_variant(early):
    folder, done = early
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    seen = {v["variant"]: (v["word"], v["seen"]["questions"], v["seen"]["of"]) for v in body["verdicts"]}
    assert seen == {"same": ("approve", 96, 120), "int2": ("block", 64, 120)}
    assert body["status"] == "complete"
    answered = dict(rows(folder, "select arm, count(*) from units where status = 'done' group by arm"))
    assert answered["int2"] < 120
    assert rows(folder, "select count(*) from units where status not in ('done', 'settled')") == [(0,)]
    assert rows(folder, "select variant, look, seen, word from stoppings order by variant") == [
        ("int2", 2, 64, "block"),
        ("same", 3, 96, "approve"),
    ]
    assert not list(folder.glob("qualgate.db.artifacts/*/*.safetensors"))


def test_an_early_verdict_is_the_same_from_the_store_and_is_its_own_policy_s_alone(early):
    folder, done = early
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder, PYTHONHASHSEED="5", TZ="Asia/Tokyo")
    assert (again.returncode, again.stdout) == (Exit.BLOCK, done.stdout)
    text = (folder / "gate.yaml").read_text()
    for change in (("max_drop: 0.10", "max_drop: 0.15"), ("stop: early", "stop: end")):
        (folder / "other.yaml").write_text(text.replace(*change))
        other = qualgate("gate", "other.yaml", "--json", cwd=folder)
        assert other.returncode == Exit.UNDECIDED
        assert "cannot judge cases chosen by looking" in other.stdout
    shown = qualgate("gate", "gate.yaml", cwd=folder)
    assert "96 of 120 cases seen" in shown.stdout


def test_a_plan_says_what_stopping_early_would_take(early):
    folder, _ = early
    shown = qualgate("plan", "gate.yaml", cwd=folder)
    assert "stop: early looks at each variant 4 times at most" in shown.stdout
    assert json.loads(qualgate("plan", "gate.yaml", "--json", cwd=folder).stdout)["stop"]["of"] == 120


@pytest.mark.parametrize("option", ["--blame", "--four-arm"])
def test_what_needs_every_case_refuses_to_stop_early(workspace, option):
    file = workspace / "gate.yaml"
    arms = "four_arm: {quantization: int2, speculation: same, both: third}\n"
    more = "  third: {model: ./model, dtype: float32}\nevalsets"
    text = file.read_text().replace("gate:\n", "gate:\n  stop: early\n").replace("evalsets", more) + arms
    file.write_text(text)
    done = qualgate("run", "gate.yaml", option, cwd=workspace)
    assert (done.returncode, "stop: early" in done.stderr) == (Exit.USAGE, True), done.stderr


def test_a_runs_own_calibration_is_held_against_its_evalsets_where_a_rule_asks(workspace):
    lines = [f"learn {word} by heart" for word in ("a poem", "the map", "two rules", "no more")]
    write_set(workspace, "learned", lines, CALIBRATION)
    file = workspace / "gate.yaml"
    made = "gptq: {quantize: {method: gptq, bits: 8, group_size: 32, calibration: ./learned.yaml}}"
    rules = (
        "    - {metric: coverage.range, min: 0.01, tier: supporting}\n"
        "    - {metric: coverage.unigrams, min: 1, tier: supporting}\n"
    )
    text = file.read_text().replace("int2: {quantize: {method: int2, group_size: 32}}", made)
    file.write_text(text.replace("store:", f"{rules}store:"))
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode in (10, 11, 12), done.stderr
    body = json.loads(done.stdout)
    held = {
        verdict["variant"]: {one["metric"]: (one["status"], one["variant"]) for one in verdict["comparisons"]}
        for verdict in body["verdicts"]
    }
    assert {held["same"][name] for name in ("coverage.range", "coverage.unigrams")} == {("undecided", None)}
    shown = qualgate(
        "evalset", "coverage", "./learned.yaml", "./echo.yaml", "--model", "./model", "--json", cwd=workspace
    )
    own = json.loads(shown.stdout)
    assert held["gptq"]["coverage.range"][1] == pytest.approx(own["range"]["min"], rel=1e-3)
    assert held["gptq"]["coverage.unigrams"] == ("broken", own["ngrams"]["1"]["share"])
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


SUPPORTING = """\
    - {metric: memory.weights, max_ratio: 0.5, tier: supporting}
    - {metric: memory.peak, max_ratio: 1.0, tier: supporting}
    - {metric: stability.steady, min: 0.01, tier: supporting}
    - {metric: coverage.range, min: 0.9, tier: supporting}
    - {metric: stability.rerun, min: 0.9, tier: supporting}
    - {metric: parity.prefix, min: 1.0, tier: supporting}
    - {metric: goodput, min: 0.9, tier: supporting}
"""


def test_what_a_run_measures_of_its_arms_can_be_asked_for_by_rules(workspace):
    file = workspace / "gate.yaml"
    text = file.read_text().replace("gate:\n", "gate:\n  noise_floor: true\n").replace("store:", f"{SUPPORTING}store:")
    file.write_text(f"{text}slo: {{e2e: 1000}}\n")
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == 10, done.stderr
    body = json.loads(done.stdout)
    held = {
        verdict["variant"]: {one["metric"]: one["status"] for one in verdict["comparisons"]}
        for verdict in body["verdicts"]
    }
    of_all = {"coverage.range": "undecided", "stability.rerun": "proven", "goodput": "proven", "memory.peak": "proven"}
    # float32 weights of a folder were packed by nobody here; two bits take less than a half
    same = {"memory.weights": "broken", "stability.steady": "undecided", "parity.prefix": "proven"}
    int2 = {"memory.weights": "proven", "stability.steady": "broken", "parity.prefix": "broken"}
    assert held["same"].items() >= (of_all | same).items()
    assert held["int2"].items() >= (of_all | int2).items(), body["verdicts"][1]["comparisons"]
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


def test_a_gate_file_may_bring_an_nel_policy_in_place_of_rules(workspace):
    file = workspace / "gate.yaml"
    (workspace / "nel.yaml").write_text("version: 1\ndefaults: {metric: mean_reward, max_drop: 0.1, tier: critical}\n")
    kept = [line for line in file.read_text().splitlines() if "metric:" not in line]
    file.write_text("\n".join(kept).replace("  rules:", "  nel_policy: nel.yaml") + "\n")
    assert qualgate("plan", "gate.yaml", cwd=workspace).returncode in (0, 12)
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == 10, done.stderr
    body = json.loads(done.stdout)
    assert [verdict["word"] for verdict in body["verdicts"]] == ["approve", "block"]
    assert [(rule["metric"], rule["max_drop"]) for rule in body["policy"]["rules"]] == [("exact_match", 0.1)]
    for by in (["gate.yaml"], ["--store", "sqlite:///qualgate.db"]):
        again = qualgate("gate", *by, "--json", cwd=workspace)
        assert json.loads(again.stdout)["verdicts"] == body["verdicts"], by
    shown = qualgate("gate", "gate.yaml", cwd=workspace).stdout
    assert "nel would say GO of same" in shown
    (workspace / "nel.yaml").write_text("version: 1\ndefaults: {max_dorp: 0.1}\n")
    refused = qualgate("gate", "gate.yaml", cwd=workspace)
    assert (refused.returncode, "nel.yaml:2" in refused.stderr, "max_drop" in refused.stderr) == (64, True, True)


def test_blame_without_quantized_weights_is_refused(workspace):
    file = workspace / "gate.yaml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "int2" not in line))
    done = qualgate("run", "gate.yaml", "--blame", cwd=workspace)
    assert (done.returncode, "no variant of this gate file has quantized weights" in done.stderr) == (Exit.USAGE, True)


def test_gate_decides_again_from_the_store_without_generating(judged):
    folder, _ = judged
    before = rows(folder, "select count(*) from units")
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder)
    assert again.returncode == Exit.BLOCK
    assert rows(folder, "select count(*) from units") == before
    stricter = (folder / "gate.yaml").read_text().replace("max_drop: 0.10", "max_drop: 0.01")
    (folder / "strict.yaml").write_text(stricter)
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


def test_a_plan_that_can_hardly_decide_says_what_would_and_exits_as_undecided(workspace):
    gate_file = workspace / "gate.yaml"
    gate_file.write_text(gate_file.read_text().replace("max_drop: 0.10", "max_drop: 0.02"))
    shown = qualgate("plan", "gate.yaml", cwd=workspace)
    assert shown.returncode == Exit.UNDECIDED
    assert "cases instead of 60" in shown.stdout
    assert "{metric: exact_match, max_drop: 0.02}:" in shown.stdout


def test_evidence_about_other_weights_than_today_s_approves_nothing(workspace, judged):
    folder, _ = judged
    shutil.copytree(folder, workspace, dirs_exist_ok=True)
    weights = workspace / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = qualgate("gate", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.UNDECIDED
    assert "weights changed since run" in done.stdout


@pytest.mark.parametrize(("wanted", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_stops_cleanly_and_running_again_resumes(workspace, wanted, code):
    grow(workspace, copies=12)
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if " answers " in line and not line.lstrip().startswith("0 of"):
            os.killpg(process.pid, wanted) if wanted == signal.SIGINT else process.send_signal(wanted)
            break
    said = process.stderr.read()
    process.wait()
    assert process.returncode == code, said
    assert "resume" in said
    [(stored,)] = rows(workspace, "select count(*) from units where status = 'done'")
    assert 0 < stored < 720 * 3
    done = qualgate("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    assert rows(workspace, "select count(*), count(distinct run_id) from units where status = 'done'") == [(720 * 3, 1)]


def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(workspace):
    grow(workspace, copies=12)
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stdout is not None
    for line in process.stderr:
        if " answers " in line and not line.lstrip().startswith("0 of"):
            os.kill(spawned_workers(process.pid)[0], signal.SIGKILL)
            break
    process.stderr.read()
    body = json.loads(process.stdout.read())
    assert process.wait() == Exit.BLOCK
    assert {v["variant"]: v["word"] for v in body["verdicts"]} == {"same": "approve", "int2": "block"}
    assert rows(workspace, "select count(*) from units where status = 'done'") == [(720 * 3,)]


def spawned_workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def grow(workspace: Path, copies: int) -> None:
    """The same cases several times over, under new ids: a run long enough to be interrupted in."""
    cases = [json.loads(line) for line in (workspace / "echo.jsonl").read_text().splitlines()]
    write_evalset(
        workspace,
        [{**case, "id": f"{case['id']}-{copy}", "cluster": case["id"]} for copy in range(copies) for case in cases],
    )


def test_scores_of_an_older_scorer_decide_nothing(judged, monkeypatch):
    from qualgate import run as main_path

    folder, _ = judged
    newer = {**main_path.scorer_versions(), "exact_match": "exact_match/99"}
    monkeypatch.setattr(main_path, "scorer_versions", lambda: newer)
    outcome = main_path.decide_again(f"sqlite:///{folder / 'qualgate.db'}", None, None)
    assert {verdict.word for verdict in outcome.verdicts} == {"undecided"}
    assert "exact_match/99" in " ".join(outcome.verdicts[0].reasons)


def test_a_format_rule_works_on_a_set_that_does_not_declare_it(workspace):
    file = workspace / "gate.yaml"
    with_rule = file.read_text().replace("  rules:\n", "  rules:\n    - {metric: format.finished, max_drop: 0.10}\n")
    file.write_text("\n".join(line for line in with_rule.splitlines() if "int2" not in line))
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == Exit.APPROVE, done.stderr
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert ("format.finished", "proven") in [(item["metric"], item["status"]) for item in verdict["comparisons"]]
    assert rows(workspace, "select sum(value), count(*) from scores where metric = 'format.finished'") == [(120, 120)]
    file.write_text(file.read_text().replace("format.finished", "format.no_loop"))
    later = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert later.returncode == Exit.UNDECIDED
    assert "run again with this policy" in later.stdout


def test_the_parser_is_blamed_by_the_dialect_that_the_case_declares():
    """A call in the declared dialect is not misread; in another one it is; where any would do, nothing is to blame."""
    call = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'
    unit = UnitEvidence(
        key=UnitKey("int4", "set", "a"), case_hash="h", status="done", values={}, scorers={}, truncated=False, raw=call
    )
    tools = [{"name": "f", "parameters": {"type": "object"}}]

    def misread(**body) -> str:
        return run_module._read_elsewhere(unit, {"h": {"tools": tools, **body}}).misread

    assert misread(dialect="mistral") == ""
    assert misread(dialect="pythonic").startswith("mistral")
    assert misread(answer="a call").startswith("mistral")  # asked for in hermes
    assert misread(dialect="auto") == misread() == ""
