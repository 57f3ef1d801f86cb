"""Rules that ask a run for more than its scores, end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.run.commands import changed, rows, with_variants
from tests.tiny_sets import CALIBRATION, write_set

VARIANTS = """\
variants:
  same: {model: ./model, dtype: float32}
  told: {model: ./model, dtype: float32, calibration: ./learned.yaml}
  int2: {quantize: {method: int2, group_size: 32}}
  gptq: {quantize: {method: gptq, bits: 8, group_size: 32, calibration: ./learned.yaml}}
"""
RULES = """\
    - {metric: format.finished, max_drop: 0.10, tier: supporting}
    - {metric: memory.weights, max_ratio: 0.5, tier: supporting}
    - {metric: memory.peak, max_ratio: 1.0, tier: supporting}
    - {metric: stability.steady, min: 0.01, tier: supporting}
    - {metric: stability.rerun, min: 0.9, tier: supporting}
    - {metric: parity.prefix, min: 1.0, tier: supporting}
    - {metric: goodput, min: 0.9, tier: supporting}
    - {metric: coverage.range, min: 0.01, tier: supporting}
    - {metric: coverage.unigrams, min: 1, tier: supporting}
"""
OF_ALL = {"stability.rerun": "proven", "goodput": "proven", "memory.peak": "proven"}


@pytest.fixture(scope="module")
def ran(made, tmp_path_factory) -> tuple[Path, dict]:
    """A workspace run with a noise floor and every such rule, and what the run said."""
    folder = tmp_path_factory.mktemp("ruled")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    lines = [f"learn {word} by heart" for word in ("a poem", "the map", "two rules", "no more")]
    write_set(folder, "learned", lines, CALIBRATION)
    with_variants(folder, VARIANTS)
    changed(
        folder,
        ("gate:\n", "slo: {e2e: 1000}\ngate:\n  noise_floor: true\n"),
        ("max_drop: 0.10}", "max_drop: 0.10, per: task}"),
        ("store:", f"{RULES}store:"),
    )
    done = qualgate("run", "gate.yaml", "--json", cwd=folder)
    assert done.returncode == Exit.BLOCK, done.stderr
    return folder, json.loads(done.stdout)


def held(body: dict, variant: str) -> dict[str, tuple[str, float | None]]:
    """Its status and number by metric."""
    [verdict] = [one for one in body["verdicts"] if one["variant"] == variant]
    return {one["metric"]: (one["status"], one["variant"]) for one in verdict["comparisons"]}


def statuses(body: dict, variant: str) -> dict[str, str]:
    return {metric: status for metric, (status, _) in held(body, variant).items()}


def test_a_noise_floor_runs_the_baseline_again_in_other_batches(ran):
    _, body = ran
    assert [arm["name"] for arm in body["arms"]] == ["baseline", "same", "told", "int2", "gptq", "baseline@aa"]
    assert [verdict["variant"] for verdict in body["verdicts"]] == ["same", "told", "int2", "gptq"]
    assert all(any("noise floor, lost / gained" in why for why in v["reasons"]) for v in body["verdicts"])


def test_what_a_run_measures_of_its_arms_can_be_asked_for_by_rules(ran):
    folder, body = ran
    # float32 weights of a folder were packed by nobody here; two bits take less than a half
    same = {"memory.weights": "broken", "stability.steady": "undecided", "parity.prefix": "proven"}
    int2 = {"memory.weights": "proven", "stability.steady": "broken", "parity.prefix": "broken"}
    assert statuses(body, "same").items() >= (OF_ALL | same | {"coverage.range": "undecided"}).items()
    assert statuses(body, "int2").items() >= (OF_ALL | int2).items()
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]


def test_a_rule_by_task_decides_with_the_gate_file_beside_its_evalsets(ran):
    folder, body = ran
    assert [verdict["comparisons"][0]["slice"] for verdict in body["verdicts"]] == ["task:echo"] * 4
    alone = qualgate("gate", "--store", "sqlite:///qualgate.db", "--json", cwd=folder)
    assert alone.returncode == Exit.UNDECIDED, "tags and tasks are not known without the evalsets"


def test_a_runs_own_calibration_is_held_against_its_evalsets_where_a_rule_asks(ran):
    folder, body = ran
    names = ("coverage.range", "coverage.unigrams")
    assert {held(body, "same")[name] for name in names} == {("undecided", None)}
    shown = qualgate("evalset", "coverage", "./learned.yaml", "./echo.yaml", "--model", "./model", "--json", cwd=folder)
    own = json.loads(shown.stdout)
    assert held(body, "gptq")["coverage.range"][1] == pytest.approx(own["range"]["min"], rel=1e-3)
    assert held(body, "gptq")["coverage.unigrams"] == ("broken", own["ngrams"]["1"]["share"])
    for name in names:
        assert held(body, "told")[name] == held(body, "gptq")[name], "of a folder the gate file says its calibration"


def test_a_format_rule_works_on_a_set_that_does_not_declare_it(ran):
    folder, body = ran
    assert statuses(body, "same")["format.finished"] == "proven"
    found = rows(folder, "select sum(value), count(*) from scores join units using (unit_id)"
                         " where metric = 'format.finished' and arm in ('baseline', 'same')")  # fmt: skip
    assert found == [(120, 120)]
    changed(folder, ("format.finished", "format.no_loop"), file="other.yaml")
    later = qualgate("gate", "other.yaml", "--json", cwd=folder)
    assert "score them again (rescore)" in later.stdout


@pytest.mark.proof
def test_a_gate_file_may_bring_an_nel_policy_in_place_of_rules(workspace):
    file = workspace / "gate.yaml"
    (workspace / "nel.yaml").write_text("version: 1\ndefaults: {metric: mean_reward, max_drop: 0.1, tier: critical}\n")
    kept = [line for line in file.read_text().splitlines() if "metric:" not in line]
    file.write_text("\n".join(kept).replace("  rules:", "  nel_policy: nel.yaml") + "\n")
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    assert [verdict["word"] for verdict in body["verdicts"]] == ["approve", "block"]
    assert [(rule["metric"], rule["max_drop"]) for rule in body["policy"]["rules"]] == [("exact_match", 0.1)]
    for by in (["gate.yaml"], ["--store", "sqlite:///qualgate.db"]):
        again = qualgate("gate", *by, "--json", cwd=workspace)
        assert json.loads(again.stdout)["verdicts"] == body["verdicts"], by
    assert "nel would say GO of same" in qualgate("gate", "gate.yaml", cwd=workspace).stdout
    (workspace / "nel.yaml").write_text("version: 1\ndefaults: {max_dorp: 0.1}\n")
    refused = qualgate("gate", "gate.yaml", cwd=workspace)
    assert (refused.returncode, "nel.yaml:2" in refused.stderr, "max_drop" in refused.stderr) == (64, True, True)
