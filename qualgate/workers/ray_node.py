"""A node of a Ray cluster: the check of what is there, and the actor that keeps one engine's process.

The engine is not in the actor's own process but in a child of it, the very process that the local pool spawns: answers,
times and memory are measured where Ray has no threads, and whatever kills an engine leaves someone who can say so.
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

from qualgate.identity import own_version
from qualgate.records import Job
from qualgate.workers.pool import Body, ended, spawn
from qualgate.workers.unit import WorkerSettings


@dataclass(frozen=True, slots=True)
class Seen:
    """On one node: what is not there, why the coordinator's folder is not, and qualgate's version."""

    missing: tuple[str, ...]
    unshared: str
    version: str


def look(reads: Sequence[str], shared: str, token: str) -> Seen:
    """reads: paths that engines read here. shared: the folder where the coordinator has left a file `token`, and reads
    what is left here."""
    try:
        unshared = "" if (Path(shared) / token).read_text() == token else "another file stands there"
        (Path(shared) / f"{token}.{secrets.token_hex(8)}").touch(exist_ok=False)
    except OSError as error:
        unshared = (error.strerror or str(error)).lower()
    return Seen(tuple(path for path in reads if not os.path.exists(path)), unshared, own_version())


class Engine:
    """The actor: one engine's process, and the way to it and back. Its methods run side by side, in two threads."""

    def __init__(self, body: Body, settings: WorkerSettings) -> None:
        with _without_main():
            self._process, self._pipe = spawn(body, settings)

    def here(self) -> None:
        """Answers once the actor has its place."""

    def take(self, jobs: tuple[Job, ...]) -> None:
        """Hand jobs on. Where the process is dead, `told` says so."""
        try:
            self._pipe.send(jobs)
        except OSError:
            return

    def told(self) -> Iterator[bytes | str]:
        """All that the process says, pickled as it comes; at last, as text, how it ended."""
        while True:
            try:
                said = self._pipe.recv_bytes()
            except (EOFError, OSError):
                break
            yield said
        self._process.join()
        yield ended(self._process)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A spawned process imports its parent's main module, which is Ray's here: seconds and memory for nothing."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
