"""A run that is disturbed, held against the same run left alone: what of it is lost, doubled or said otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import text

from qualgate.store.database import open_store
from tests.gated_model import write_evalset
from tests.tiny_models import END, save_tiny_model

ROOT = Path(__file__).parents[3]  # where a process finds `tests`
SCRIPTED = "tests.verification.service.scripted"
ENDS = (0, 10, 11, 12)  # the exit codes of a verdict
PATIENCE, LOOK = 300.0, 0.02  # s
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  same: {model: ./model, dtype: float32}
  int8: {quantize: int8}
evalsets: [./named.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
workers: {backend: local, count: 2}
"""
ANSWERS = (
    "SELECT arm, evalset, case_id, repeat, status, error, text, answer_sha256, metric, value, verdict FROM units "
    "LEFT JOIN scores ON scores.unit_id = units.unit_id ORDER BY 1, 2, 3, 4, 9"
)
VERDICTS = (  # the newest counts: a run that gave up before has its own
    "SELECT variant, word, policy_json, body_json FROM verdicts "
    "WHERE verdict_id IN (SELECT max(verdict_id) FROM verdicts GROUP BY run_id, variant) ORDER BY run_id, variant"
)
Found = TypeVar("Found")


def workspace(folder: Path, cases: int) -> Path:
    """A gate file whose answers are made by name, see `scripted`."""
    save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END])
    names = [f"c{number:05d}" for number in range(cases)]
    rows = [{"id": one, "task": "t", "prompt": f"say {one}", "max_new_tokens": 2, "answer": one} for one in names]
    write_evalset(folder, rows, "named")
    (folder / "gate.yaml").write_text(GATE_FILE)
    return folder


@dataclass(slots=True)
class Ground:
    """A workspace and a store for one disturbed run. left_alone: what the run says that nothing disturbs."""

    folder: Path
    url: str
    left_alone: Mapping[str, Any] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: str, program: str = SCRIPTED, **said: str) -> subprocess.Popen[str]:
        """A command of the scripted program, or of another, in a session of its own. said: to its environment."""
        found = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        notes = {"SCRIPTED_FOLDER": str(self.folder), "QUALGATE_LOG": "json", "PYTHONPATH": found}
        process = subprocess.Popen(
            [sys.executable, "-m", program, *words, "--store", self.url],
            cwd=self.folder,
            env=os.environ | notes | said,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"said-{len(self.processes)}").open("w"),
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, **said: str) -> subprocess.Popen[str]:
        """`qualgate run`, begun."""
        return self.start("run", "gate.yaml", **said)

    def to_the_end(self, begun: subprocess.Popen[str] | None = None, most: int = 20) -> None:
        """Run it as often as a user would who is told to, until one ends with a verdict. begun: the first of them."""
        for _ in range(most):
            if (begun or self.run()).wait(PATIENCE) in ENDS:
                return
            begun = None
        raise AssertionError(f"no verdict after {most} runs: {self.last_words()}")

    def answers(self) -> int:
        """In the store."""
        return self.asked("SELECT count(*) FROM units WHERE status = 'done'")[0][0]

    def grown(self, before: int, process: subprocess.Popen[str]) -> None:
        """Waits until there are more answers than before, or there will be no more."""
        until(lambda: self.answers() > before or process.poll() is not None)

    def asked(self, query: str) -> list[tuple[Any, ...]]:
        with open_store(self.url) as store, store.read() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def evidence(self) -> dict[str, Any]:
        """Answers with scores, verdicts, and the report's bytes without the run's name."""
        with open_store(self.url) as store, store.read() as connection:
            names = [row.run_id for row in connection.execute(text("SELECT run_id FROM runs"))]
            rows = [list(map(tuple, connection.execute(text(query)))) for query in (ANSWERS, VERDICTS)]
        reports = [_report(self.url, name).replace(name, "RUN") for name in names]
        return {"answers": rows[0], "verdicts": rows[1], "reports": reports}

    def differences(self) -> dict[str, int]:
        """From what is said where nothing disturbs: answers lost and doubled, verdicts or bytes of the report."""
        here, there = self.evidence(), self.left_alone
        mine, theirs = here["answers"], there["answers"]
        return {
            "lost": len(set(theirs) - set(mine)),
            "doubled": len(mine) - len(set(mine)) + len(set(mine) - set(theirs)),
            "otherwise": sum(here[what] != there[what] for what in ("verdicts", "reports")),
        }

    def last_words(self) -> str:
        """Of whoever spoke last."""
        said = [path.read_text() for path in sorted(self.folder.glob("said-*"), key=lambda path: path.stat().st_mtime)]
        return next((text[-500:] for text in reversed(said) if text), "")


def alone(folder: Path, cases: int) -> Ground:
    """The workspace, with what its run says where nothing disturbs it."""
    ground = Ground(workspace(folder, cases), f"sqlite:///{folder / 'alone.db'}")
    ground.to_the_end(most=1)
    return replace(ground, left_alone=ground.evidence())


def _report(url: str, name: str) -> str:
    from qualgate import load_report
    from qualgate.report.formats import rendered

    return rendered(load_report(url, name), "json")


def until(said: Callable[[], Found], patience: float = PATIENCE) -> Found:
    """What it says once it says something. AssertionError where it does not."""
    end = time.monotonic() + patience
    while not (found := said()):
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(LOOK)
    return found


def stop(process: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> None:
    """It and, where they are its group, all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, how)
        process.wait(PATIENCE)


def children(parent: int, word: str) -> list[int]:
    """Processes that this one started, whose command line holds the word."""
    found = list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            of = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if of == parent and word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, IndexError):  # it has ended
            continue
    return found


@contextmanager
def ground_like(base: Ground, folder: Path, url: str) -> Iterator[Ground]:
    """A new one over an empty store; what still runs on it ends with this."""
    folder.mkdir()
    for name in ("model", "named.yaml", "named.jsonl", "gate.yaml"):
        (folder / name).symlink_to(base.folder / name)
    open_store(url).close()
    ground = Ground(folder, url, base.left_alone)
    try:
        yield ground
    finally:
        for process in ground.processes:
            stop(process)
