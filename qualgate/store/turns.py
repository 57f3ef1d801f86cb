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


@contextmanager
def turn(path: Path, seconds: float) -> Iterator[None]:
    """Inside the block nobody else that stands in this file's line writes to it. seconds: how long a turn is waited
    for; who holds it may be stopped."""
    try:
        line = os.open(path.with_name(f"{path.name}-turn"), os.O_CREAT | os.O_RDONLY, 0o666)
    except OSError:  # what is wrong with the folder SQLite says better
        yield
        return
    try:
        _stand(line, seconds)
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(line, fcntl.LOCK_UN)  # a forked child may have it open, too
        os.close(line)


def _stand(line: int, seconds: float) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the system's waiting has no limit: a thread waits for as long as it takes
        come = Event()
        Thread(target=_wait, args=(os.dup(line), come), daemon=True).start()
        come.wait(seconds)
    except OSError:  # a file system without such locks
        return


def _wait(line: int, come: Event) -> None:
    assert fcntl is not None
    fcntl.flock(line, fcntl.LOCK_EX)
    os.close(line)  # the turn lasts as long as the other one of the same opening, which may be over
    come.set()
