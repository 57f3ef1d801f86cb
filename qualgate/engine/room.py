"""How much memory keys and values may take: of what is free now, not of what there is; and how a lack of it shows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SHARE = 0.25  # of what is free: other workers, logits and whoever else is there take theirs
SHARE_OF_GPU = 0.8  # nobody else is there, and the weights are
LEAST = 2**26  # bytes, however little is said to be free: to answer at all
MEMORY = Path("/proc/meminfo")
CGROUPS = tuple(  # what a container may take, what it takes, and what of that is files' that were read and may go
    (folder / most, folder / used, folder / "memory.stat")
    for folder, most, used in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
)


def room(held: int = 0, device: torch.device | None = None) -> int:
    """Bytes for keys and values of one process, which holds so many already. device: where, the CPU by default."""
    if device is not None and device.type == "cuda":
        import torch

        lies_idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # what torch had and kept
        return max(LEAST, int(SHARE_OF_GPU * (torch.cuda.mem_get_info(device)[0] + lies_idle + held)))
    return max(LEAST, int(SHARE * (free() + held)))


def is_short(error: Exception) -> bool:
    """Whether memory was short. torch has a class for that of GPUs alone."""
    said = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    return said or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def free() -> int:
    """Bytes that this process may still take, as far as the machine tells; LEAST / SHARE where it does not."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = MEMORY.read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    for limit, used, parts in CGROUPS:
        with suppress(OSError, ValueError):  # none, or "max"
            free = int(limit.read_text(encoding="ascii")) - int(used.read_text(encoding="ascii"))
            found.append(free)
            lines = parts.read_text(encoding="ascii").splitlines()
            found[-1] = free + sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return max(0, min(found, default=int(LEAST / SHARE)))
