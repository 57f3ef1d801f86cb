"""Row `kills`: real processes killed, stopped, cut off and starved in the middle of runs, over files and PostgreSQL,
and nodes of a Ray cluster lost.

Each trial is held against the run that nothing disturbs: no answer lost, none doubled, the same verdicts, the same
bytes of the report. Workers answer by script, all else is the program's own; a worker's 16 answers take 30 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.shape import told
from tests.postgresql import server
from tests.verification.goals import SERVICE
from tests.verification.service.cut_log import cut_log
from tests.verification.service.disturbed import ENDS, Ground, alone, children, ground_like, stop, until
from tests.verification.service.on_ray import lose_nodes
from tests.verification.service.scripted import POINTS
from tests.verification.service.stores import KINDS, kinds_of_stores

CASES, SEEDS = 400, 5
SPAWNED = "spawn_main"  # in the command line of a pool's workers
SLOW = "0.3"  # s a job: another comes before the run is over
SLOWER = "2"  # and its process begins before that, on a busy machine too


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many are killed, of each kind, in each of so many runs of a seed."""

    workers: int = 200
    coordinators: int = 20
    cuts: int = 20
    nodes: int = 5  # of a Ray cluster
    engines: int = 10  # on them
    seeds: int = SEEDS
    first: int = 0  # seed
    points: tuple[str, ...] = POINTS
    kinds: tuple[str, ...] = KINDS
    only: tuple[str, ...] = ()  # trials; (): all

    def of_seeds(self) -> range:
        return range(self.first, self.first + self.seeds)


FEW = Counts(workers=4, seeds=1, kinds=("file",), only=("R1 workers", "R11"))
Disturb = Callable[[Ground, random.Random], Any]


def measure(quick: bool, counts: Counts | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: a few workers alone, one seed, a file, without a verdict."""
    counts = counts or (FEW if quick else Counts())
    rounds = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name, kinds_of_stores(counts.kinds) as available:
        kinds = [kind for kind in counts.kinds if kind in available]
        (folder := Path(name) / "alone").mkdir()
        base = alone(folder, CASES)
        trials = [one for one in _trials(counts, kinds) if not counts.only or one[0] in counts.only]
        for what, kind, seed, disturb in told("service", trials, lambda trial: ", ".join(map(str, trial[:3]))):
            with ground_like(base, Path(name) / f"{len(rounds)}", available[kind]()) as ground:
                rounds.append({"trial": what, "store": kind, "seed": seed, **_tried(disturb, ground, f"{what} {seed}")})
                print(f"service: {rounds[-1]}", file=sys.stderr, flush=True)
    for seed in counts.of_seeds() if not counts.only or "R11" in counts.only else ():
        rounds.append({"trial": "R11", "store": "file", "seed": seed, **cut_log(seed, 20 if quick else 500)})
    wrong = {key: sum(one[key] for one in rounds) for key in ("lost", "doubled", "otherwise")}
    measured = {"trials": len(rounds), "killed": sum(one.get("killed", 0) for one in rounds), **wrong}
    few = "files alone, without PostgreSQL" if set(kinds) != set(Counts().kinds) else None
    few = f"{counts}" if counts not in (FEW, Counts()) else few
    few = "a few workers, one seed, a file" if quick else few
    return rounds, [SERVICE.row("kills", measured, met=not any(wrong.values()), few=few)]


def _tried(disturb: Disturb, ground: Ground, seed: str) -> dict[str, Any]:
    """killed: how many were; what differs then. A trial that did not go as it should is told, and the others go on."""
    try:
        return {"killed": disturb(ground, random.Random(seed)), **ground.differences()}
    except AssertionError as error:
        return {"killed": 0, "lost": 0, "doubled": 0, "otherwise": 1, "said": str(error)}


def _trials(counts: Counts, kinds: list[str]) -> Iterator[tuple[str, str, int, Disturb]]:
    for kind in kinds:
        for seed in counts.of_seeds():
            yield "R1 workers", kind, seed, partial(kill_workers, most=counts.workers)
            yield "R1 coordinators", kind, seed, partial(kill_coordinators, most=counts.coordinators)
            if kind == "postgresql":
                yield "R8 connections", kind, seed, partial(cut_connections, most=counts.cuts)
            yield "R13", kind, seed, partial(lose_nodes, nodes=counts.nodes, engines=counts.engines)
        for point in counts.points:
            yield f"R2 {point}", kind, 0, partial(die_at, point=point)
        yield "R4", kind, 0, ask_to_stop
        if kind == "file":
            yield "R5", kind, 0, fill_the_disk
        yield "R7", kind, 0, turn_the_clock
        yield "R14", kind, 0, poison


# ------------------------------------------------------------------------------------- what is done to a run; how often


def kill_workers(ground: Ground, rng: random.Random, most: int) -> int:
    """One after the other, whichever is there; the run is started again where it gave up on a job."""
    killed, process = 0, ground.run(SCRIPTED_SECONDS=SLOW)
    while killed < most and process.poll() not in ENDS:
        if process.poll() is not None:
            process = ground.run(SCRIPTED_SECONDS=SLOW)
        time.sleep(rng.uniform(0.0, 0.25))
        if there := children(process.pid, SPAWNED):
            _kill(rng.choice(sorted(there)))
            killed += 1
    ground.to_the_end(process)
    return killed


def kill_coordinators(ground: Ground, rng: random.Random, most: int) -> int:
    """Each a random while after it began to store, a few of them before."""
    for killed in range(most):
        process, before = ground.run(SCRIPTED_SECONDS=SLOW), ground.answers()
        if rng.random() < 0.8:
            ground.grown(before, process)
        time.sleep(rng.uniform(0.0, 0.1))
        if process.poll() is not None:
            ground.to_the_end(process)
            return killed
        stop(process)
    ground.to_the_end()
    return most


def die_at(ground: Ground, rng: random.Random, point: str) -> int:
    """The process that comes there kills itself; the next one resumes."""
    first = ground.run(SCRIPTED_DIES=point)
    first.wait(60)
    assert (ground.folder / point).exists(), ground.last_words()
    ground.to_the_end()
    return 1


def ask_to_stop(ground: Ground, rng: random.Random) -> int:
    """SIGTERM and Ctrl-C, once each: they end within 3 s, saying so; Ctrl-C twice: at once."""
    for how, times, code, most in (
        (signal.SIGTERM, 1, 143, 3.0),
        (signal.SIGINT, 1, 130, 3.0),
        (signal.SIGINT, 2, 130, 3.0),
    ):
        process, before = ground.run(SCRIPTED_SECONDS=SLOW), ground.answers()
        ground.grown(before, process)
        began = time.monotonic()
        for _ in range(times):
            process.send_signal(how)
        assert process.wait(60) == code, ground.last_words()
        assert time.monotonic() - began < most, f"{how.name}: it took {time.monotonic() - began:.1f} s to stop"
    ground.to_the_end()
    return 3


def fill_the_disk(ground: Ground, rng: random.Random) -> int:
    """No file may grow beyond what the store has once it was made and a little: the run ends with 13, says why, and
    goes on where there is room."""
    size = Path(ground.url.removeprefix("sqlite:///")).stat().st_size
    process = ground.run(SCRIPTED_BYTES=str(size + 700_000))
    assert process.wait(60) == 13, ground.last_words()
    assert "Free space" in ground.last_words(), ground.last_words()
    assert ground.asked("PRAGMA integrity_check") == [("ok",)]
    ground.to_the_end()
    return 0


def turn_the_clock(ground: Ground, rng: random.Random) -> int:
    """While a run is at work, others of the same gate file are refused, though their clocks are an hour off to either
    side; a process whose clock is wrong resumes it."""
    first = ground.run(SCRIPTED_SECONDS=SLOWER)
    until(lambda: ground.answers() > 0)
    for hours in ("-1", "0", "1"):
        assert ground.run(SCRIPTED_HOURS=hours).wait(60) == 13, "a second run beside the first was not refused"
    stop(first)
    ground.to_the_end(ground.run(SCRIPTED_HOURS="-1"))
    return 1


def poison(ground: Ground, rng: random.Random) -> int:
    """A case that kills every worker, three times: the others' answers are stored, nothing is approved, and without it
    the run goes on."""
    assert ground.run(SCRIPTED_POISON="c00007").wait(120) == 13, ground.last_words()
    status = dict(ground.asked("SELECT status, count(*) FROM units GROUP BY status"))
    assert status["error"] <= 3 * 16, "more than the poisoned jobs failed"
    assert set(status) == {"done", "error"}, status
    assert not ground.asked("SELECT 1 FROM verdicts WHERE word = 'approve'")
    ground.to_the_end()
    return 0


def cut_connections(ground: Ground, rng: random.Random, most: int) -> int:
    """All to the store at once, time and again; every tenth time the server goes down as by a crash."""
    process, cut = ground.run(SCRIPTED_SECONDS=SLOW), 0
    until(lambda: ground.answers() > 0)
    while process.poll() is None and cut < most:
        time.sleep(rng.uniform(0.05, 0.3))
        if cut % 10 == 9:
            server().stop("immediate")
            server().start()
        else:
            server().end_sessions(ground.url)
        cut += 1
    assert process.wait(120) in ENDS, ground.last_words()
    return cut


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def main() -> int:
    """By options: how many, which trials, which stores. Exit 1 where anything is lost, doubled or otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.verification.service.kills", description=__doc__)
    for name in ("workers", "coordinators", "cuts", "nodes", "engines", "seeds", "first"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Counts(), name))
    parser.add_argument("--kinds", nargs="+", default=Counts().kinds, choices=Counts().kinds)
    parser.add_argument("--only", nargs="+", default=(), metavar="TRIAL", help="such as 'R1 workers' R14")
    asked: dict[str, Any] = vars(parser.parse_args())
    asked |= {name: tuple(asked[name]) for name in ("kinds", "only")}
    rounds, [row] = measure(False, Counts(**asked))
    print(json.dumps({"rounds": rounds, "goals": [row]}, indent=2))
    return int(row["met"] is False)


if __name__ == "__main__":
    raise SystemExit(main())
