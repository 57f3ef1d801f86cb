"""Runs handed to a pool: through the command line, with real nodes, some of which are killed."""

from __future__ import annotations

import os
import shutil
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
from tests.run.commands import rows

UNITS = 3 * 180
POOL = "sqlite:///pool.db"


@pytest.fixture
def alone(long, tmp_path_factory) -> list:
    """The evidence of the same run without a pool."""
    folder = Path(shutil.copytree(long, tmp_path_factory.mktemp("alone"), dirs_exist_ok=True))
    assert qualgate("run", "gate.yaml", cwd=folder).returncode == Exit.BLOCK
    return evidence(folder, "qualgate.db")


def node(workspace: Path, name: str) -> subprocess.Popen[str]:
    words = ["worker", "--store", POOL, "--name", name, "--lease", "3"]
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


def evidence(folder: Path, file: str = "pool.db") -> list:
    """All that a report rests on, but for times and the run's name."""
    answers = "select arm, evalset, case_id, repeat, status, answer_sha256 from units order by 1, 2, 3, 4"
    return [
        rows(folder, query, file)
        for query in (answers, "select variant, word, policy_json, body_json from verdicts order by 1")
    ]


def of_pool(workspace: Path, query: str) -> list[tuple]:
    return rows(workspace, query, "pool.db")


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
def test_a_node_killed_in_the_middle_of_a_run_loses_and_doubles_nothing(long, alone):
    handed = qualgate("submit", "gate.yaml", "--store", POOL, cwd=long)
    assert handed.returncode == 0, handed.stderr
    name = handed.stdout.strip()
    assert "no node works for" in handed.stderr
    first = node(long, "first")
    until(lambda: of_pool(long, "select 1 from units where status = 'done' limit 1"))
    first.kill()
    first.communicate()
    assert 0 < of_pool(long, "select count(*) from units where status = 'done'")[0][0] < UNITS
    until(lambda: not running(f"{name}:1"))
    second = node(long, "second")
    waited = qualgate("wait", name, "--store", POOL, "--timeout", "300", cwd=long)
    second.terminate()
    second.communicate()
    assert second.returncode == Exit.TERMINATED
    assert waited.returncode == Exit.BLOCK, waited.stderr
    assert "int2" in waited.stdout
    assert of_pool(long, "select rescued from queue") == [(1,)]
    [(run_id,)] = of_pool(long, "select run_id from runs")
    told = qualgate("status", name, "--store", POOL, cwd=long).stdout
    assert f"run {run_id}: {UNITS} of {UNITS} answers" in " ".join(told.split())
    assert evidence(long) == alone


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
def test_a_node_that_sleeps_past_its_lease_writes_nothing_when_it_wakes(long, alone):
    name = qualgate("submit", "gate.yaml", "--store", POOL, cwd=long).stdout.strip()
    first = node(long, "first")
    until(lambda: of_pool(long, "select 1 from units where status = 'done' limit 1"))
    asleep = [first.pid, *running(f"{name}:1")]  # each leads a group of its own, the second that of the run
    until(lambda: fell_asleep(long, asleep))
    second = node(long, "second")
    until(lambda: of_pool(long, "select 1 from submissions where status = 'done'"))
    before = evidence(long)
    for process in asleep[::-1]:
        os.killpg(process, signal.SIGCONT)
    until(lambda: not running(f"{name}:1"))
    for process in (first, second):
        process.terminate()
        process.communicate()
    assert evidence(long) == before
    assert of_pool(long, "select status, token, deaths from submissions") == [("done", 2, 1)]
    assert before == alone
