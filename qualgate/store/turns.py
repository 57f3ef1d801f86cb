"""Whose turn it is to write to a file, among the processes of its machine: first come, first served.

SQLite lets write who asks at the right moment. Of sixteen that ask again and again, one waits for seconds, and asking
takes a processor's time from whoever writes. Here they sleep in line on an empty file beside the store. It is an order
and no protection: SQLite's own lock is taken as well, and who cannot stand in line writes without it.
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


PATIENCE = 2.0  # s that a turn is waited for: sixteen that do nothing but write wait for 1
_LATE = dict[Path, Thread]()  # of each file, who still waits for a turn that nobody needs any more


@contextmanager
def turn(path: Path, seconds: float = PATIENCE) -> Iterator[None]:
    """Inside the block nobody else that stands in this file's line writes to it, unless a turn was not waited for any
    longer: a process that is stopped in line gets its turn, too, and holds it for as long as it is stopped. Until that
    line moves on nothing is written in turns."""
    late = _LATE.get(path)
    if fcntl is None or (late is not None and late.is_alive()):
        yield
        return
    try:
        line = os.open(path.with_name(f"{path.name}-turn"), os.O_CREAT | os.O_RDONLY, 0o666)
    except OSError:  # what is wrong with the folder SQLite says better
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
    """None once it is this one's turn, or there are no turns; else who still waits for it after so long."""
    assert fcntl is not None
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the system's waiting has no limit: a thread waits for as long as it takes
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
    os.close(line)  # the turn lasts as long as the other one of the same opening, which may be over
    come.set()
