"""Cgroup of all processes of one sandbox, if this process may make one: the kernel limits their memory, including its
own (files, sockets, page tables). Elsewhere limits on what takes such memory must suffice.

cgroups(7): version 2, or version 1's memory controller. A cgroup is made below our own, or beside it if that one has
processes and so cannot pass its controllers on.
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
    """The cgroup of one sandbox."""

    folder: Path

    def within(self, command: list[str]) -> list[str]:
        """Return a command that starts `command` in the cgroup."""
        return ["/bin/sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.folder), *command]

    def out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process of it for memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counters = dict(line.split() for line in (self.folder / name).read_text().splitlines())
                return counters.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """Remove the cgroup once its processes are gone."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return os.rmdir(self.folder)
            except OSError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.001)


def make(memory_bytes: int) -> Cgroup | None:
    """Make a cgroup limited to `MORE` times `memory_bytes`, or return None if that is not allowed."""
    parent = _parent()
    return _made(parent, memory_bytes) if parent is not None else None


@functools.cache
def _parent() -> Path | None:
    """Return a folder in which a cgroup can be made and entered, found by making one; None if there is none."""
    for parent in _candidates():
        group = _made(parent, 2**30)
        if group is None:
            continue
        with contextlib.suppress(OSError):  # it may be made and yet not be moved into
            if (
                subprocess.run(group.within(["/bin/sh", "-c", ""]), stderr=subprocess.DEVNULL, check=False).returncode
                == 0
            ):
                group.remove()
                return parent
        group.remove()
    return None


def _candidates() -> list[Path]:
    """Return the folders of this process's cgroups, or their parents, that may pass control of memory on."""
    folders: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                cgroup = MOUNTED / path.lstrip("/")
                folders += [folder for folder in (cgroup, cgroup.parent) if _passes_memory_on(folder)]
            elif "memory" in controllers.split(","):
                folders.append(MOUNTED / "memory" / path.lstrip("/"))
    return folders


def _passes_memory_on(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.is_relative_to(MOUNTED) and "memory" in (folder / "cgroup.subtree_control").read_text().split()
    return False


def _made(parent: Path, memory_bytes: int) -> Cgroup | None:
    """Make a cgroup with a limit of memory, without swap; return None if that is not allowed."""
    try:
        cgroup = Cgroup(folder=Path(tempfile.mkdtemp(prefix="qualgate-", dir=parent)))
    except OSError:
        return None
    limit = str(int(MORE * memory_bytes))
    try:
        if (cgroup.folder / "memory.max").exists():
            (cgroup.folder / "memory.max").write_text(limit)
            with contextlib.suppress(OSError):  # where nothing is swapped
                (cgroup.folder / "memory.swap.max").write_text("0")
        else:
            (cgroup.folder / "memory.limit_in_bytes").write_text(limit)
    except OSError:
        cgroup.remove()
        return None
    return cgroup
