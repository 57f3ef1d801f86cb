"""What the command line left in the store, and workspaces made larger."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.gated_model import write_evalset


def rows(folder: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(folder / "qualgate.db")) as connection:
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
