"""A cgroup is made where it is allowed, and nothing is promised elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.sandbox import cgroup, killable


@pytest.fixture
def fresh():
    cgroup._parent.cache_clear()
    yield
    cgroup._parent.cache_clear()


def test_what_runs_in_one_holds_no_more_than_its_limit_and_that_is_told(fresh):
    made = cgroup.make(2**26)
    if made is None:
        pytest.skip("no cgroup may be made here")
    try:
        command = [sys.executable, "-c", "held = b'x' * 2**28"]
        assert subprocess.run(made.within(command), check=False).returncode != 0
        assert made.out_of_memory()
    finally:
        made.remove()
    assert not made.folder.exists()


def test_where_none_may_be_made_there_is_none_and_jobs_run_all_the_same(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(cgroup, "MOUNTED", tmp_path)
    assert cgroup.make(2**26) is None
    killable.dismiss()
    assert killable.run(len, "abc", within=killable.Bounds(tree_bytes=2**30)) == 3
    killable.dismiss()


def test_one_that_cannot_be_moved_into_is_none(fresh, monkeypatch, tmp_path):
    """Folders that take the limit and no process, as a cgroup of somebody else's does."""
    monkeypatch.setattr(cgroup, "_candidates", lambda: [tmp_path])

    def made(parent: Path, memory_bytes: int) -> cgroup.Cgroup:
        (parent / "one" / "cgroup.procs").mkdir(parents=True)
        return cgroup.Cgroup(folder=parent / "one")

    monkeypatch.setattr(cgroup, "_made", made)
    monkeypatch.setattr(cgroup, "_PATIENCE", 0.0)
    assert cgroup._parent() is None
