"""Locks that allow one process per run, and stop requests."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qualgate.errors import Exit, InfrastructureError, Interrupted, UsageError
from qualgate.store.database import Store


@contextmanager
def sole_coordinator(folder: Path, store: Store) -> Iterator[None]:
    """Hold the run's lock: a second process on the same run is refused, and a dead process loses its lock. It guards
    the folder on this machine, and with a shared store the run on all machines."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise UsageError(f"{folder.parent}: cannot be written ({error.strerror}); it holds what a run needs.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InfrastructureError(
                "another qualgate process is working on this very run; wait for it, or stop it and run again"
            ) from None
        with store.sole(folder.name):
            yield


@contextmanager
def sole_night(nightly: Path, now: str) -> Iterator[None]:
    """Hold a nightly file's lock: a second one is refused with the holder's name; a dead process loses its lock."""
    import fcntl

    path = nightly.with_name(f"{nightly.name}.lock")
    try:
        lock = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); it keeps two nights from overlapping."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read(200).strip() or "another process"
            raise InfrastructureError(
                f"{nightly}: a night is under way ({holder}); nothing was begun. Wait for it, or stop it and run again."
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()} since {now}")
        lock.flush()
        yield
        lock.truncate(0)


@contextmanager
def stop_requested() -> Iterator[Callable[[], signal.Signals | None]]:
    """Yield a function that returns the stop signal received so far, for a look between jobs. The first Ctrl-C or
    SIGTERM is such a request; a second Ctrl-C interrupts at once."""
    received: list[signal.Signals] = []

    def on_signal(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number))

    try:
        previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nothing to install, and nothing will be requested
        previous = {}
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def interrupted(received: signal.Signals | None, progress: str) -> Interrupted:
    """Return the error of a run that was asked to stop. progress: how much of it is done."""
    code = Exit.TERMINATED if received == signal.SIGTERM else Exit.INTERRUPTED
    return Interrupted(f"{progress}; run the same command again to resume", code)
