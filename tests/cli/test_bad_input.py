"""What a user can get wrong, through the command line: told in one message, with the file and what to do next; exit 64
(13, 14); nothing lost. `mistakes.py` is a newcomer's first hour with one mistake in each input."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from qualgate.errors import Exit
from qualgate.errors.extras import install_command
from qualgate.store.database import open_store
from tests.cli.mistakes import FINE, MISTAKES, REFUSED_BEFORE, first_hour, text
from tests.command_line import in_a_process, qualgate
from tests.gated_model import make_workspace, write_evalset
from tests.run.commands import rows
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper


@pytest.fixture(scope="module")
def hour(tmp_path_factory) -> Path:
    return first_hour(tmp_path_factory.mktemp("first"))


@pytest.fixture
def folder(hour, tmp_path) -> Path:
    shutil.copytree(hour, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_that_says_where_and_what_next(name, folder):
    mistake = MISTAKES[name]
    if "permission" in name and os.geteuid() == 0:
        pytest.skip("who may read everything meets no file that may not be read")
    mistake.change(folder)
    done = qualgate(*mistake.words, cwd=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (Exit.USAGE, False), done.stdout + done.stderr
    for word in mistake.said:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""
    assert not (folder / "qualgate.db").exists() or "store" in name


@pytest.mark.parametrize("name", FINE)
def test_what_other_systems_write_is_no_mistake(name, folder):
    FINE[name](folder)
    done = qualgate("config", "check", "gate.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", REFUSED_BEFORE)
def test_whatever_a_run_refuses_config_check_refuses_and_nothing_is_generated(name, folder, monkeypatch):
    def never(*args: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("qualgate.pipeline.generating.run_jobs", never)
    mistake = REFUSED_BEFORE[name]
    mistake.change(folder)
    for command in (("config", "check"), ("run",)):
        done = qualgate(*command, "gate.yaml", cwd=folder)
        assert (done.returncode, "Traceback" in done.stderr) == (Exit.USAGE, False), done.stdout + done.stderr
        for word in mistake.said:
            assert word in done.stderr, done.stderr


def test_a_port_in_use_is_told_with_the_option_that_gives_another(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = qualgate("dashboard", "gate.yaml", "--port", str(taken.getsockname()[1]), cwd=folder)
    assert (done.returncode, "give another --port" in done.stderr) == (Exit.USAGE, True), done.stderr


HEAVY = ("torch", "transformers", "numpy", "scipy", "sqlalchemy", "pandas", "streamlit", "qualgate.pipeline")
LIGHT = f"""
import sys
from qualgate.cli import main
for words in (["config", "check"], ["run"], ["plan"]):
    sys.argv = ["qualgate", *words, "gate.yaml"]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, *(name for name in {HEAVY} if name in sys.modules))
"""


def test_a_misspelt_key_is_told_before_anything_heavy_is_imported(folder):
    text("gate.yaml", "workers:", "wrokers:")(folder)
    done = subprocess.run([sys.executable, "-c", LIGHT], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{Exit.USAGE}"] * 3, done.stderr
    assert done.stderr.count("did you mean 'workers'?") == 3


def test_a_set_of_many_cases_is_checked_as_a_whole_and_every_fault_is_named(tmp_path):
    rows_ = [{"id": f"r{i}", "task": "t", "prompt": "x", "max_new_tokens": 0, "answer": "y"} for i in range(3)]
    write_evalset(tmp_path, rows_)
    done = qualgate("evalset", "check", "echo.yaml", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    for line in (1, 2, 3):
        assert f"echo.jsonl:{line}" in done.stderr


def test_metrics_without_their_library_name_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = qualgate("metrics", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"needs prometheus-client. Install it: {install_command('service')}" in done.stderr


@pytest.mark.parametrize("call", [qualgate, pytest.param(in_a_process, marks=pytest.mark.proof)])
def test_a_model_whose_logits_are_not_numbers_ends_as_an_incomplete_run_and_never_as_an_answer(tmp_path, call):
    workspace = make_workspace(tmp_path, cases=8).parent
    path = workspace / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    done = call("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.INFRASTRUCTURE, done.stdout + done.stderr
    assert "NaN" in done.stdout
    assert "Traceback" not in done.stderr
    assert rows(workspace, "select distinct status from units") == [("error",)]
    assert rows(workspace, "select count(*) from scores") == [(0,)]


def test_an_answer_that_a_tampered_store_no_longer_vouches_for_is_an_integrity_failure(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        make_run(store, make_plan(cases=2))
        tamper(store, "update scores set value = 1, verdict = 1 where value = 0")
    done = qualgate("gate", "--store", "sqlite:///q.db", cwd=tmp_path)
    assert done.returncode == Exit.INTEGRITY, done.stdout
