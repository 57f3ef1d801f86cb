"""The two ways this machine may be able to wall model-written code in, and the command that starts either.

Tier A: bubblewrap. Own process, network, IPC, host name and mount namespaces; an empty environment; the Python runtime
and the C libraries read-only and nothing else; a sized /tmp. An ordinary user gets a user namespace, with further ones
forbidden; root does without one (inside it, root would still be the user whose process limit no kernel enforces) and
becomes a user of its own, drawn at random.
Tier B: Landlock and seccomp alone, set by the process itself, where namespaces are forbidden (most containers). It may
start no process at all.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import py_compile
import random
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qualgate.sandbox.inside import seccomp

INSIDE = Path(__file__).parent / "inside"
TMP_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A wall as this machine has it; what each consists of stands above."""

    name: Literal["A", "B"]
    bwrap: str = ""  # tier A

    def __str__(self) -> str:
        return {"A": "A (bubblewrap, seccomp, limits)", "B": "B (Landlock, seccomp, limits)"}[self.name]


def candidates() -> tuple[list[Tier], list[str]]:
    """The tiers worth a trial here, best first, and why the others are not."""
    if sys.platform != "linux" or not seccomp.supported(platform.machine()):
        return [], [
            f"model-written code is run on Linux on x86_64 or aarch64, not on {sys.platform} {platform.machine()}"
        ]
    bwrap = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    tiers = [Tier(name="A", bwrap=bwrap)] if bwrap else []
    return [*tiers, Tier(name="B")], [] if bwrap else ["tier A: no bwrap; install bubblewrap (apt install bubblewrap)"]


def python() -> str:
    """The interpreter itself, not a virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def runtime() -> list[str]:
    """What the interpreter needs to start: C libraries, its executable, its standard library."""
    libraries = [
        path for path in ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64") if os.path.isdir(path)
    ]
    own = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("LIBDIR")]
    kept = [*libraries, *(path for path in ("/etc/ld.so.cache",) if os.path.exists(path))]
    for path in dict.fromkeys([*(path for path in own if path), python()]):
        real = os.path.realpath(path)
        if os.path.exists(real) and not any(real.startswith(f"{folder}/") or real == folder for folder in libraries):
            kept.append(real)
    return kept


@functools.cache
def compiled() -> str:
    """A folder, this process's own, with `inside` as bytecode: compiling it would take each sandbox 20 ms."""
    folder = tempfile.mkdtemp(prefix="qualgate-inside-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in INSIDE.glob("*.py"):
        py_compile.compile(
            str(source),
            cfile=f"{folder}/inside/{source.stem}.pyc",
            dfile=f"/wall/inside/{source.name}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return folder


def program() -> list[str]:
    """How the interpreter is called; `inside` is imported from the folder above it."""
    return [python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c"]


def bubblewrap(tier: Tier, seccomp_fd: int, arguments: list[str]) -> list[str]:
    """The command of tier A, to be started with an empty environment; `arguments` follow `-c`."""
    root = os.geteuid() == 0
    command = [tier.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    command += (
        ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user", "--disable-userns"]
    )
    held = runtime()
    for folder in dict.fromkeys(
        str(parent) for path in [*held, "/wall/inside"] for parent in reversed(Path(path).parents)
    ):
        command += ["--perms", "0755", "--dir", folder]  # else only their maker could pass through them
    for path in held:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    command += ["--ro-bind", f"{compiled()}/inside", "/wall/inside", "--perms", "0755", "--dir", "/dev"]
    for name in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--perms", "1777", "--size", str(2**20), "--tmpfs", "/dev/shm"]
    command += ["--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
    command += ["--remount-ro", "/", "--chdir", "/tmp", "--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", "/tmp"]
    return [*command, "--seccomp", str(seccomp_fd), "--", *program(), *arguments]


def own_uid() -> int:
    """A user id that nobody has: from the upper half of the largest range this user namespace knows. 0: not root."""
    if os.geteuid() != 0:
        return 0
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(ranges, key=lambda row: row[2])
    return random.SystemRandom().randrange(first + count // 2, first + count - 1) if count > 2 else 0
