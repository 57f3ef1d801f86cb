"""Measure the peak memory during some work: of this process, with everything that it has loaded, and of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qualgate.engine.device import Device

STATUS, MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FROM_HERE_ON = "5"  # resets the peak in Linux
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak memory in bytes; 0 if the system does not tell: the peak of an earlier arm must not count."""

    resident: int = 0
    device: int = 0


def with_peak(work: Callable[[], T], device: Device) -> tuple[T, Peak]:
    """Return the result of `work` and the peak memory during it. Raises what it raises."""
    marked = _mark(device)
    result = work()
    return result, Peak(resident=_resident() if marked else 0, device=_on_device(device))


def _mark(device: Device) -> bool:
    """Start a new measurement of peak memory; return whether this process's own can be measured (Linux only)."""
    if device == "cuda":
        import torch

        if torch.cuda.is_available():  # else loading says what is wrong
            for gpu in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(gpu)
    try:
        MARK.write_text(FROM_HERE_ON, encoding="ascii")
    except OSError:  # not on Linux, or not permitted
        return False
    return True


def _resident() -> int:
    """Return this process's peak resident bytes; 0 if the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


def _on_device(device: Device) -> int:
    if device != "cuda":
        return 0
    import torch

    return sum(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count())))
