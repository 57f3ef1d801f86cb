"""A node of a Ray cluster: its check, and the actor that keeps one engine's process.

The engine runs in a child of the actor, spawned as in the local pool: answers, times and memory are measured without
Ray's threads, and if an engine is killed, the actor survives to report it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from qualgate.records import Job
from qualgate.records.identity import own_version
from qualgate.workers.pool import Body, ended, spawn
from qualgate.workers.unit import WorkerSettings


@dataclass(frozen=True, slots=True)
class Seen:
    """The check of one node: what is missing, why the coordinator's folder is, and qualgate's version."""

    missing: tuple[str, ...]
    unshared: str
    version: str


def look(reads: Sequence[str], shared: str, token: str) -> Seen:
    """Check a node. reads: paths that engines read here. shared: the folder where the coordinator has left a file
    `token`, and reads what is left here."""
    try:
        unshared = "" if (Path(shared) / token).read_text() == token else "another file stands there"
        (Path(shared) / f"{token}.{secrets.token_hex(8)}").touch(exist_ok=False)
    except OSError as error:
        unshared = (error.strerror or str(error)).lower()
    return Seen(tuple(path for path in reads if not os.path.exists(path)), unshared, own_version())


class Engine:
    """The actor: one engine's process, and the connection to it. Its methods run in two threads."""

    def __init__(self, body: Body, settings: WorkerSettings) -> None:
        with _without_main():
            self._process, self._pipe = spawn(body, settings)

    def here(self) -> None:
        """Return once the actor has its place."""

    def take(self, jobs: tuple[Job, ...]) -> None:
        """Hand jobs on. If the process is dead, `messages` reports it."""
        try:
            self._pipe.send(jobs)
        except OSError:
            return

    def messages(self) -> Iterator[bytes | str]:
        """Yield all messages of the process, pickled; at last, as text, how it ended."""
        while True:
            try:
                message = self._pipe.recv_bytes()
            except (EOFError, OSError):
                break
            yield message
        self._process.join()
        yield ended(self._process)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide Ray's main module, which a spawned process would import: seconds and memory for nothing."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
