"""Rules that ask a run for more than its scores, end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.run.commands import rows
from tests.tiny_sets import CALIBRATION, write_set


@pytest.mark.proof
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
    folder = "{model: ./model, dtype: float32"
    text = text.replace(f"same: {folder}}}", f"same: {folder}}}\n  told: {folder}, calibration: ./learned.yaml}}")
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
    for name in ("coverage.range", "coverage.unigrams"):
        assert held["told"][name] == held["gptq"][name], "of a folder the gate file says what it was calibrated with"
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


@pytest.fixture(scope="module")
def noisy(made, tmp_path_factory) -> tuple[Path, dict]:
    """A workspace run with a noise floor and every supporting rule, and what the run said."""
    folder = tmp_path_factory.mktemp("noisy")
    shutil.copytree(made.parent, folder, dirs_exist_ok=True)
    file = folder / "gate.yaml"
    text = file.read_text().replace("gate:\n", "gate:\n  noise_floor: true\n").replace("store:", f"{SUPPORTING}store:")
    file.write_text(f"{text}slo: {{e2e: 1000}}\n")
    done = qualgate("run", "gate.yaml", "--json", cwd=folder)
    assert done.returncode == 10, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.proof
def test_a_noise_floor_runs_the_baseline_again_in_other_batches(noisy):
    _, body = noisy
    assert [arm["name"] for arm in body["arms"]] == ["baseline", "same", "int2", "baseline@aa"]
    assert [verdict["variant"] for verdict in body["verdicts"]] == ["same", "int2"]
    assert all(any("noise floor, lost / gained" in why for why in v["reasons"]) for v in body["verdicts"])


@pytest.mark.proof
def test_what_a_run_measures_of_its_arms_can_be_asked_for_by_rules(noisy):
    folder, body = noisy
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
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


@pytest.mark.proof
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
