"""Runs handed to a pool: through the command line, with real nodes, some of which are killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import rows

CASES = 150  # three jobs an arm, so that a node can be killed between two
UNITS = CASES * 3


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made"), cases=CASES)


def node(workspace: Path, name: str) -> subprocess.Popen[str]:
    words = ["worker", "--store", "sqlite:///pool.db", "--name", name, "--lease", "3"]
    return subprocess.Popen(
        [sys.executable, "-m", "qualgate", *words, "--folder", str(workspace / name)],
        cwd=workspace, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def until(said):
    """What it says once it says something: looked for, as nobody tells."""
    end = time.monotonic() + 300
    while not (found := said()):
        assert time.monotonic() < end
        os.sched_yield()
    return found


def evidence(file: Path) -> list:
    """All that a report rests on, but for times and the run's name."""
    with closing(sqlite3.connect(file)) as connection:
        answers = connection.execute(
            "select arm, evalset, case_id, repeat, status, answer_sha256 from units order by 1, 2, 3, 4"
        ).fetchall()
        verdicts = connection.execute(
            "select variant, word, policy_json, body_json from verdicts order by 1"
        ).fetchall()
    return [answers, verdicts]


def of_pool(workspace: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(workspace / "pool.db", timeout=30)) as connection:
        return connection.execute(query).fetchall()


def running(word: str) -> list[int]:
    """Processes whose command line holds it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.proof
def test_a_node_killed_in_the_middle_of_a_run_loses_and_doubles_nothing(workspace):
    handed = qualgate("submit", "gate.yaml", "--store", "sqlite:///pool.db", cwd=workspace)
    assert handed.returncode == 0, handed.stderr
    name = handed.stdout.strip()
    assert "no node works for" in handed.stderr
    first = node(workspace, "first")
    until(lambda: of_pool(workspace, "select 1 from units where status = 'done' limit 1"))
    first.kill()
    first.communicate()
    assert 0 < of_pool(workspace, "select count(*) from units where status = 'done'")[0][0] < UNITS
    until(lambda: not running(f"{name}:1"))
    second = node(workspace, "second")
    waited = qualgate("wait", name, "--store", "sqlite:///pool.db", "--timeout", "300", cwd=workspace)
    second.terminate()
    second.communicate()
    assert second.returncode == Exit.TERMINATED
    assert waited.returncode == Exit.BLOCK, waited.stderr
    assert "int2" in waited.stdout
    assert of_pool(workspace, "select rescued from queue") == [(1,)]
    [(run_id,)] = of_pool(workspace, "select run_id from runs")
    told = qualgate("status", name, "--store", "sqlite:///pool.db", cwd=workspace).stdout
    assert f"run {run_id}: {UNITS} of {UNITS} answers" in " ".join(told.split())
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode == Exit.BLOCK
    assert evidence(workspace / "pool.db") == evidence(workspace / "qualgate.db")
    assert rows(workspace, "select count(*) from submissions") == [(0,)]


def fell_asleep(workspace: Path, groups: list[int]) -> bool:
    """Whether they do between two writes: who is stopped in one holds a file's lock, and nobody writes any more."""
    for process in groups:
        os.killpg(process, signal.SIGSTOP)
    with closing(sqlite3.connect(workspace / "pool.db", timeout=2, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
            connection.execute("rollback")
        except sqlite3.OperationalError:
            for process in groups:
                os.killpg(process, signal.SIGCONT)
            return False
    return True


@pytest.mark.proof
def test_a_node_that_sleeps_past_its_lease_writes_nothing_when_it_wakes(workspace):
    name = qualgate("submit", "gate.yaml", "--store", "sqlite:///pool.db", cwd=workspace).stdout.strip()
    first = node(workspace, "first")
    until(lambda: of_pool(workspace, "select 1 from units where status = 'done' limit 1"))
    asleep = [first.pid, *running(f"{name}:1")]  # each leads a group of its own, the second that of the run
    until(lambda: fell_asleep(workspace, asleep))
    second = node(workspace, "second")
    until(lambda: of_pool(workspace, "select 1 from submissions where status = 'done'"))
    before = evidence(workspace / "pool.db")
    for process in asleep[::-1]:
        os.killpg(process, signal.SIGCONT)
    until(lambda: not running(f"{name}:1"))
    for process in (first, second):
        process.terminate()
        process.communicate()
    assert evidence(workspace / "pool.db") == before
    assert of_pool(workspace, "select status, token, deaths from submissions") == [("done", 2, 1)]
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode == Exit.BLOCK
    assert before == evidence(workspace / "qualgate.db")
