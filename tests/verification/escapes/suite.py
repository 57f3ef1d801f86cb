"""The escape suite: hostile programs, their mutants and, beside them, honest ones, so many at once."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from qualgate.sandbox import Ended, Limits, Sandbox, SandboxFailed, killable
from qualgate.scoring.code import METRIC, score_code
from tests.verification.escapes.ground import SECRET, Ground, ground
from tests.verification.escapes.hostile import ESCAPES, FORGERIES, FORGERY_CASES, HONEST, HONEST_TESTS, TRIES
from tests.verification.escapes.mutants import mutated


def escapes(
    sandbox: Sandbox, at_once: int, *, names: Sequence[str] = tuple(ESCAPES), mutants: int = 0, wall: int = 0
) -> list[str]:
    """Every fault of the suite run `at_once`: hostile programs, forgeries (S12), their mutants (S16) and, beside them,
    honest programs (S17), which must not notice. wall: seconds that a hostile one may wait, 0: by `at_once`."""
    tight = Limits(cpu_seconds=2, wall_seconds=wall or max(4, 2 * at_once), memory_bytes=2**28)
    tight = replace(sandbox, limits=tight)
    honest = {name: text for name, text in HONEST.items() if sandbox.tier.name == "A" or "fork" not in text}
    patient = replace(sandbox, limits=replace(sandbox.limits, wall_seconds=60 + 10 * at_once))
    with ground() as (place, changed), ThreadPoolExecutor(at_once) as pool:
        waiting = []
        seeds = [(seed, mutated(seed)) for seed in range(mutants)]  # CPython 3.11 parses in one thread at a time
        for name in names if at_once == 1 else (*names, *names):
            waits = "timeout" in ESCAPES[name][1]  # the others end by themselves, however busy the machine
            limits = tight.limits if waits else replace(tight.limits, wall_seconds=patient.limits.wall_seconds)
            waiting.append(pool.submit(attempt, name, replace(sandbox, limits=limits), place))
        waiting += [pool.submit(_honest, name, text, patient) for name, text in honest.items()]
        waiting += [pool.submit(_secret_test, patient)]
        waiting += [pool.submit(_mutant, seed, text, tight, place) for seed, text in seeds]
        if at_once > 1:
            waiting += [pool.submit(forgeries, patient, (name,)) for name in tuple(FORGERIES)[::5]]
        faults = [fault for task in waiting for fault in task.result()]
        killable.dismiss()
    return faults + changed


def attempt(name: str, sandbox: Sandbox, place: Ground) -> list[str]:
    """The faults of one program of the suite."""
    text, may_end_by = ESCAPES[name]
    return _attacked(name, text, may_end_by, sandbox, place)


def _attacked(name: str, text: str, may_end_by: tuple[str, ...] | None, sandbox: Sandbox, place: Ground) -> list[str]:
    """may_end_by None: anything but a changed host, a secret or an overrun will do."""
    start, excused, ended, out = time.monotonic(), 0.0, "", ""
    try:
        with sandbox.interpreter() as inside:
            start = time.monotonic()
            try:
                reply = inside.ask({"op": "load", "args": [TRIES + text, []]})
                if "raised" not in reply:
                    reply = inside.ask({"op": "call", "name": "attack", "args": [place.folder, place.marker]})
                out = json.dumps(reply)
                ended = (
                    reply["raised"][0] if "raised" in reply else "" if reply.get("value") == ["l"] else f"did {reply}"
                )
            except Ended as error:
                ended = error.error_type
            out += inside.output
            excused = inside.paused + inside.starved
            if len(inside.output) > 4 * sandbox.limits.output_bytes:
                return [f"{name}: {len(inside.output)} characters of output kept"]
    except SandboxFailed as error:
        return [f"{name}: {error}"]
    over = time.monotonic() - start - excused - sandbox.limits.wall_seconds
    faults = [f"{name}: {over:.1f} s over its wall time"] if over > _crowd() else []
    faults += [f"{name}: a secret came out"] if SECRET in out else []
    if may_end_by is not None and ended and ended not in may_end_by:
        faults.append(f"{name}: {ended[:200]}")
    return faults


def _crowd() -> float:
    """How many threads of this machine want each of its CPUs, at least 1: what takes a second alone takes as many."""
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    return max(1.0, int(running) / (os.cpu_count() or 1), os.getloadavg()[0] / (os.cpu_count() or 1))


def _honest(name: str, text: str, sandbox: Sandbox) -> list[str]:
    score = score_code({"tests": HONEST_TESTS, "entry_point": "f"}, text, sandbox=sandbox)[METRIC]
    return [] if score.verdict else [f"S17 {name}: {score.error_type} {score.reason}"]


def _secret_test(sandbox: Sandbox) -> list[str]:
    """S13: what is expected is nowhere inside, however the program looks for it."""
    expected = uuid.uuid4().hex
    names = ("a search of memory", "a search of files", "a search of the command line", "reading ahead")
    faults = []
    for name in names:
        text = FORGERIES[name].replace("return 10 if b'10' in held else 0", "return held.decode(errors='replace')")
        tests = f"assert f(1) == {expected!r}\nassert {expected!r} not in str(f(2)) or f(3) == {expected!r}"
        score = score_code({"tests": tests, "entry_point": "f"}, text, sandbox=sandbox)[METRIC]
        if score.verdict or expected in score.reason.replace(f"'{expected}'", ""):
            faults.append(f"S13 {name}: it found what the tests expect")
    return faults


def _mutant(seed: int, text: str, sandbox: Sandbox, place: Ground) -> list[str]:
    return _attacked(f"S16 seed {seed}", text, None, sandbox, place)


def forgeries(sandbox: Sandbox, names: Sequence[str] = tuple(FORGERIES)) -> list[str]:
    """The forgeries that were not called wrong, against every kind of test."""
    accepted = []
    for name in names:
        for kind, case in FORGERY_CASES.items():
            score = score_code(case, FORGERIES[name], sandbox=sandbox)[METRIC]
            if score.verdict is not False:
                accepted.append(f"{name}, {kind}: {score.verdict} {score.error_type}")
    return accepted
