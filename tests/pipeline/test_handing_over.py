"""What a submission carries, and what a node makes of it elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.pipeline import handing_over, under_lease
from qualgate.pipeline.handing_over import digest_of, lacking, lay_out, submission_of
from qualgate.pipeline.plan import make_plan
from qualgate.records import Submission
from tests.gated_model import GATE_FILE, write_evalset
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("made") / "model", seed=1, dtype="float32")


@pytest.fixture
def workspace(model, tmp_path) -> Path:
    folder = tmp_path / "ci" / "project"
    folder.mkdir(parents=True)
    shutil.copytree(model, tmp_path / "ci" / "model")
    (folder / "gate.yaml").write_text(GATE_FILE.replace("./model", "../model"))
    row = {"id": "a", "task": "echo", "prompt": "abc", "max_new_tokens": 4, "answer": "b"}
    write_evalset(folder, [row, {**row, "id": "b", "prompt": "abd"}])
    return folder


def handed(workspace: Path) -> Submission:
    return submission_of(workspace / "gate.yaml", ("--blame",), "ada", 3)


def test_the_files_beside_a_gate_file_are_carried_and_a_models_folder_is_needed(workspace):
    found = handed(workspace)
    assert found.files == {
        str(workspace / name): (workspace / name).read_bytes() for name in ("echo.yaml", "echo.jsonl")
    }
    model = workspace.parent / "model"
    assert found.needs == {str(model): digest_of(str(model))}
    assert (found.owner, found.priority, found.options, found.name) == ("ada", 3, ("--blame",), "gate.yaml")


def test_a_node_that_has_the_models_alone_plans_the_very_same_run(workspace, tmp_path):
    here = make_plan(load_gate_file(workspace / "gate.yaml"))
    found = handed(workspace)
    shutil.rmtree(workspace)
    gate_file = lay_out(found, tmp_path / "node" / "root")
    there = make_plan(load_gate_file(gate_file))
    assert (there.key, there.gate_file, there.expected) == (here.key, here.gate_file, here.expected)
    assert lay_out(found, tmp_path / "node" / "root") == gate_file, "a second time it finds everything there"


def test_files_named_by_whole_paths_must_be_on_the_node_as_they_were(workspace, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("echo.yaml", "echo.jsonl"):
        (workspace / name).rename(shared / name)
    gate = workspace / "gate.yaml"
    gate.write_text(gate.read_text().replace("./echo.yaml", str(shared / "echo.yaml")))
    found = handed(workspace)
    assert not found.files
    assert str(shared / "echo.jsonl") in found.needs
    assert lacking(found) == ""
    (shared / "echo.jsonl").write_text("")
    assert lacking(found) == f"{shared / 'echo.jsonl'} is not what it was where the run was handed over"


def test_whoever_hands_over_needs_no_model_and_the_node_says_which_path_it_lacks(workspace):
    model = workspace.parent / "model"
    shutil.rmtree(model)
    found = handed(workspace)
    assert found.needs == {str(model): ""}
    assert lacking(found) == f"{model} is not there"
    model.mkdir()
    assert lacking(found) == ""


def test_another_model_of_the_same_name_is_noticed_by_its_files(workspace):
    found = handed(workspace)
    config = workspace.parent / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 1.0}))
    assert lacking(found).endswith("model is not what it was where the run was handed over")


def test_a_mistake_is_told_before_anything_is_handed_over(workspace):
    (workspace / "echo.jsonl").unlink()
    shutil.rmtree(workspace.parent / "model")
    with pytest.raises(UsageError, match=r"echo\.jsonl"):
        handed(workspace)


@pytest.mark.parametrize("is_here", [True, False])
def test_a_path_in_ones_home_is_refused_for_a_nodes_home_is_another(workspace, monkeypatch, is_here):
    monkeypatch.setenv("HOME", str(workspace.parent if is_here else workspace / "nobody"))
    file = workspace / "gate.yaml"
    file.write_text(file.read_text().replace("../model", "~/model"))
    with pytest.raises(UsageError, match=r"gate.yaml names ~/model.*absolute path"):
        handed(workspace)


def test_a_nodes_run_names_models_where_they_are_and_not_where_it_laid_them_out(workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(under_lease, "_end_with_input", lambda: None)
    gate = load_gate_file(lay_out(handed(workspace), tmp_path / "node" / "root"))
    held = under_lease.under_lease(gate, "s1:2")
    model = str(workspace.parent / "model")
    assert {arm.model for arm in (held.baseline, *held.variants)} == {model}
    assert make_plan(held).key == make_plan(gate).key


def test_more_than_a_submission_carries_is_refused_with_the_largest(workspace, monkeypatch):
    monkeypatch.setattr(handing_over, "MOST_CARRIED", 40)
    with pytest.raises(UsageError, match=r"names 2 files .* the largest is \S*echo\.jsonl.*absolute path"):
        handed(workspace)


@pytest.mark.parametrize("path", ["../outside", "/w/../../outside", "outside"])
def test_a_path_that_would_leave_the_nodes_folder_is_refused(tmp_path, path):
    bad = Submission(owner="a", name="gate.yaml", folder="/w", gate_file="", program="1", files={path: b"x"})
    with pytest.raises(UsageError, match="no whole path"):
        lay_out(bad, tmp_path / "root")
    with pytest.raises(UsageError, match="no whole path"):
        lay_out(Submission(owner="a", name=f"../{path}", folder="/w", gate_file="", program="1"), tmp_path / "root")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("later", [{"needs": {"{}/sub/x": ""}}, {"files": {"{}/x": b"1"}}, {"folder": "{}"}])
def test_nothing_is_written_through_a_link_that_was_laid_out(tmp_path, later):
    models, root = tmp_path / "models", tmp_path / "node" / "root"
    models.mkdir()
    of = {"owner": "eve", "name": "gate.yaml", "folder": "/ci", "gate_file": "", "program": "1"}
    lay_out(Submission(**of, needs={str(models): ""}), root)
    placed = {
        key: value.format(models) if isinstance(value, str) else {k.format(models): v for k, v in value.items()}
        for key, value in later.items()
    }
    with pytest.raises(UsageError, match="lies outside"):
        lay_out(Submission(**of | placed), root)
    assert list(models.iterdir()) == []
