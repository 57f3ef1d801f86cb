"""Runs that are interrupted, and workers that are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process, qualgate
from tests.gated_model import make_workspace
from tests.run.commands import employ_two, rows, spawned_workers

CASES = 150  # three jobs an arm: the first of nine has ended when the run is interrupted
UNITS = CASES * 3


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made"), cases=CASES)


@pytest.mark.parametrize(
    ("wanted", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.proof)]
)
def test_an_interrupted_run_stops_cleanly_and_running_again_resumes(workspace, wanted, code):
    employ_two(workspace)
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(r"\s*[1-9][\d,]* of [\d,]+ answers ", line):
            os.killpg(process.pid, wanted) if wanted == signal.SIGINT else process.send_signal(wanted)
            break
    said = process.stderr.read()
    process.wait()
    assert process.returncode == code, said
    assert "resume" in said
    [(stored,)] = rows(workspace, "select count(*) from units where status = 'done'")
    assert 0 < stored < UNITS
    done = qualgate("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    assert rows(workspace, "select count(*), count(distinct run_id) from units where status = 'done'") == [(UNITS, 1)]


@pytest.mark.proof
def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(workspace):
    employ_two(workspace)
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stdout is not None
    for line in process.stderr:
        if re.match(r"\s*[1-9][\d,]* of [\d,]+ answers ", line):
            os.kill(spawned_workers(process.pid)[0], signal.SIGKILL)
            break
    process.stderr.read()
    body = json.loads(process.stdout.read())
    assert process.wait() == Exit.BLOCK
    assert {v["variant"]: v["word"] for v in body["verdicts"]} == {"same": "approve", "int2": "block"}
    assert rows(workspace, "select count(*) from units where status = 'done'") == [(UNITS,)]


# Found by every Python that is started with its folder in PYTHONPATH: the case kills whoever takes it for this arm.
KILLER = """
import os, signal
from qualgate.workers import unit

def ready(self, job, plain=unit._Arms.ready):
    if job.arm.name == {arm!r} and any(prompt.key.case_id == {case!r} for prompt in job.prompts):
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self, job)

unit._Arms.ready = ready
"""


@pytest.mark.proof
@pytest.mark.parametrize(("arm", "missing"), [("int2", 1), ("baseline", 3)])
def test_a_case_that_kills_every_worker_is_named_the_others_are_answered_and_mended_it_is_as_if_never(
    workspace, tmp_path_factory, arm, missing
):
    folder = tmp_path_factory.mktemp("killing")
    (folder / "sitecustomize.py").write_text(KILLER.format(arm=arm, case="echo-140"))
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ran = in_a_process("run", "gate.yaml", cwd=workspace, PYTHONPATH=path)
    assert ran.returncode == Exit.INFRASTRUCTURE, ran.stderr
    assert "the worker process dies on this case (signal 9): echo/echo-140" in ran.stderr
    assert rows(workspace, "select case_id, count(*) from units where status <> 'done' group by 1") == [
        ("echo-140", missing)
    ]
    evidence = "select arm, case_id, answer_sha256 from units order by 1, 2"
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode == Exit.BLOCK
    mended = rows(workspace, evidence)
    (workspace / "qualgate.db").unlink()
    shutil.rmtree(workspace / "qualgate.db.artifacts")
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode == Exit.BLOCK
    assert mended == rows(workspace, evidence)
