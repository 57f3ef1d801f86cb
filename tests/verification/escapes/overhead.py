"""What a sandbox costs over a plain Python, told only from a machine that was quiet meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from qualgate.sandbox import Sandbox, tiers
from qualgate.scoring.code import METRIC, score_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One sample, sandboxed less plain."""

    wall: float  # seconds
    busy: float  # CPUs of this machine at work meanwhile, ours among them

    @property
    def quiet(self) -> bool:
        """Whether there was a CPU for us: what is measured runs one process after the other."""
        return is_quiet(self.busy)


def is_quiet(busy: float) -> bool:
    """Whether so many busy CPUs, ours among them, left one for us."""
    return busy <= max(1.05, (os.cpu_count() or 1) - 0.7)


def overhead(sandbox: Sandbox) -> Pair:
    """Sandboxed: score_code of a one-line function against one assert, to its verdict and clean-up. Plain: the same
    Python (same options) started as a process with function and assert as its program."""
    text, tests = "def f(x):\n    return x + 1\n", "assert f(1) == 2"
    command = [*tiers.program(), text + tests]
    start, busy = time.perf_counter(), busy_seconds()
    subprocess.run(command, env={}, check=True, stdin=subprocess.DEVNULL)
    middle = time.perf_counter()
    assert score_code({"tests": tests, "entry_point": "f"}, text, sandbox=sandbox)[METRIC].verdict
    end = time.perf_counter()
    return Pair(wall=(end - middle) - (middle - start), busy=(busy_seconds() - busy) / (end - start))


def busy_seconds() -> float:
    """CPU seconds that this machine has spent on anything, in user and kernel mode."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
