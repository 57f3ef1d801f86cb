"""Run work that may take too long in a child process, within bounds.

A child starts on first need and stays. A job is a function of a module's top level: its name goes over, and the
child imports that module before the job's time begins. The kernel ends it when a job's time is up (the default action
of SIGPROF), inside a regular expression too, and the next job starts another. CPU time, so that a busy machine changes
no verdict. Arguments and results are JSON. Where there are no interval timers the wall clock alone decides.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qualgate.sandbox import cgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a job."""

    cpu_seconds: float = 1.0
    wall_seconds: float = 60.0  # a child that neither answers nor works is ended, whatever stopped it
    memory_bytes: int = 2**30  # of address space
    tree_bytes: int = 0  # of memory, of the child and all it starts, if the kernel can limit it; 0: it starts nothing


ONE_SECOND = Bounds()


class Killed(Exception):
    """The job was ended: out of time, out of memory, or its process died. `kind`: timeout, memory, wall, died."""

    def __init__(self, reason: str, kind: str = "died") -> None:
        super().__init__(reason)
        self.kind = kind


class _Child:
    def __init__(self, bounds: Bounds) -> None:
        self.owner, self.bounds, self.answered = os.getpid(), bounds, True
        self._folder = tempfile.mkdtemp(prefix="qualgate-judge-")  # what it leaves when it is killed goes with it
        self._cgroup = cgroup.make(bounds.tree_bytes) if bounds.tree_bytes else None
        command = [sys.executable, "-c", "from qualgate.sandbox.killable import _serve; _serve()"]
        self.process = subprocess.Popen(
            self._cgroup.within(command) if self._cgroup else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": self._folder},
        )
        self._line()  # the interpreter is up: neither its start nor imports count as a job's time

    def ask(self, job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Have the child do a job; return its result. Killed if it exceeds a bound or ends."""
        assert self.process.stdin is not None
        self.answered = False
        bounds = [self.bounds.cpu_seconds, self.bounds.memory_bytes]
        try:
            line = json.dumps([job.__module__, job.__name__, bounds, arguments]).encode("ascii") + b"\n"
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # reading shows how it ended
        answer = json.loads(self._line())
        self.answered = True
        if "failure" in answer:
            raise Killed(answer["failure"], answer["kind"])
        return answer["result"]

    def _line(self) -> bytes:
        """Read the child's answer. Killed, after ending the child, if none comes in time."""
        assert self.process.stdout is not None
        poll = select.poll()  # select() cannot wait for files numbered over 1,023
        poll.register(self.process.stdout, select.POLLIN)
        readable = poll.poll(self.bounds.wall_seconds * 1000)
        line = self.process.stdout.readline() if readable else b""
        if line.endswith(b"\n"):
            return line
        out_of_memory = self._cgroup is not None and self._cgroup.out_of_memory()
        status = self.end()
        if not readable:
            raise Killed(f"more than {self.bounds.wall_seconds:g} s of wall time", "wall")
        if status == -signal.SIGPROF:
            raise Killed(f"more than {self.bounds.cpu_seconds:g} s of work", "timeout")
        if out_of_memory:
            raise Killed(f"more than {self.bounds.tree_bytes >> 20} MiB of memory", "memory")
        raise Killed("the process that did the work died")

    def end(self) -> int:
        """End the child, killed if need be; return its exit status."""
        try:
            status = self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass
        if self._cgroup:
            self._cgroup.remove()
        shutil.rmtree(self._folder, ignore_errors=True)
        return status


_waiting: dict[Bounds, list[_Child]] = {}  # for a job within these
_lock = threading.Lock()


def run(job: Callable[..., Any], *arguments: Any, within: Bounds = ONE_SECOND) -> Any:
    """Return `job(*arguments)`, run in a child. Raises Killed if it was ended."""
    with _lock:
        children = _waiting.setdefault(within, [])
        child = children.pop() if children else None
    if child is None or child.owner != os.getpid():
        child = _Child(within)
    try:
        return child.ask(job, arguments)
    finally:
        if child.process.poll() is None and child.answered:
            with _lock:
                _waiting.setdefault(within, []).append(child)
        elif child.process.poll() is None:  # we were interrupted: it would answer the next job with this one's result
            child.process.kill()
            child.end()


@atexit.register
def dismiss() -> None:
    """End the children that wait for a job; the next job starts another."""
    with _lock:
        waiting = [child for children in _waiting.values() for child in children if child.owner == os.getpid()]
        _waiting.clear()
    for child in waiting:
        child.process.kill()
        child.end()


def _serve() -> None:
    """Run the child's side: one job per line until there are no more."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        memory = 0
        try:
            module, name, (seconds, memory), arguments = json.loads(line)
            function = getattr(importlib.import_module(module), name)
            # Not a hard limit: what it starts has limits of its own.
            resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answer = json.dumps({"result": function(*arguments)})
        except MemoryError:
            answer = json.dumps({"failure": f"more than {memory >> 20} MiB of memory", "kind": "memory"})
        except RecursionError:
            answer = json.dumps({"failure": "it refers to itself too deeply", "kind": "depth"})
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(answer.encode("ascii") + b"\n")
        out.flush()
