"""Answers that would exhaust whoever judges them: what judging them took."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.records import Score
from qualgate.sandbox import Limits, Sandbox, killable
from qualgate.scoring.code import METRIC, score_code
from tests.verification.escapes.hostile import EXHAUSTING

LIMITS = Limits(cpu_seconds=2, wall_seconds=4, memory_bytes=2**28)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One answer."""

    score: Score
    seconds: float
    grown: int  # bytes that this process holds more than before, at its peak
    judge: int  # bytes that the judge held at its peak; 0: it was ended


def judged(name: str, sandbox: Sandbox, limits: Limits = LIMITS) -> Judged:
    tests, program = EXHAUSTING[name]
    limited = replace(sandbox, limits=limits)
    killable.dismiss()
    score_code({"tests": "assert f(1) == 1", "entry_point": "f"}, "def f(x): return x", sandbox=limited)
    before, start = _peak(os.getpid()), time.monotonic()
    score = score_code({"tests": tests, "entry_point": "f"}, program, sandbox=limited)[METRIC]
    seconds = time.monotonic() - start
    peaks = [_peak(one.process.pid) for children in killable._waiting.values() for one in children]
    return Judged(score=score, seconds=seconds, grown=_peak(os.getpid()) - before, judge=max(peaks, default=0))


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
