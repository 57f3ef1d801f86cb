"""A LoRA adapter as a variant, end to end: what it says, what is stored and shown of it, what is told of its base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.adapter_folders import TWO, save_adapter, write_config
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import changed, rows, with_variants

VARIANTS = """\
variants:
  lora: {adapter: ./lora}
  merged: {adapter: {path: ./lora, merge: true}}
  int8+lora: {quantize: {method: int8, group_size: 32}, adapter: ./lora}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, dict, str]:
    folder = tmp_path_factory.mktemp("adapted")
    make_workspace(folder, cases=8)
    save_adapter(folder / "lora", parts=TWO, config={"base_model_name_or_path": "/elsewhere/base"})
    with_variants(folder, VARIANTS)
    changed(folder, ("count: 1", "count: 1, devices: cpu"))
    done = qualgate("run", "gate.yaml", "--json", cwd=folder)
    return folder, json.loads(done.stdout), done.stderr


def test_apart_in_float32_it_says_what_the_merged_model_says(ran):
    said = {
        arm: rows(ran[0], f"select case_id, text from units where arm = '{arm}' order by case_id")
        for arm in ("baseline", "lora", "merged")
    }
    assert len(said["lora"]) == 8
    assert said["lora"] == said["merged"] != said["baseline"]


def test_reports_name_it_beside_the_weights_and_its_files_in_the_identity(ran):
    folder, body, _ = ran
    arms = {arm["name"]: arm for arm in body["arms"]}
    assert {name: arm["weights"] for name, arm in arms.items()} == {
        "baseline": "float32",
        "lora": "float32 + LoRA lora",
        "merged": "float32 + LoRA lora merged",
        "int8+lora": "int8 g32 + LoRA lora",
    }
    assert arms["baseline"]["identity"]["adapter"] == ""
    assert arms["lora"]["identity"]["adapter"] == arms["int8+lora"]["identity"]["adapter"]
    assert arms["lora"]["identity"]["adapter"] != arms["merged"]["identity"]["adapter"]
    assert "int8 g32 + LoRA lora" in qualgate("report", "gate.yaml", "--format", "markdown", cwd=folder).stdout


def test_the_memory_that_each_arm_took_is_measured_and_shown(ran):
    folder, body, _ = ran
    sizes = [arm["footprint"] for arm in body["arms"]]
    if not any(size["generation"]["peak"] for size in sizes):
        pytest.skip("this system does not let a process mark its peak")
    assert all(size["generation"]["peak"] > size["bytes_in_memory"] for size in sizes)
    shown = qualgate("report", "gate.yaml", "--format", "markdown", cwd=folder).stdout
    assert "most memory of its process, libraries and loading included: baseline " in shown


def test_a_base_elsewhere_is_told_and_the_models_own_is_not(ran):
    folder, _, told = ran
    assert "the adapter" in told
    assert "says that it was trained on /elsewhere/base" in " ".join(told.split())
    names = ["q_proj", "v_proj"]
    for base in ("acme/support-8b", str(folder / "model"), None):
        write_config(folder / "lora", {"target_modules": names, "base_model_name_or_path": base})
        assert "was trained on" not in qualgate("plan", "gate.yaml", cwd=folder).stderr


def test_an_adapter_that_changed_is_another_variant(ran):
    folder, _, _ = ran
    write_config(folder / "lora", {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 9})
    done = qualgate("gate", "gate.yaml", cwd=folder)
    assert "int8+lora: weights, adapter changed since run" in " ".join(done.stdout.split())
