"""Order the writers of a file among the processes of its machine: first come, first served.

SQLite's writers poll for the lock. Of sixteen of them one can wait for seconds, and polling takes processor time. Here
they sleep in a queue, a lock on an empty file beside the store. The queue is no protection: SQLite's own lock is taken
as well, and a process that cannot queue writes without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

try:
    import fcntl
except ImportError:  # Windows: SQLite's own waiting is all there is
    fcntl = None


PATIENCE = 2.0  # s to wait for a turn; sixteen processes that only write wait for 1 s
_LATE = dict[Path, Thread]()  # file → thread that still waits for an abandoned turn


@contextmanager
def turn(path: Path, seconds: float = PATIENCE) -> Iterator[None]:
    """Inside the block no other queued process writes to the file, unless the wait took longer than `seconds`. A
    stopped process can hold its turn for long; until the queue moves on, processes write without turns."""
    late = _LATE.get(path)
    if fcntl is None or (late is not None and late.is_alive()):
        yield
        return
    try:
        line = os.open(path.with_name(f"{path.name}-turn"), os.O_CREAT | os.O_RDONLY, 0o666)
    except OSError:  # SQLite reports faults of the folder better
        yield
        return
    try:
        if (late := _waiting(line, seconds)) is not None:
            _LATE[path] = late
        yield
    finally:
        fcntl.flock(line, fcntl.LOCK_UN)  # a forked child may have it open, too
        os.close(line)


def _waiting(line: int, seconds: float) -> Thread | None:
    """Wait for this process's turn; None once it has it, or without file locks. After `seconds` return the thread that
    still waits."""
    assert fcntl is not None
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # flock has no timeout, so a thread waits
        come = Event()
        thread = Thread(target=_wait, args=(os.dup(line), come), daemon=True)
        thread.start()
        return None if come.wait(seconds) else thread
    except OSError:  # a file system without such locks
        pass
    return None


def _wait(line: int, come: Event) -> None:
    assert fcntl is not None
    fcntl.flock(line, fcntl.LOCK_EX)
    os.close(line)  # the turn lasts until the original descriptor is closed, too
    come.set()
