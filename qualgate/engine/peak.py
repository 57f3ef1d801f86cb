"""The most memory that was held while something ran: by this process, with its libraries and whatever else it has
loaded, and of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qualgate.engine.device import Device

STATUS, MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FROM_HERE_ON = "5"  # what Linux is told to forget the peak so far
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes; 0 where the system does not tell: a peak that an earlier arm left would be none of this one's."""

    resident: int = 0
    device: int = 0


def with_peak(work: Callable[[], T], device: Device) -> tuple[T, Peak]:
    """What `work` gives, and the most that was held at once until then. Raises what it raises."""
    marked = _mark(device)
    given = work()
    return given, Peak(resident=_resident() if marked else 0, device=_on_device(device))


def _mark(device: Device) -> bool:
    if device == "cuda":
        import torch

        if torch.cuda.is_available():  # else loading says what is wrong
            for gpu in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(gpu)
    try:
        MARK.write_text(FROM_HERE_ON, encoding="ascii")
    except OSError:
        return False
    return True


def _resident() -> int:
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
