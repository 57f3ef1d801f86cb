"""Limits that a sandboxed interpreter puts on itself before it reads a line of model-written code.

Tier A's walls are bubblewrap's; here it gets folders to write in, limited in bytes and files, a root caller's child
becomes a unique user, and resource limits are set inside the namespaces, where no other sandbox counts towards them.
Tier B has no namespaces: Landlock (paths) is set here. seccomp (system calls) comes last in both.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

from . import seccomp

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

LANDLOCK_ABI = 3  # Linux 6.2: the first in which a refused path cannot be truncated either
_SCOPES = 6  # Linux 6.12: signals and abstract sockets, a second wall behind seccomp's
# landlock(7): the numbers of linux/landlock.h. The three system calls have one number on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE, _READ, _READ_DIR, _REMOVE, _MAKE_REG, _TRUNCATE = 1, 2, 4, 8, 1 << 5, 1 << 8, 1 << 14
_ALL_OF_ABI_3 = (1 << 15) - 1
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_CLONE_NEWNS, _MS_NOSUID, _MS_NODEV = 0x20000, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


class CannotConfine(OSError):
    """This machine refuses one of the walls."""


def limit(limits: dict[str, int], *, processes: bool) -> None:
    """Set resource limits of this process and its children; `processes`: the user is this sandbox's alone."""
    seconds = limits["cpu_seconds"]
    maxima = {
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,  # they count for the user, in tier B for all of the host's that are theirs
    }
    if processes:
        maxima[resource.RLIMIT_NPROC] = limits["processes"]
    for name, maximum in maxima.items():
        hard = resource.getrlimit(name)[1]
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(name, (maximum, maximum))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU may be ignored, what follows not


def become(uid: int) -> None:
    """Change from root to a unique user, whose processes count alone, and who owns nothing."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def landlock_abi() -> int:
    """Return the kernel's Landlock version, 0 without it."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, 0, 1))


def _must(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise CannotConfine(error, f"{what}: {os.strerror(error)}")
    return result


def folders(limits: dict[str, int], scratch: str) -> None:
    """Mount tier A's writable folders, in a mount namespace of this process's own user."""
    _must(_libc.unshare(_CLONE_NEWNS), "mounts of its own")
    # A file takes a kilobyte of the kernel's memory, however empty it is.
    for path, size, files in ((scratch, limits["file_bytes"], 1024), ("/dev/shm", limits["shm_bytes"], 64)):
        options = f"mode=1777,size={size},nr_inodes={files}".encode()
        _must(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options), f"mount {path}")
    os.chdir(scratch)


def give_up() -> None:
    """Drop every capability, and the chance to gain one by a new program."""
    _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _must(_libc.capset(header, nothing), "drop capabilities")


def filter_calls(machine: str, alone: int = 0) -> None:
    """Install the filter of `seccomp.program`. Irrevocable."""
    code = seccomp.program(machine, alone)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    _must(_libc.prctl(_PR_SET_SECCOMP, 2, filter_, 0, 0), "seccomp")


def wall(readable: list[str], scratch: str) -> None:
    """Wall in tier B: this process sees `readable` and writes flat files in `scratch`. Irrevocable."""
    rights = struct.pack("=QQQ", _ALL_OF_ABI_3, 3, 3) if landlock_abi() >= _SCOPES else struct.pack("=Q", _ALL_OF_ABI_3)
    ruleset = _must(_libc.syscall(_CREATE_RULESET, rights, len(rights), 0), "Landlock")
    rules = [(path, _EXECUTE | _READ | _READ_DIR) for path in readable]
    rules += [(scratch, _WRITE | _READ | _READ_DIR | _REMOVE | _MAKE_REG | _TRUNCATE)]
    rules += [(f"/dev/{name}", _READ | _WRITE) for name in ("null", "zero", "random", "urandom")]
    for path, access in rules:
        if not os.path.exists(path):
            continue
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            access &= _EXECUTE | _WRITE | _READ | _TRUNCATE  # the rights of a file
        _must(_libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, folder), 0), f"Landlock, {path}")
        os.close(folder)
    _must(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def confine(config: dict[str, Any]) -> None:
    """Apply everything that `config` requests. OSError if the machine refuses."""
    limits = config["limits"]
    _must(_libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "die with the parent")
    if config["tier"] == "A":
        folders(limits, config["scratch"])
        if config["uid"]:
            become(config["uid"])
        limit(limits, processes=True)
        give_up()
        filter_calls(config["machine"])
    else:
        limit(limits, processes=False)
        give_up()
        wall(config["readable"], config["scratch"])
        filter_calls(config["machine"], os.getpid())
