"""Start one walled-in interpreter, ask it line by line, and end it with everything it began."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import secrets
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from qualgate.sandbox import tiers
from qualgate.sandbox.tiers import Tier

Role = Literal["answer", "witness", "program", "parsers"]
MAX_LINE = 8 * 2**20  # bytes of one reply
_CHUNK = 2**16
_WATCH = 0.02  # seconds between looks at memory and files
START_SECONDS = 60.0
PATIENCE = 10
_STILL = 1.0  # seconds: a longer step of the clock means that this process was stopped
_ENDING = 10.0  # seconds: on a busy machine the end of a process that was killed queues for a CPU, too
_PF_EXITING = 4  # of the kernel's flags of a task, from include/linux/sched.h
_MAX_FILES = 256  # in tier B's scratch folder, which no file system caps


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one sandbox. CPU time counts, so that a busy machine changes no verdict; wall time ends a program that
    waits for anything but a CPU."""

    cpu_seconds: int = 5  # of each process, and of all together
    wall_seconds: int = 30
    memory_bytes: int = 2**30  # of each process, and of all together
    processes: int = 32  # and threads; tier B: one process, twice as many threads
    file_bytes: int = 16 * 2**20  # of each file; tier A: of all in /tmp
    shm_bytes: int = 2**20  # tier A: of all in /dev/shm
    open_files: int = 32
    output_bytes: int = 2**20  # of standard output and error together


class SandboxFailed(OSError):
    """The sandbox, not the code in it, is at fault."""


class Ended(Exception):
    """The interpreter is gone, by its own doing or a limit's. `error_type`: timeout, memory, output, reply, exit."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


class Interpreter:
    """A fresh Python behind the wall of `tier`. A context manager: on leaving, nothing of it is left."""

    def __init__(
        self, tier: Tier, limits: Limits, role: Role, packages: str = "", runtime: tiers.Runtime | None = None
    ) -> None:
        """runtime: another interpreter than this one. SandboxFailed when it does not start."""
        self._tier, self._limits = tier, limits
        self._runtime = runtime or tiers.runtime(bool(packages))
        self._left, self._clock = START_SECONDS, time.monotonic()
        self._watched = self._clock
        self.paused = 0.0  # seconds in which this very process stood still, which do not count
        self.starved = 0.0  # seconds in which the interpreter could have run and no CPU was free: nor do they
        self._output, self._output_size = bytearray(), 0
        self._lines = bytearray()
        self._scratch = tempfile.mkdtemp(prefix="qualgate-") if tier.name == "B" else ""
        self._cpu_seconds = 0.0  # once it has ended by itself
        self._start(role, packages)
        try:
            if self._line().get("ready") is not True:
                raise SandboxFailed("the sandbox did not start")
            self._left = float(limits.wall_seconds)
        except Ended as error:
            printed = bytes(self._output[-300:]).decode("utf-8", "backslashreplace").strip()
            self.close()
            raise SandboxFailed(f"the sandbox did not start: {printed or error}") from None
        except BaseException:
            self.close()
            raise

    def _start(self, role: str, packages: str) -> None:
        """Start the interpreter with its pipes. packages: the folder of its wheels, "" without.

        SandboxFailed if it cannot start.
        """
        config = {
            "tier": self._tier.name,
            "role": role,
            "limits": asdict(self._limits),
            "uid": tiers.own_uid(),
            "machine": platform.machine(),
        }
        question_end, self._questions = os.pipe()
        self._replies, reply_end = os.pipe()
        self._printed, output_end = os.pipe()
        config["reply"] = reply_end
        inherited = [reply_end]
        if self._tier.name == "A":
            config |= {"packages": tiers.PACKAGES_INSIDE if packages else "", "scratch": self._runtime.scratch}
            command = tiers.bubblewrap(self._tier, [_start_from("/wall"), json.dumps(config)], self._runtime, packages)
            environment, folder = {}, "/"
        else:
            readable = [*self._runtime.files(), self._runtime.code, *([packages] if packages else [])]
            config |= {"readable": readable, "scratch": self._scratch, "packages": packages}
            command = [*self._runtime.command, _start_from(self._runtime.code), json.dumps(config)]
            environment, folder = {"PYTHONHASHSEED": "0", "HOME": self._scratch}, self._scratch
        try:
            self._process = subprocess.Popen(
                command,
                stdin=question_end,
                stdout=output_end,
                stderr=output_end,
                pass_fds=inherited,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            for fd in (self._questions, self._replies, self._printed):
                os.close(fd)
            self._remove_scratch()
            raise SandboxFailed(f"the sandbox did not start: {error}") from None
        finally:
            for fd in (question_end, output_end, *inherited):
                os.close(fd)
        for fd in (self._questions, self._replies, self._printed):
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def output(self) -> str:
        """Its output, up to the cap, with everything unprintable escaped."""
        return bytes(self._output).decode("utf-8", "backslashreplace")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to `message`, which must carry its nonce. Ended if none comes."""
        nonce = secrets.token_hex(8)
        reply = self.exchange(message | {"nonce": nonce})
        if reply.pop("nonce", None) != nonce:
            raise Ended("reply", "a reply that answers no question")
        return reply

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send `message`; return the next line."""
        self._clock = time.monotonic()  # what we do between questions is not the candidate's time
        try:
            return self._line(json.dumps(message).encode("ascii") + b"\n")
        except RecursionError:
            raise Ended("reply", "a value with too many levels") from None

    def _line(self, send: bytes = b"") -> dict[str, Any]:
        """Send bytes and return the next reply. Ended for what is no JSON object, or if none comes."""
        unsent = memoryview(send)
        while (end := self._lines.find(b"\n")) < 0:
            unsent = self._wait(unsent)
        line = bytes(self._lines[:end])
        del self._lines[: end + 1]
        try:
            message = json.loads(line, parse_float=_refused, parse_constant=_refused)
        except (ValueError, RecursionError):
            raise Ended("reply", "a reply that is not JSON") from None
        if not isinstance(message, dict):
            raise Ended("reply", "a reply that is not an object")
        return message

    def _wait(self, unsent: memoryview) -> memoryview:
        """Send and receive for one interval of the watch; return what is still unsent. Ended if a limit is exceeded."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        poll.register(self._printed, select.POLLIN) if self._printed >= 0 else None
        poll.register(self._questions, select.POLLOUT) if unsent else None
        ready = dict(poll.poll(_WATCH * 1000))
        elapsed = time.monotonic() - self._clock
        self._clock += elapsed
        self.paused += max(0.0, elapsed - _STILL)
        self._left -= min(elapsed, _STILL)
        if self._clock - self._watched >= _WATCH:  # also while it talks: a trickle of output would hide the rest
            self._watch()
            self._watched = time.monotonic()
        if self._left < 0 and not self._was_starved():
            raise Ended("timeout", f"no end within {self._limits.wall_seconds} s of wall time")
        if self._printed in ready:
            self._drain()
        if self._questions in ready:
            try:
                unsent = unsent[os.write(self._questions, unsent[:_CHUNK]) :]
            except OSError:  # the reader is gone; the replies show why
                unsent = memoryview(b"")
        if self._replies in ready:
            read = os.read(self._replies, _CHUNK)
            if not read:
                raise self._gone()
            self._lines += read
            if len(self._lines) > MAX_LINE:
                raise Ended("reply", f"a reply of more than {MAX_LINE} bytes")
        return unsent

    def _was_starved(self) -> bool:
        """Return whether wall time is left if the time spent queueing for a CPU does not count.

        It does not up to PATIENCE times the limit, so that a crowd of its own processes cannot keep it alive.
        """
        inner = self._lineage()[-1]
        waited = max((_queued(f"/proc/{inner}/task/{task}") for task in _tasks(inner)), default=0.0)
        added = min(waited, PATIENCE * self._limits.wall_seconds) - self.starved
        self._left += max(0.0, added)
        self.starved += max(0.0, added)
        return self._left >= 0

    def _lineage(self) -> list[int]:
        """Return the processes from ours down to the interpreter, as far as they exist."""
        pids = [self._process.pid]
        for _ in range(self._depth - 1):
            pids += _children(pids[-1])[:1]
        return pids[: self._depth]

    @property
    def _depth(self) -> int:
        return 3 if self._tier.name == "A" else 1  # bubblewrap, and the first process of its namespace

    def _drain(self) -> None:
        """Take what the program has printed, up to the limit, beyond which it is Ended."""
        read = os.read(self._printed, _CHUNK)
        if not read:
            os.close(self._printed)
            self._printed = -1
        self._output += read[: self._limits.output_bytes - len(self._output)]
        self._output_size += len(read)
        if self._output_size > self._limits.output_bytes:
            raise Ended("output", f"more than {self._limits.output_bytes} bytes of output")

    def _watch(self) -> None:
        """Raise Ended if the processes exceed limits: memory and CPU time in tier A, threads and files in tier B."""
        if self._tier.name == "A":
            memory, worked = _taken(self._process.pid)
            if memory > self._limits.memory_bytes:
                raise Ended("memory", f"more than {self._limits.memory_bytes} bytes of memory in all processes")
            if worked > self._limits.cpu_seconds:  # many could keep each other, and so all, waiting
                raise Ended("timeout", f"no end within {self._limits.cpu_seconds} s of CPU time of all processes")
            return
        pid, threads = self._process.pid, 2 * self._limits.processes
        tasks = _tasks(pid)
        if len(tasks) > threads:
            raise Ended("memory", f"more than {threads} threads")
        if _in_files(self._scratch, pid, tasks, self._limits.file_bytes) > self._limits.file_bytes:
            raise Ended("files", f"more than {_MAX_FILES} files or {self._limits.file_bytes} bytes")

    def _gone(self) -> Ended:
        """Return why the pipe of replies closed, once the process has ended or lives on."""
        ends = _exits(self._process.pid, within=1.0)
        if not ends and (len(down := self._lineage()) < self._depth or _exiting(down[-1])):
            ends = _exits(self._process.pid, within=_ENDING)
        if not ends:  # it closed the pipe and lives on
            return Ended("exit", "the pipe of replies was closed")
        code = self._reap()
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if self._cpu_seconds >= self._limits.cpu_seconds or number == signal.SIGXCPU:
            return Ended("timeout", f"no end within {self._limits.cpu_seconds} s of CPU time")
        try:
            how = f"by signal {signal.Signals(number).name}" if number else f"with code {code}"
        except ValueError:
            how = f"with code {code}"
        return Ended("exit", f"the process ended {how} before it answered")

    def _reap(self) -> int:
        if self._process.returncode is None:
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_seconds = usage.ru_utime + usage.ru_stime
        return self._process.returncode

    def close(self) -> None:
        """End everything inside, and wait until it is gone."""
        if self._replies < 0:
            return
        if self._process.returncode is None:
            # Tier A: with the first process of a namespace die all others. bubblewrap waits for it outside and then
            # ends too; were that one killed first, whoever inherits the other might never reap it.
            for pid in _children(self._process.pid) if self._tier.name == "A" else []:
                _kill(pid)
            if self._tier.name == "B" or not _exits(self._process.pid, within=2.0):
                _kill(self._process.pid)
            self._reap()
        _until_closed(self._replies, within=2.0)
        for fd in (self._questions, self._replies, self._printed):
            if fd >= 0:
                os.close(fd)
        self._replies = -1
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch:  # Landlock let it hold regular files alone
            shutil.rmtree(self._scratch, ignore_errors=True)


def _start_from(folder: str) -> str:
    return f"import sys; sys.path.append({folder!r}); from inside.start import main; main()"


def _refused(_: str) -> Any:
    raise ValueError("only ints cross as JSON numbers")


def _exits(pid: int, within: float) -> bool:
    """Return whether child `pid` has ended, or ends within this many seconds. It is not reaped."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(within * 1000))
    finally:
        os.close(handle)


def _until_closed(fd: int, within: float) -> None:
    """Read `fd` until its last writer is gone, or `within` seconds are over.

    That it is gone proves that no process of the sandbox is left.
    """
    deadline = time.monotonic() + within
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while time.monotonic() < deadline:
        if poll.poll(50) and not os.read(fd, _CHUNK):
            return


def _taken(pid: int) -> tuple[int, float]:
    """Return the memory in bytes and the CPU time in seconds of `pid` and its descendants.

    Memory is anonymous and shared, without mapped files. CPU time is also of those that have ended.
    """
    memory, ticks, waiting = 0, 0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            with open(f"/proc/{process}/status", "rb") as file:
                sizes = dict(line.split(b":", 1) for line in file.read().splitlines() if line.startswith(b"Rss"))
            with open(f"/proc/{process}/stat", "rb") as file:
                times = file.read().rpartition(b")")[2].split()[11:15]  # its own, and of children it has waited for
        except (OSError, ValueError):  # it has just ended
            continue
        memory += sum(1024 * int(sizes.get(name, b"0").split()[0]) for name in (b"RssAnon", b"RssShmem"))
        ticks += sum(map(int, times))
        waiting += _children(process)
    return memory, ticks / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; [] if it has just ended."""
    pids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                pids += map(int, file.read().split())
    except OSError:  # it has just ended
        pass
    return pids


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _exiting(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return bool(int(file.read().rpartition(b")")[2].split()[6]) & _PF_EXITING)
    except (OSError, ValueError, IndexError):  # it has just ended
        return True


def _queued(task: str) -> float:
    """Return the seconds that this thread was ready but not running; 0 if the kernel does not report it."""
    try:
        with open(f"{task}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has just ended
        return []


def _in_files(folder: str, pid: int, tasks: list[str], most: int) -> float:
    """Return the bytes on disk in tier B's scratch folder, with removed files that are still open or mapped.

    Infinite beyond _MAX_FILES files, or if they cannot be seen; a removed file that is mapped counts `most`, since its
    size cannot be seen.
    """
    sizes: dict[int, float] = {}
    removed = f" {folder}/".encode()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.inode()] = entry.stat(follow_symlinks=False).st_blocks * 512
                if len(sizes) > _MAX_FILES:
                    return float("inf")
        for task in tasks:  # each may have a table of its own
            for fd in os.listdir(f"/proc/{pid}/task/{task}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(f"/proc/{pid}/task/{task}/fd/{fd}")
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        sizes[status.st_ino] = status.st_blocks * 512
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                if line.endswith(b" (deleted)\n") and removed in line:
                    sizes.setdefault(int(line.split()[4]), most)
    except PermissionError:
        return float("inf")
    except OSError:  # it has just ended
        pass
    return sum(sizes.values())
