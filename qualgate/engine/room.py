"""How much memory keys and values may take, out of what is free now; and how to recognize a lack of memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SHARE = 0.25  # of free memory: other workers and logits need the rest
SHARE_OF_GPU = 0.8  # weights are loaded, and nobody else is there
LEAST = 2**26  # bytes, the least that answers need
MEMORY = Path("/proc/meminfo")
CGROUPS = tuple(  # a container's limit, usage, and statistics (with its page cache)
    (folder / most, folder / used, folder / "memory.stat")
    for folder, most, used in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
)


def room(in_use: int = 0, device: torch.device | None = None) -> int:
    """Bytes for one process's keys and values. in_use: what they take already; device: the CPU by default."""
    if device is not None and device.type == "cuda":
        import torch

        lies_idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # what torch had and kept
        return max(LEAST, int(SHARE_OF_GPU * (torch.cuda.mem_get_info(device)[0] + lies_idle + in_use)))
    return max(LEAST, int(SHARE * (free() + in_use)))


def is_short(error: Exception) -> bool:
    """Return whether an error means lack of memory. torch has a class for it on GPUs only."""
    cpu_short = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    return cpu_short or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def free() -> int:
    """Return the bytes that this process can still take, as far as the machine tells; otherwise LEAST / SHARE."""
    limits: list[int] = []
    with suppress(OSError, ValueError, IndexError):  # other systems tell nothing
        lines = MEMORY.read_text(encoding="ascii").splitlines()
        limits += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    for limit, used, parts in CGROUPS:
        with suppress(OSError, ValueError):  # none, or "max"
            free = int(limit.read_text(encoding="ascii")) - int(used.read_text(encoding="ascii"))
            limits.append(free)
            lines = parts.read_text(encoding="ascii").splitlines()
            limits[-1] = free + sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return max(0, min(limits, default=int(LEAST / SHARE)))
