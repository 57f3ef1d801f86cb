"""Row `resume`: a run is killed, all its processes with it, when 99 % of its answers are in the store, and run again.

A model made small answers for real: what is timed is all that `qualgate run` does before the next answer, from the
process's first instruction until that answer is in the store.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.gated_model import write_evalset
from tests.tiny_models import END, save_tiny_model
from tests.verification.goals import SERVICE

UNITS, UNITS_QUICK, ARMS = 20_000, 2_000, 4
SHARE, SHARE_QUICK, AGAIN, LONGEST = (
    0.99,
    0.9,
    0.01,
    5.0,
)  # stored when it is killed; generated from then on, at most; s
LOOK = 0.02  # s between two looks into the store
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  same: {model: ./model, dtype: float32}
  int8: {quantize: int8}
  int4: {quantize: {method: int4, group_size: 32}}
evalsets: [./echo.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1}
"""


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: a tenth of the units, killed earlier, without a verdict."""
    count = UNITS_QUICK if quick else UNITS
    few = f"{count:,} units only (--quick)" if quick else None
    with tempfile.TemporaryDirectory() as folder:
        found = resumed(_workspace(Path(folder), count // ARMS), count, SHARE_QUICK if quick else SHARE)
    met = found["generated after it"] <= AGAIN * count and found["first answer, s"] < LONGEST and not found["lost"]
    return [], [SERVICE.row("resume", found, met=met, unmet_because=few)]


def resumed(folder: Path, count: int, share: float, clock: Callable[[], float] = time.monotonic) -> dict[str, float]:
    """What the second process generated, so the most that was generated twice, and when it had its first answer
    stored."""
    first = _run(folder)
    while (stored := _stored(folder)) < share * count:
        assert not _ends(first), "the run ended before it could be killed"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    stored, began = _stored(folder), clock()
    second, took = _run(folder), 0.0
    while not took and not _ends(second):
        if _stored(folder) > stored:
            took = clock() - began
    said = second.communicate()[1]
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    made = [re.search(r"([\d,]+) answers?,", one["message"]) for one in events if one.get("event") == "answered"]
    assert second.returncode in (0, 10, 11, 12), said
    return {
        "stored at the kill": stored,
        "generated after it": sum(int(one[1].replace(",", "")) for one in made if one),
        "lost": count - _stored(folder),
        "first answer, s": took,
        "whole, s": clock() - began,
    }


def _run(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml"],
        cwd=folder,
        env=os.environ | {"QUALGATE_LOG": "json"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _ends(process: subprocess.Popen[str]) -> bool:
    """Whether it does within LOOK seconds: who asked without a pause would take one of two cores from what is timed."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(LOOK)
    return process.returncode is not None


def _stored(folder: Path) -> int:
    """Answers in the store; 0 while there is none."""
    if not (folder / "qualgate.db").is_file():
        return 0
    with closing(sqlite3.connect(f"file:{folder / 'qualgate.db'}?mode=ro", uri=True, timeout=30)) as connection:
        try:
            return connection.execute("SELECT count(*) FROM units WHERE status = 'done'").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def _workspace(folder: Path, cases: int) -> Path:
    save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END])
    rows = [
        {"id": f"c{number:05d}", "task": "echo", "prompt": f"case {number}", "max_new_tokens": 2, "answer": "x"}
        for number in range(cases)
    ]
    write_evalset(folder, rows)
    (folder / "gate.yaml").write_text(GATE_FILE)
    return folder
