"""Row `resume`: a run is killed, all its processes with it, when 99 % of its answers are in the store, and run again.

A model made small answers for real: what is timed is all that `qualgate run` does before the next answer, from the
process's first instruction until that answer is in the store.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.verification.goals import SERVICE
from tests.verification.service.disturbed import ENDS, PATIENCE, Ground, stop, until, workspace

UNITS, UNITS_QUICK, ARMS = 20_000, 600, 3
SHARE, SHARE_QUICK = 0.99, 0.9  # stored when it is killed
AGAIN, LONGEST = 0.01, 5.0  # generated from then on, at most; s
PROGRAM = "qualgate"


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: few units, killed earlier, without a verdict."""
    cases = -(-(UNITS_QUICK if quick else UNITS) // ARMS)
    count = cases * ARMS
    few = f"{count:,} units" if quick else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ground = Ground(workspace(folder, cases), f"sqlite:///{folder / 'qualgate.db'}")
        found = resumed(ground, count, SHARE_QUICK if quick else SHARE)
    met = found["generated after it"] <= AGAIN * count and found["first answer, s"] < LONGEST and not found["lost"]
    return [], [SERVICE.row("resume", found, met=met, few=few, by_chance=not found["lost"])]


def resumed(ground: Ground, count: int, share: float, clock: Callable[[], float] = time.monotonic) -> dict[str, float]:
    """What the second process generated, so the most that was generated twice, and when it had its first answer
    stored."""
    first = ground.start("run", "gate.yaml", program=PROGRAM)
    until(lambda: ground.answers() >= share * count or first.poll() is not None)
    assert first.poll() is None, "the run ended before it could be killed"
    stop(first)
    stored, began = ground.answers(), clock()
    second = ground.start("run", "gate.yaml", program=PROGRAM)
    until(lambda: ground.answers() > stored or second.poll() is not None)
    took = clock() - began
    assert second.wait(PATIENCE) in ENDS, ground.last_words()
    said = (ground.folder / "said-1").read_text().splitlines()
    events = [json.loads(line) for line in said if line.startswith("{")]
    made = [re.search(r"([\d,]+) answers?,", one["message"]) for one in events if one.get("event") == "answered"]
    return {
        "stored at the kill": stored,
        "generated after it": sum(int(one[1].replace(",", "")) for one in made if one),
        "lost": count - ground.answers(),
        "first answer, s": took,
        "whole, s": clock() - began,
    }
