"""Goals of the sandbox and of pass rate: the escape suite at 1, 8 and 32 at once, forgeries, real rows, overhead."""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.sandbox import Sandbox, probe
from qualgate.scoring.code import METRIC, score_code
from tests.verification.escapes import kernel_memory
from tests.verification.escapes.exhausting import LIMITS, judged
from tests.verification.escapes.ground import ground
from tests.verification.escapes.hostile import ESCAPES, EXHAUSTING, FORGERIES
from tests.verification.escapes.mutants import mutants
from tests.verification.escapes.overhead import Pair, busy_seconds, is_quiet, overhead
from tests.verification.escapes.solutions import broken, solution
from tests.verification.escapes.suite import escapes, forgeries
from tests.verification.goals import SANDBOX, SCORING


def rows(quick: bool, data: Path) -> list[dict[str, Any]]:
    """The goal rows. data: the folder that holds humaneval/ and mbpp/. quick: slices, which meet no goal."""
    sandbox = Sandbox.best()
    if sandbox is None:
        return [SCORING.not_run(id, str(probe())) for id in SANDBOX]
    part = "a slice" if quick else None
    found = [_escape_row(sandbox, count, part) for count in (1, 8, 32)]
    found.append(_exhausted_row(sandbox, tuple(EXHAUSTING)[:: 5 if quick else 1], part))
    found.append(_kernel_row(sandbox, kernel_memory.NAMES[:: 8 if quick else 1], part))
    found.append(_overhead_row(sandbox, 5 if quick else 40, part))
    found.append(_mutants_row(sandbox, 100 if quick else 10_000, part))
    tried = tuple(FORGERIES)[:: 8 if quick else 1]
    forged = forgeries(sandbox, tried)
    found.append(SCORING.row("forgeries", f"{len(forged)} of {len(tried)} accepted", met=not forged, few=part))
    step = 20 if quick else 1
    for name, path in (("humaneval", "humaneval/HumanEval.jsonl"), ("mbpp", "mbpp/mbpp.jsonl")):
        if not (data / path).exists():
            found += [SCORING.not_run(id, f"no {path}") for id in SANDBOX if id.startswith(name)]
            continue
        read = [json.loads(line) for line in (data / path).read_text(encoding="utf-8").splitlines()][::step]
        failed = [row["task_id"] for row in read if not score_code(row, solution(row), sandbox=sandbox)[METRIC].verdict]
        said = f"{len(read) - len(failed)} of {len(read)} pass"
        found.append(SCORING.row(f"{name}.reference", said, met=not failed, few=part))
        if name == "humaneval":
            faults = [fault for row in read for fault in broken(row, sandbox, random.Random(row["task_id"]))]
            found.append(
                SCORING.row("humaneval.broken", f"{len(faults)} misjudged: {faults[:3]}", met=not faults, few=part)
            )
    return sorted(found, key=lambda row: list(SANDBOX).index(row["id"]))


def _escape_row(sandbox: Sandbox, at_once: int, part: str | None) -> dict[str, Any]:
    faults = escapes(sandbox, at_once, names=tuple(ESCAPES)[:: 4 if part else 1], mutants=8 if part else 8 * at_once)
    return SCORING.row(f"escape.{at_once}", f"{len(faults)} faults: {faults[:3]}", met=not faults, few=part)


def _exhausted_row(sandbox: Sandbox, names: tuple[str, ...], part: str | None) -> dict[str, Any]:
    """On a machine with other work, wall time is that work's: only a quiet one can miss the goal by it."""
    began, busy = time.monotonic(), busy_seconds()
    found = {name: judged(name, sandbox) for name in names}
    quiet = is_quiet((busy_seconds() - busy) / (time.monotonic() - began))
    excused = [name for name, one in found.items() if one.score.verdict is not False]
    most = {
        "right": excused,
        "judge MB": max(one.judge for one in found.values()) >> 20,
        "grown MB": max(one.grown for one in found.values()) >> 20,
        "wall limits": max(one.seconds for one in found.values()) / LIMITS.wall_seconds,
        "quiet": quiet,
    }
    met = not excused and most["judge MB"] <= 300 and (most["wall limits"] <= 2 or not quiet)
    return SCORING.row("judge.exhausted", most, met=met, few=part)


def _kernel_row(sandbox: Sandbox, names: tuple[str, ...], part: str | None) -> dict[str, Any]:
    peaks = {name: kernel_memory.taken(name, sandbox.tier.name) for name in names}
    if None in peaks.values():
        return SCORING.not_run("kernel.memory", "no cgroup may be made here, which could count it")
    most = max(peaks, key=lambda name: peaks[name] or 0)
    limits = (peaks[most] or 0) / kernel_memory.LIMITS.memory_bytes
    return SCORING.row("kernel.memory", {"limits": round(limits, 2), "by": most}, met=limits <= 1.5, few=part)


def _mutants_row(sandbox: Sandbox, count: int, part: str | None) -> dict[str, Any]:
    if sandbox.tier.name != "A":
        return SCORING.not_run("escape.mutants", "in tier B, which starts no processes, each takes a sandbox: escape.8")
    tight = replace(sandbox, limits=replace(sandbox.limits, memory_bytes=2**28))
    faults: list[str] = []
    with ground() as (place, changed):
        for at in range(0, count, 50):
            faults += mutants(range(at, at + 50), tight, place)[1]
    faults += changed
    return SCORING.row("escape.mutants", f"{len(faults)} faults: {faults[:3]}", met=not faults, few=part)


def _overhead_row(sandbox: Sandbox, count: int, part: str | None) -> dict[str, Any]:
    """The median wall time of `count` pairs taken while the machine was quiet, which may not come."""
    pairs: list[Pair] = []
    while sum(pair.quiet for pair in pairs) < count and len(pairs) < 10 * count:
        pairs.append(overhead(sandbox))
    walls = sorted(1000 * pair.wall for pair in pairs if pair.quiet)
    if len(walls) < count:
        reason = f"{len(walls)} of {len(pairs)} pairs found the machine quiet, {count} are needed"
        return SCORING.not_run("sandbox.overhead", reason)
    median = statistics.median(walls)
    spread = [round(walls[count // 10]), round(walls[-1 - count // 10])]
    return SCORING.row("sandbox.overhead", round(median, 1), met=median <= 40, spread=spread, few=part, by_chance=True)
