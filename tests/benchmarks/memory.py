"""Peak memory of a process and all its descendants, sampled from /proc while it runs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a process and its descendants took."""

    exit: int
    seconds: float
    peak_rss: int  # bytes; pages that two processes share are counted twice
    peak_pss: int  # bytes; shared pages are divided among those who share them
    output: str  # stdout


def measure(command: Sequence[str], *, interval: float = 0.5) -> Measured:
    """Run `command` to its end, sampling the memory of its whole process tree every `interval` seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peaks = {"rss": 0, "pss": 0}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(interval):
            rss, pss = tree_memory(process.pid)
            peaks["rss"], peaks["pss"] = max(peaks["rss"], rss), max(peaks["pss"], pss)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - start
    ended.set()
    sampler.join()
    return Measured(
        exit=process.returncode, seconds=seconds, peak_rss=peaks["rss"], peak_pss=peaks["pss"], output=output
    )


def tree_memory(root: int) -> tuple[int, int]:
    """(RSS, PSS) in bytes of process `root` and its descendants; one that ends meanwhile counts as 0."""
    rss = pss = 0
    for pid in descendants(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:] if line.endswith("kB")}
        rss, pss = rss + kib["Rss"] * 1024, pss + kib["Pss"] * 1024
    return rss, pss


def descendants(root: int) -> list[int]:
    """Process `root` and those below it, as they are now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found
