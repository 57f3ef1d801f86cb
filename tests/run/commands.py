"""What the command line left in the store, and workspaces made larger."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset


def rows(folder: Path, query: str, file: str = "qualgate.db") -> list[tuple]:
    with closing(sqlite3.connect(folder / file, timeout=30)) as connection:
        return connection.execute(query).fetchall()


def changed(folder: Path, *changes: tuple[str, str], file: str = "gate.yaml") -> Path:
    """Its gate file with other words. file: another name for it."""
    text = (folder / "gate.yaml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / file).write_text(text)
    return folder / file


def with_variants(folder: Path, variants: str) -> None:
    """Its gate file with these in place of its own."""
    file = folder / "gate.yaml"
    file.write_text(re.sub(r"variants:\n.*?(?=evalsets)", variants, file.read_text(), flags=re.DOTALL))


def employ_two(workspace: Path) -> None:
    """A pool of two workers, in place of one."""
    changed(workspace, ("count: 1", "count: 2"))


def grow(workspace: Path, copies: int) -> None:
    """The same cases several times over, under new ids: a run long enough to be interrupted in."""
    cases = [json.loads(line) for line in (workspace / "echo.jsonl").read_text().splitlines()]
    write_evalset(
        workspace,
        [{**case, "id": f"{case['id']}-{copy}", "cluster": case["id"]} for copy in range(copies) for case in cases],
    )


def run_until_some_are_answered(workspace: Path, *words: str) -> subprocess.Popen[str]:
    """A run in a process of its own, which leads a group, once it said that it has answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(r"\s*[1-9][\d,]* of [\d,]+ answers ", line):
            break
    return process


def resumed_after(workspace: Path, process: subprocess.Popen[str], wanted: signal.Signals, code: int) -> None:
    """The run ends by the signal that it was sent, says that it can be resumed, and is resumed as one run."""
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait() == code, said
    assert "resume" in said
    [(stored,)] = rows(workspace, "select count(*) from units where status = 'done'")
    done = qualgate("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    [(units, runs)] = rows(workspace, "select count(*), count(distinct run_id) from units where status = 'done'")
    assert 0 < stored < units
    assert (units, runs) == (3 * len((workspace / "echo.jsonl").read_text().splitlines()), 1)
