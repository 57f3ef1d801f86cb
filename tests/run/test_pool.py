"""Runs handed to a pool: through the command line, with real nodes, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.run.commands import rows

UNITS = 3 * 180
POOL = "sqlite:///pool.db"


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


def evidence(folder: Path, file: str) -> list:
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
def test_a_node_killed_in_the_middle_of_a_run_loses_and_doubles_nothing(long):
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
    assert qualgate("run", "gate.yaml", cwd=long).returncode == Exit.BLOCK
    assert evidence(long, "pool.db") == evidence(long, "qualgate.db")
