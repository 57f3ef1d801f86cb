"""A quantized folder as a variant, end to end through the command line."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.quant.readers.models import gptq_folder

VARIANTS = """\
variants:
  eight: {model: ./gptq-8, dtype: float32}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    gate_file = make_workspace(tmp_path_factory.mktemp("made"))
    text = gate_file.read_text()
    start, end = text.index("variants:"), text.index("evalsets:")
    gate_file.write_text(text[:start] + VARIANTS + text[end:])
    gptq_folder(gate_file.parent / "model", gate_file.parent / "gptq-8", bits=8)
    return gate_file.parent


def test_a_quantized_folder_is_planned_run_and_judged(workspace):
    planned = qualgate("plan", "gate.yaml", "--json", cwd=workspace)
    assert planned.returncode == 0, planned.stderr
    assert "gptq checkpoint" in planned.stdout
    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode in (Exit.APPROVE, Exit.BLOCK, Exit.UNDECIDED), done.stderr
    with sqlite3.connect(workspace / "qualgate.db") as store:
        (count,) = store.execute("SELECT count(*) FROM units WHERE arm = 'eight' AND status = 'done'").fetchone()
    assert count == 60
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert verdict["drift"]["drift.kl_mean"] < 0.05  # 8 bits: near the baseline, by its own evidence


def test_a_damaged_quantized_folder_stops_the_plan(workspace):
    folder = gptq_folder(workspace / "model", workspace / "broken", bits=4)
    for file in (folder / "config.json", folder / "quantize_config.json"):
        file.write_text(file.read_text().replace('"bits": 4', '"bits": 8'))
    gate_file = (workspace / "gate.yaml").read_text().replace("./gptq-8", "./broken")
    (workspace / "broken.yaml").write_text(gate_file.replace("qualgate.db", "broken.db"))
    refused = qualgate("run", "broken.yaml", cwd=workspace)
    assert refused.returncode == Exit.USAGE
    assert "down_proj.scales" in refused.stderr
    assert "at 8 bits" in refused.stderr
    assert not (workspace / "broken.db").exists()


def test_another_architecture_stops_the_plan_or_comes_first_in_the_verdict(workspace):
    folder = gptq_folder(workspace / "model", workspace / "turned", bits=8)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    text = (workspace / "gate.yaml").read_text().replace("./gptq-8", "./turned").replace("qualgate.db", "turned.db")
    (workspace / "turned.yaml").write_text(text)
    refused = qualgate("plan", "turned.yaml", cwd=workspace)
    assert refused.returncode == Exit.USAGE
    assert "rms_norm_eps 0.5 against 1e-06" in refused.stderr
    assert "allow_config: [rms_norm_eps]" in refused.stderr
    (workspace / "turned.yaml").write_text(text.replace("./turned,", "./turned, allow_config: [rms_norm_eps],"))
    done = qualgate("run", "turned.yaml", "--json", cwd=workspace)
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert (done.returncode, verdict["cause"]) == (Exit.BLOCK, "config")
    assert verdict["reasons"][0] == "config: not the baseline's, as allowed: rms_norm_eps 0.5 against 1e-06"


def test_a_folder_that_does_not_fit_its_config_stops_the_plan(workspace):
    folder = workspace / "other"
    gptq_folder(workspace / "model", folder, bits=8)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 2 * config["intermediate_size"]}))
    gate_file = (workspace / "gate.yaml").read_text().replace("./gptq-8", f"./{folder.name}")
    (workspace / "other.yaml").write_text(gate_file.replace("qualgate.db", "other.db"))
    refused = qualgate("run", "other.yaml", cwd=workspace)
    assert refused.returncode == Exit.USAGE
    assert "intermediate_size 256 against 128" in refused.stderr
    assert not (workspace / "other.db").exists()


def test_a_quantized_baseline_needs_a_word_of_the_user(workspace):
    text = (workspace / "gate.yaml").read_text()
    start, end = text.index("baseline:"), text.index("evalsets:")
    arms = "baseline: {model: ./gptq-8}\nvariants:\n  plain: {model: ./model}\n"
    (workspace / "served.yaml").write_text(text[:start] + arms + text[end:])
    refused = qualgate("plan", "served.yaml", cwd=workspace)
    assert refused.returncode == Exit.USAGE
    assert "write `quantized: true` beside `model`" in refused.stderr
    said = text[:start] + arms.replace("./gptq-8", "./gptq-8, quantized: true") + text[end:]
    (workspace / "served.yaml").write_text(said)
    assert qualgate("plan", "served.yaml", cwd=workspace).returncode == 0
