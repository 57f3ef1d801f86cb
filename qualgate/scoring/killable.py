"""Work that may take too long, done where it can be ended: in a child process, one second of CPU time a job.

The child starts on first need and stays. A job is a function of a module's top level: its name goes over, and the
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
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

SECONDS = 1.0  # CPU time of one job
WALL_SECONDS = 60.0  # a child that neither answers nor works is ended, whatever stopped it
MAX_MEMORY = 2**30  # bytes of address space


class Killed(Exception):
    """The job was ended: out of time, out of memory, or its process died."""


class _Child:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from qualgate.scoring.killable import _serve; _serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._line()  # the interpreter is up: neither its start nor imports count as a job's time

    def ask(self, job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([job.__module__, job.__name__, arguments]).encode("ascii") + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # reading says how it ended
        answer = json.loads(self._line())
        if "failure" in answer:
            raise Killed(answer["failure"])
        return answer["result"]

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], WALL_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        if line.endswith(b"\n"):
            return line
        out_of_time = not readable or self.end() == -signal.SIGPROF
        self.end()
        raise Killed(f"more than {SECONDS:g} s of work" if out_of_time else "the process that did the work died")

    def end(self) -> int:
        """Its exit status; killed if need be."""
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
        return status


_child: _Child | None = None
_lock = threading.Lock()


def run(job: Callable[..., Any], *arguments: Any) -> Any:
    """What `job(*arguments)` returns, done in the child. Raises Killed if it is."""
    global _child
    with _lock:
        if _child is None or _child.owner != os.getpid():
            _child = _Child()
        try:
            return _child.ask(job, arguments)
        except Killed:
            if _child.process.poll() is not None:
                _child = None
            raise


@atexit.register
def _close() -> None:
    if _child is not None and _child.owner == os.getpid():
        _child.process.kill()
        _child.end()


def _serve() -> None:
    """The child's side: one job a line until there are no more."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        try:
            module, name, arguments = json.loads(line)
            function = getattr(importlib.import_module(module), name)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            answer = json.dumps({"result": function(*arguments)})
        except MemoryError:
            answer = json.dumps({"failure": f"more than {MAX_MEMORY >> 20} MiB of memory"})
        except RecursionError:
            answer = json.dumps({"failure": "it refers to itself too deeply"})
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(answer.encode("ascii") + b"\n")
        out.flush()
