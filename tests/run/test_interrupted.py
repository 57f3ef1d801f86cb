"""Runs that are interrupted, and workers that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.command_line import in_a_process, qualgate
from tests.postgresql import server
from tests.run.commands import changed, employ_two, resumed_after, rows, run_until_some_are_answered


def interrupt(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does, to its workers too


@pytest.mark.parametrize(
    ("wanted", "code", "backend"),
    [
        (signal.SIGINT, Exit.INTERRUPTED, "local"),
        pytest.param(signal.SIGTERM, Exit.TERMINATED, "local", marks=pytest.mark.proof),
        pytest.param(signal.SIGINT, Exit.INTERRUPTED, "ray", marks=pytest.mark.proof),
    ],
)
def test_an_interrupted_run_stops_cleanly_and_running_again_resumes(long, wanted, code, backend):
    changed(long, ("backend: local", f"backend: {backend}"))
    process = run_until_some_are_answered(long)
    interrupt(process) if wanted == signal.SIGINT else process.send_signal(wanted)
    resumed_after(long, process, wanted, code)


def spawned_workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.proof
def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(long):
    employ_two(long)
    process = run_until_some_are_answered(long, "--json")
    os.kill(spawned_workers(process.pid)[0], signal.SIGKILL)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stderr.read()
    body = json.loads(process.stdout.read())
    assert process.wait() == Exit.BLOCK
    assert {v["variant"]: v["word"] for v in body["verdicts"]} == {"same": "approve", "int2": "block"}
    assert rows(long, "select count(*) from units where status = 'done'") == [(3 * 180,)]


# Found by every Python that is started with its folder in PYTHONPATH: the case kills whoever takes it for this arm.
KILLER = """
import os, signal
from qualgate.workers import unit

def ready(self, job, plain=unit._Arms.ready):
    if job.arm.name == 'baseline' and any(prompt.key.case_id == 'echo-040' for prompt in job.prompts):
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self, job)

unit._Arms.ready = ready
"""
EVIDENCE = "select arm, case_id, answer_sha256 from units order by 1, 2"


@pytest.mark.proof
def test_a_case_that_kills_every_worker_is_named_the_others_are_answered_and_mended_it_is_as_if_never(
    workspace, finished, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("killing")
    (folder / "sitecustomize.py").write_text(KILLER)
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ran = in_a_process("run", "gate.yaml", cwd=workspace, PYTHONPATH=path)
    assert ran.returncode == Exit.INFRASTRUCTURE, ran.stderr
    assert "the worker process dies on this case (signal 9): echo/echo-040" in ran.stderr
    assert rows(workspace, "select case_id, count(*) from units where status <> 'done' group by 1") == [
        ("echo-040", 3)  # nor can it be compared
    ]
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode == Exit.BLOCK
    assert rows(workspace, EVIDENCE) == rows(finished[0], EVIDENCE)


@pytest.mark.proof
def test_a_run_in_a_database_is_killed_refused_beside_another_resumed_and_moved(long, tmp_path_factory):
    url = server().new_database()
    changed(long, ("sqlite:///qualgate.db", url))
    elsewhere = Path(shutil.copytree(long, tmp_path_factory.mktemp("other machine"), dirs_exist_ok=True))
    with open_store(url) as store:
        first = run_until_some_are_answered(long)
        first.send_signal(signal.SIGSTOP)  # it neither ends meanwhile nor lets go of its run
        beside = qualgate("run", "gate.yaml", cwd=elsewhere)
        assert beside.returncode == Exit.INFRASTRUCTURE, beside.stderr
        assert "perhaps on another machine" in beside.stderr
        first.send_signal(signal.SIGKILL)
        first.wait()
        done = queries.list_runs(store)[0].done
        assert 0 < done < 540
        again = qualgate("run", "gate.yaml", cwd=long)
        assert again.returncode == Exit.BLOCK, again.stderr
        [line] = queries.list_runs(store)
        assert (line.done, line.errors) == (540, 0)
        assert runs.evidence(store, line.run_id).integrity == ()
    said = qualgate("report", "gate.yaml", "--format", "json", cwd=long).stdout
    assert qualgate("db", "copy", url, "sqlite:///moved.db", cwd=long).returncode == Exit.APPROVE
    assert qualgate("report", "--store", "sqlite:///moved.db", "--format", "json", cwd=long).stdout == said
    assert sorted(path.name for path in long.glob("*.artifacts")) == ["qualgate.artifacts"]
