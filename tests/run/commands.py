"""The installed command line, and what it left in the store."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.gated_model import write_evalset


def qualgate(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qualgate", *arguments],
        capture_output=True, text=True, cwd=cwd, check=False, env={**os.environ, **options},
    )  # fmt: skip


def rows(folder: Path, query: str) -> list[tuple]:
    with sqlite3.connect(folder / "qualgate.db") as connection:
        return connection.execute(query).fetchall()


def spawned_workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def employ_two(workspace: Path) -> None:
    """A pool of two workers, in place of one."""
    file = workspace / "gate.yaml"
    file.write_text(file.read_text().replace("count: 1", "count: 2"))


def grow(workspace: Path, copies: int) -> None:
    """The same cases several times over, under new ids: a run long enough to be interrupted in."""
    cases = [json.loads(line) for line in (workspace / "echo.jsonl").read_text().splitlines()]
    write_evalset(
        workspace,
        [{**case, "id": f"{case['id']}-{copy}", "cluster": case["id"]} for copy in range(copies) for case in cases],
    )
