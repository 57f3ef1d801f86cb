"""What a run needs is tried before its plan is made, and told with its true cause."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from qualgate.errors import Exit
from qualgate.errors.extras import install_command
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.postgresql import server
from tests.served.scripted import as_json, scripted

GATE = """\
version: 1
baseline: {model: reference}
variants: {int8: {quantize: int8}}
evalsets: [json_extract]
gate: {rules: [{metric: json.valid, max_drop: 0.05}]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A gate file whose plan must not be made."""
    monkeypatch.setattr("qualgate.run.make_plan", lambda *words: pytest.fail("planned"))
    (tmp_path / "gate.yaml").write_text(GATE)
    return tmp_path


def refused(folder: Path, more: str = "", *words: str, code: Exit = Exit.USAGE, gate: str = GATE) -> str:
    """What `run` says on stderr, where it ends with this code."""
    (folder / "gate.yaml").write_text(gate + more)
    done = qualgate("run", "gate.yaml", *words, cwd=folder)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_a_store_that_cannot_be_opened_is_told_with_the_line_that_names_it_unless_the_command_did(folder):
    assert f"gate.yaml:6: sqlite:///{folder}/none/q.db" in refused(folder, "store: sqlite:///none/q.db\n")
    said = refused(folder, "", "--store", "sqlite:///none/q.db")
    assert "gate.yaml" not in said
    assert "the folder none does not exist" in said.replace(f"{folder}/", "")


def test_a_store_of_an_older_version_is_told(folder):
    with open_store(f"sqlite:///{folder}/qualgate.db") as store, store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    assert "was made by qualgate 0.1, whose stores this version cannot read or upgrade" in refused(folder)


def test_a_server_that_is_away_is_infrastructure(folder):
    pytest.importorskip("psycopg")
    said = refused(folder, "store: postgresql://ci@127.0.0.1:1/q\n", code=Exit.INFRASTRUCTURE)
    assert "See that its server runs and can be reached" in said


@pytest.mark.proof
def test_a_server_that_lets_nobody_in_is_told_before_anything_is_planned(folder):
    url = server().url("postgres", "nobody_of_this_name")
    assert 'role "nobody_of_this_name" does not exist' in refused(folder, f"store: {url}\n")


@pytest.mark.parametrize("name", ["qualgate.db.artifacts", "qualgate-reports"])
def test_a_folder_that_a_run_writes_to_and_cannot_is_told(folder, name):
    (folder / name).write_text("a file, where a folder should be")
    assert f"{name}: a run writes there, and" in refused(folder)


def test_gpus_that_cannot_be_used_are_told(folder, monkeypatch):
    monkeypatch.setattr("qualgate.engine.device.DRIVER", folder / "no-driver")
    assert "none can be used here" in refused(folder, "workers: {devices: [0]}\n")


def test_a_cluster_without_ray_or_that_nobody_answers_for_is_told(folder, monkeypatch):
    cluster = "workers: {backend: ray, address: '127.0.0.1:1'}\n"
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    assert "no Ray cluster answers at 127.0.0.1:1" in refused(folder, cluster, code=Exit.INFRASTRUCTURE)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert f"needs ray. Install it: {install_command('ray')}" in refused(folder, cluster)


def test_a_judge_that_does_not_serve_its_model_is_told(folder, monkeypatch):
    labels = [{"id": f"p{n}", "question": "q", "a": "a", "b": "b", "preferred": "a"} for n in range(30)]
    (folder / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-4711")
    with scripted(models=as_json({"data": [{"id": "other"}]})) as judge:
        said = refused(
            folder,
            f"judge: {{endpoint: '{judge.address}', model: m, api_key_env: JUDGE_KEY, rubric: The right one wins., "
            "labels: labels.jsonl}\n",
            gate=GATE.replace("[{", "[{metric: judge.win, max_drop: 0.05}, {"),
        )
    assert "judge: " in said
    assert "serves no model 'm'" in said
    assert "sk-judge" not in said
