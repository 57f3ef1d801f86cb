"""A whole run whose store is a database: killed, resumed, refused beside another, moved."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.store import queries, runs
from qualgate.store.database import Store, open_store
from tests.command_line import qualgate
from tests.postgresql import server

GATE = """version: 1
baseline: {model: reference}
variants:
  int8: {quantize: int8}
evalsets: [arithmetic]
gate:
  rules: [{metric: exact_match, max_drop: 0.05}]
workers: {count: 1}
"""


def run_until_half_is_stored(folder: Path, store: Store) -> subprocess.Popen[bytes]:
    """A run under way, some of whose answers are in the store."""
    started = subprocess.Popen([sys.executable, "-m", "qualgate", "run", "gate.yaml"], cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    assert started.stderr is not None
    for line in started.stderr:  # progress, a line a time
        if b" of 800 answers" in line and not line.lstrip().startswith(b"0 "):
            break
    assert queries.list_runs(store)[0].done
    return started


@pytest.mark.proof
def test_a_run_is_killed_refused_beside_another_resumed_and_moved(tmp_path):
    url = server().new_database()
    for place in ("one", "other machine"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "gate.yaml").write_text(f"{GATE}store: {url}\n")
    folder = tmp_path / "one"
    with open_store(url) as store:
        first = run_until_half_is_stored(folder, store)
        first.send_signal(signal.SIGSTOP)  # it neither ends meanwhile nor lets go of its run
        beside = qualgate("run", "gate.yaml", cwd=tmp_path / "other machine")
        assert beside.returncode == Exit.INFRASTRUCTURE, beside.stderr
        assert "perhaps on another machine" in beside.stderr
        first.send_signal(signal.SIGKILL)
        first.wait()
        done = queries.list_runs(store)[0].done
        assert 0 < done < 800
        again = qualgate("run", "gate.yaml", cwd=folder)
        assert again.returncode == Exit.APPROVE, again.stderr
        [line] = queries.list_runs(store)
        assert (line.done, line.errors) == (800, 0)
        assert runs.evidence(store, line.run_id).integrity == ()
    said = qualgate("report", "gate.yaml", "--format", "json", cwd=folder).stdout
    assert qualgate("db", "copy", url, "sqlite:///moved.db", cwd=folder).returncode == Exit.APPROVE
    assert qualgate("report", "--store", "sqlite:///moved.db", "--format", "json", cwd=folder).stdout == said
    assert sorted(path.name for path in folder.glob("*.artifacts")) == ["qualgate.artifacts"]
