"""Runs that are interrupted, by their user or by the end of their machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.postgresql import server
from tests.run.commands import changed, resumed_after, run_until_some_are_answered


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
