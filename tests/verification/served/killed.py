"""The row `killed`: `qualgate run` against a server, killed by signal 9 time and again, over a file and PostgreSQL.

Each run is killed at several drawn moments and started again by the same command; the next kill counts from there. What
"received" means: see `recording_server.Noted`. After every kill each received answer is in the store, as it was sent;
none is asked again; and in the end answers, scores and verdict are those of the run that nothing disturbs.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qualgate.store.database import open_store
from tests.benchmarks.shape import told
from tests.gated_model import write_evalset
from tests.verification.goals import SERVED
from tests.verification.served.recording_server import Noted, answer_of, recording
from tests.verification.service.disturbed import ANSWERS, ENDS, Ground, stop, until
from tests.verification.service.stores import KINDS, kinds_of_stores

CASES, AT_ONCE, ARMS = 300, 8, 2
SECONDS = 0.02  # until an answer comes
KILLS = 10  # of one run
MOMENTS = 100  # of each kind of store
GATE_FILE = """\
version: 1
baseline: {{endpoint: '{0}', model: m, concurrency: {1}, stream: false}}
variants: {{v: {{endpoint: '{0}', model: v, concurrency: {1}, stream: false}}}}
evalsets: [./named.yaml]
gate: {{noise_floor: false, rules: [{{metric: exact_match, max_drop: 0.10}}]}}
workers: {{backend: local, count: 1}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Of one run: how often it was killed, and what was wrong. unstored: received answers that were not in the store
    after a kill, or not as they were sent; again: received answers that were asked again; under_way: answers that were
    asked again and had not been received, at most AT_ONCE a kill; otherwise: answers, scores, verdict of the end."""

    store: str
    seed: int
    kills: int
    unstored: int
    again: int
    under_way: int
    otherwise: int

    @property
    def holds(self) -> bool:
        return not (self.unstored or self.again or self.otherwise) and self.under_way <= AT_ONCE * self.kills


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: one run over a file, killed three times, of fewer cases."""
    cases, moments, kills = (60, 3, 3) if quick else (CASES, MOMENTS, KILLS)
    wanted = ("file",) if quick else KINDS
    found: list[Killed] = []
    with tempfile.TemporaryDirectory() as name, kinds_of_stores(wanted) as stores:
        alone = undisturbed(Path(name) / "alone", cases)
        for kind in told("served", [kind for kind in wanted if kind in stores], lambda kind: f"killed, {kind}"):
            left, seed = moments, 0
            while left > 0:
                folder = Path(name) / f"{kind}-{seed}"
                found.append(kill_and_compare(folder, stores[kind](), kind, seed, cases, min(kills, left), alone))
                print(f"served: {found[-1]}", file=sys.stderr, flush=True)
                left, seed = left - found[-1].kills, seed + 1
    wrong = {what: sum(getattr(one, what) for one in found) for what in ("unstored", "again", "otherwise")}
    measured = {"moments": sum(one.kills for one in found), **wrong, "under way": sum(one.under_way for one in found)}
    few = f"{measured['moments']} moments, {', '.join(stores)}" if quick or not set(KINDS) <= set(stores) else None
    return [asdict(one) for one in found], [
        SERVED.row("killed", measured, met=all(one.holds for one in found), few=few)
    ]


def undisturbed(folder: Path, cases: int) -> Mapping[str, Any]:
    """What the run says that nothing disturbs."""
    with recording(0.0) as server:
        ground = ground_at(folder, f"sqlite:///{folder / 'alone.db'}", server, cases)
        assert begun(ground).wait() in ENDS, ground.last_words()
        assert set(server.asked.values()) == {1}
        assert len(server.asked) == ARMS * cases
        return evidence(ground)


def kill_and_compare(
    folder: Path, url: str, kind: str, seed: int, cases: int, kills: int, alone: Mapping[str, Any]
) -> Killed:
    """Kill a run so often at moments that the seed draws, and let it end."""
    draw, unstored, killed = random.Random(f"{kind} {seed}"), 0, 0
    with recording(SECONDS) as server:
        ground = ground_at(folder, url, server, cases)
        while killed < kills:
            process = begun(ground)
            left = ARMS * cases - server.sent
            goal = server.sent + draw.randrange(max(1, 2 * left // (kills - killed + 1)))
            until(lambda goal=goal, process=process: server.sent >= goal or process.poll() is not None)
            time.sleep(draw.uniform(0.0, 2 * SECONDS))
            if process.poll() is not None:
                break
            kill(process, whole_group=draw.random() < 0.5)
            killed += 1
            unstored += len(unstored_answers(ground, server))
            with server.lock:  # what was under way may be asked again
                server.under_way.clear()
        ground.to_the_end(begun(ground))
        again = len(server.again)
        once_more = sum(count - 1 for count in server.asked.values()) - again
    here = evidence(ground)
    otherwise = sum(here[what] != alone[what] for what in alone)
    return Killed(
        store=kind, seed=seed, kills=killed, unstored=unstored, again=again, under_way=once_more, otherwise=otherwise
    )


def ground_at(folder: Path, url: str, server: Noted, cases: int) -> Ground:
    folder.mkdir()
    names = [f"c{number:05d}" for number in range(cases)]
    rows = [{"id": name, "task": "t", "prompt": f"say {name}", "max_new_tokens": 4, "answer": name} for name in names]
    write_evalset(folder, rows, "named")
    (folder / "gate.yaml").write_text(GATE_FILE.format(server.address, AT_ONCE))
    open_store(url).close()
    return Ground(folder, url)


def begun(ground: Ground) -> subprocess.Popen[str]:
    return ground.start("run", "gate.yaml", program="qualgate")


def kill(process: subprocess.Popen[str], *, whole_group: bool) -> None:
    """The coordinator alone, or with all that it started; returns when none of them is left."""
    if whole_group:
        stop(process)
    else:
        process.kill()
        process.wait()
    until(lambda: not _alive(process.pid))


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def unstored_answers(ground: Ground, server: Noted) -> set[tuple[str, str]]:
    """Received answers that the store does not hold as they were sent."""
    rows = ground.asked("SELECT arm, case_id, text FROM units WHERE status = 'done'")
    stored = {({"baseline": "m"}.get(arm, arm), f"say {case}", text) for arm, case, text in rows}
    with server.lock:
        return {question for question in server.received if (*question, answer_of(*question)) not in stored}


def evidence(ground: Ground) -> dict[str, Any]:
    """Answers with their scores, and the newest verdicts with their numbers."""
    words = "SELECT variant, word FROM verdicts WHERE verdict_id IN (SELECT max(verdict_id) FROM verdicts)"
    runs = "SELECT count(*), sum(attempts), max(attempts) FROM units"
    return {"answers": ground.asked(ANSWERS), "verdict": ground.asked(words), "attempts": ground.asked(runs)}
