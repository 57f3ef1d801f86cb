"""The two ways this machine may be able to wall model-written code in, and the command that starts either.

Tier A: bubblewrap. Own process, network, IPC, host name and mount namespaces; an empty environment; the interpreter,
its standard library and the C libraries these need, read-only, and nothing else; a /tmp of so many bytes and files. An
ordinary user gets a user namespace, with further ones forbidden; root does without one (inside it, root would still be
the user whose process limit no kernel enforces) and becomes a user of its own, drawn at random.
Tier B: Landlock and seccomp alone, set by the process itself, where namespaces are forbidden (most containers). It may
start no process at all.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import platform
import py_compile
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qualgate.sandbox.inside import seccomp

INSIDE = Path(__file__).parent / "inside"
PACKAGES_INSIDE = "/wall/packages"  # tier A: where programs find what the sandbox was equipped with
# What a wheel may take from the machine (PEP 600's policies), as far as modules without a screen do.
OF_WHEELS = ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0",
             "libutil.so.1", "libresolv.so.2", "libz.so.1", "libexpat.so.1", "libatomic.so.1")  # fmt: skip
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")  # for any interpreter
PACKAGES = (
    "site-packages",
    "dist-packages",
)  # what was installed beside the standard library, our own evalsets among it


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """An interpreter, and what it needs to start and to import its library, and nothing beside it."""

    command: tuple[str, ...]  # how it is called; a program follows
    code: str  # a folder with `inside`, as this interpreter reads it
    readable: tuple[str, ...]  # files and folders
    covered: tuple[str, ...] = ()  # folders in these that are not

    @property
    def scratch(self) -> str:
        """The folder that tier A writes in: not one that lies over what is read."""
        return "/wall/tmp" if any(f"{path}/".startswith("/tmp/") for path in self.readable) else "/tmp"

    def files(self) -> list[str]:
        """The same without what is covered: for walls that can only add."""
        found: list[str] = []
        for path in self.readable:
            inside = [folder for folder in self.covered if folder.startswith(f"{path}/")]
            found += [f"{path}/{name}" for name in os.listdir(path)] if inside else [path]
        return [path for path in found if path not in self.covered]


@functools.cache
def runtime(wheels: bool = False) -> Runtime:
    """This interpreter's; with the libraries that wheels may need. OSError where its libraries cannot be told."""
    own = {"platbase": sys.base_exec_prefix}  # not a virtual environment's
    stdlib = os.path.realpath(sysconfig.get_path("stdlib", vars=own))
    folders = [stdlib, os.path.realpath(sysconfig.get_path("platstdlib", vars=own))]
    modules = os.path.realpath(sysconfig.get_config_var("DESTSHARED") or f"{stdlib}/lib-dynload")
    extensions = [
        f"{modules}/{name}" for name in sorted(os.listdir(modules)) if ".so" in name and "tkinter" not in name
    ]
    kept = [
        python(),
        *_libraries(extensions, OF_WHEELS if wheels else ("libgcc_s.so.1",)),
        "/etc/ld.so.cache",
        *folders,
        modules,
    ]
    kept = [path for path in dict.fromkeys(kept) if os.path.exists(path)]
    kept = [path for path in kept if not any(path.startswith(f"{folder}/") for folder in folders)]
    covered = [f"{folder}/{name}" for folder in folders for name in PACKAGES if os.path.isdir(f"{folder}/{name}")]
    return Runtime(
        command=tuple(program()), code=compiled(), readable=tuple(kept), covered=tuple(dict.fromkeys(covered))
    )


@functools.cache
def environment(interpreter: str) -> Runtime:
    """Another interpreter's, with every package that it has. OSError where it cannot be asked what it reads."""
    asked = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *sys.path]))"
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", asked], capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL
        )
        told = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise OSError(f"{interpreter} does not run as a Python interpreter: {error}") from None
    wanted = dict.fromkeys([*map(os.path.abspath, told), *SYSTEM])
    kept = [path for path in wanted if os.path.exists(path) and path != "/"]
    kept = [path for path in kept if not any(path.startswith(f"{folder}/") for folder in kept)]
    return Runtime(
        command=(os.path.abspath(interpreter), "-I", "-B", "-X", "utf8", "-c"),
        code=f"{compiled()}/source",
        readable=tuple(kept),
    )


def _libraries(extensions: list[str], also: tuple[str, ...]) -> list[str]:
    """Under the names by which the loader finds them, those of the interpreter and of these modules, and `also`."""
    # ld.so(8): it prints what it would load, and starts nothing.
    told = subprocess.run(
        [python()],
        env={"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join([*extensions, *also])},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    ).stdout.decode("utf-8", "surrogateescape")
    return [path for path in re.findall(r"(/.*) \(0x[0-9a-f]+\)$", told, re.MULTILINE) if path not in extensions]


@functools.cache
def compiled() -> str:
    """A folder, this process's own, with `inside` as bytecode (compiling it would take each sandbox 20 ms), and an
    empty one, `nothing`, and its source in `source`, for interpreters of other versions."""
    folder = tempfile.mkdtemp(prefix="qualgate-inside-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.mkdir(f"{folder}/nothing")
    shutil.copytree(INSIDE, f"{folder}/source/inside", ignore=shutil.ignore_patterns("__pycache__"))
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
    """How the interpreter is called; `inside` is imported from the folder above it. Numbers of any length are printed:
    the sandbox's limits end what takes long."""
    return [python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-X", "int_max_str_digits=0", "-c"]


def bubblewrap(tier: Tier, arguments: list[str], held: Runtime, packages: str = "") -> list[str]:
    """The command of tier A, to be started with an empty environment; `arguments` follow `-c`. held: the interpreter;
    packages: a folder of them, "" for none.

    What it starts may still mount and become another user: `inside.confine` does, and gives both up.
    """
    root = os.geteuid() == 0
    command = [tier.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    command += ["--cap-add", "CAP_SYS_ADMIN"]
    command += (
        ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user", "--disable-userns"]
    )
    for folder in dict.fromkeys(
        str(parent) for path in [*held.readable, "/wall/inside"] for parent in reversed(Path(path).parents)
    ):
        command += ["--perms", "0755", "--dir", folder]  # else only their maker could pass through them
    for path in held.readable:
        command += ["--ro-bind", path, path]
    for path in held.covered:
        command += ["--ro-bind", f"{compiled()}/nothing", path]
    command += ["--ro-bind", packages, PACKAGES_INSIDE] if packages else []
    command += ["--ro-bind", f"{held.code}/inside", "/wall/inside", "--perms", "0755", "--dir", "/dev"]
    for name in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--dir", "/dev/shm", "--dir", held.scratch, "--remount-ro", "/", "--chdir", "/"]
    command += ["--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", held.scratch, "--setenv", "TMPDIR", held.scratch]
    return [*command, "--", *held.command, *arguments]


def own_uid() -> int:
    """A user id that nobody has: from the upper half of the largest range this user namespace knows. 0: not root."""
    if os.geteuid() != 0:
        return 0
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(ranges, key=lambda row: row[2])
    return random.SystemRandom().randrange(first + count // 2, first + count - 1) if count > 2 else 0
