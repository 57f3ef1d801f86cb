"""A cgroup for all that one sandbox starts, where this process may make one: its memory is limited by the kernel, which
counts its own memory too (files, sockets, tables of pages). Elsewhere limits on what takes such memory have to do.

cgroups(7): version 2, or version 1's memory controller. A cgroup may be made below our own, or beside it where that one
has processes and so cannot pass its controllers on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
MORE = 1.25  # of the limit: the watch, which can say what happened, is to come first
_PATIENCE = 2.0  # seconds: the last process may take a moment to be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """One that was made for one sandbox."""

    folder: Path

    def within(self, command: list[str]) -> list[str]:
        """The command, started in it."""
        return ["/bin/sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.folder), *command]

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process in it."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
                return counts.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """Once nothing is left in it."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return os.rmdir(self.folder)
            except OSError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.001)


def make(memory_bytes: int) -> Cgroup | None:
    """One limited to `MORE` times this, or None where that is not allowed."""
    parent = _parent()
    return _made(parent, memory_bytes) if parent is not None else None


@functools.cache
def _parent() -> Path | None:
    """In which one can be made, found by trying."""
    for parent in _candidates():
        made = _made(parent, 2**30)
        if made is None:
            continue
        with contextlib.suppress(OSError):  # it may be made and yet not be moved into
            if (
                subprocess.run(made.within(["/bin/sh", "-c", ""]), stderr=subprocess.DEVNULL, check=False).returncode
                == 0
            ):
                made.remove()
                return parent
        made.remove()
    return None


def _candidates() -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                own = MOUNTED / path.lstrip("/")
                found += [folder for folder in (own, own.parent) if _passes_memory_on(folder)]
            elif "memory" in controllers.split(","):
                found.append(MOUNTED / "memory" / path.lstrip("/"))
    return found


def _passes_memory_on(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.is_relative_to(MOUNTED) and "memory" in (folder / "cgroup.subtree_control").read_text().split()
    return False


def _made(parent: Path, memory_bytes: int) -> Cgroup | None:
    try:
        made = Cgroup(folder=Path(tempfile.mkdtemp(prefix="qualgate-", dir=parent)))
    except OSError:
        return None
    most = str(int(MORE * memory_bytes))
    try:
        if (made.folder / "memory.max").exists():
            (made.folder / "memory.max").write_text(most)
            with contextlib.suppress(OSError):  # where nothing is swapped
                (made.folder / "memory.swap.max").write_text("0")
        else:
            (made.folder / "memory.limit_in_bytes").write_text(most)
    except OSError:
        made.remove()
        return None
    return made
