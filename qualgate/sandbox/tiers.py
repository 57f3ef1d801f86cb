"""The two tiers of walls around model-written code, and the command that starts either.

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
    """A wall of this machine; see above for the parts of each."""

    name: Literal["A", "B"]
    bwrap: str = ""  # tier A

    def __str__(self) -> str:
        return {"A": "A (bubblewrap, seccomp, limits)", "B": "B (Landlock, seccomp, limits)"}[self.name]


def candidates() -> tuple[list[Tier], list[str]]:
    """Return the tiers worth trying here, best first, and why the others are not."""
    if sys.platform != "linux" or not seccomp.supported(platform.machine()):
        return [], [
            f"model-written code is run on Linux on x86_64 or aarch64, not on {sys.platform} {platform.machine()}"
        ]
    bwrap = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    tiers = [Tier(name="A", bwrap=bwrap)] if bwrap else []
    return [*tiers, Tier(name="B")], [] if bwrap else ["tier A: no bwrap; install bubblewrap (apt install bubblewrap)"]


def python() -> str:
    """Return the interpreter itself, not a virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """An interpreter, with exactly the files that it needs to start and import its library."""

    command: tuple[str, ...]  # how it is called; a program follows
    code: str  # a folder with `inside`, as this interpreter reads it
    readable: tuple[str, ...]  # files and folders
    covered: tuple[str, ...] = ()  # folders in these that are not

    @property
    def scratch(self) -> str:
        """The folder that tier A writes in, which must not cover anything readable."""
        return "/wall/tmp" if any(f"{path}/".startswith("/tmp/") for path in self.readable) else "/tmp"

    def files(self) -> list[str]:
        """Return the readable paths without the covered ones, for walls that can only add."""
        files: list[str] = []
        for path in self.readable:
            inside = [folder for folder in self.covered if folder.startswith(f"{path}/")]
            files += [f"{path}/{name}" for name in os.listdir(path)] if inside else [path]
        return [path for path in files if path not in self.covered]


@functools.cache
def runtime(wheels: bool = False) -> Runtime:
    """Return this interpreter's runtime; wheels: with the libraries they may need. OSError if those are unknown."""
    base_prefix = {"platbase": sys.base_exec_prefix}  # not a virtual environment's
    stdlib = os.path.realpath(sysconfig.get_path("stdlib", vars=base_prefix))
    folders = [stdlib, os.path.realpath(sysconfig.get_path("platstdlib", vars=base_prefix))]
    modules = os.path.realpath(sysconfig.get_config_var("DESTSHARED") or f"{stdlib}/lib-dynload")
    extensions = [
        f"{modules}/{name}" for name in sorted(os.listdir(modules)) if ".so" in name and "tkinter" not in name
    ]
    readable = [
        python(),
        *_libraries(extensions, OF_WHEELS if wheels else ("libgcc_s.so.1",)),
        "/etc/ld.so.cache",
        *folders,
        modules,
    ]
    readable = [path for path in dict.fromkeys(readable) if os.path.exists(path)]
    readable = [path for path in readable if not any(path.startswith(f"{folder}/") for folder in folders)]
    covered = [f"{folder}/{name}" for folder in folders for name in PACKAGES if os.path.isdir(f"{folder}/{name}")]
    return Runtime(
        command=tuple(program()), code=compiled(), readable=tuple(readable), covered=tuple(dict.fromkeys(covered))
    )


@functools.cache
def environment(interpreter: str) -> Runtime:
    """Return another interpreter's runtime, with all its packages. OSError if it does not run."""
    script = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *sys.path]))"
    try:
        process = subprocess.run(
            [interpreter, "-I", "-c", script], capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL
        )
        search_path = json.loads(process.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise OSError(f"{interpreter} does not run as a Python interpreter: {error}") from None
    paths = dict.fromkeys([*map(os.path.abspath, search_path), *SYSTEM])
    readable = [path for path in paths if os.path.exists(path) and path != "/"]
    readable = [path for path in readable if not any(path.startswith(f"{folder}/") for folder in readable)]
    return Runtime(
        command=(os.path.abspath(interpreter), "-I", "-B", "-X", "utf8", "-c"),
        code=f"{compiled()}/source",
        readable=tuple(readable),
    )


def _libraries(extensions: list[str], also: tuple[str, ...]) -> list[str]:
    """Return the libraries of the interpreter, of these modules and of `also`, under the names that the loader uses."""
    # ld.so(8): it prints what it would load, and starts nothing.
    listing = subprocess.run(
        [python()],
        env={"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join([*extensions, *also])},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    ).stdout.decode("utf-8", "surrogateescape")
    return [path for path in re.findall(r"(/.*) \(0x[0-9a-f]+\)$", listing, re.MULTILINE) if path not in extensions]


@functools.cache
def compiled() -> str:
    """Return a folder of this process's with `inside` as bytecode (compiling it would cost each sandbox 20 ms), an
    empty one, `nothing`, and the source in `source`, for interpreters of other versions."""
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
    """Return the interpreter's command; `inside` is imported from the folder above it. Numbers of any length are
    printed, since the sandbox's limits end what takes long."""
    return [python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-X", "int_max_str_digits=0", "-c"]


def bubblewrap(tier: Tier, arguments: list[str], inner: Runtime, packages: str = "") -> list[str]:
    """Return tier A's command, to start with an empty environment; `arguments` follow `-c`. inner: the interpreter;
    packages: a folder of them, "" for none.

    The started process may still mount and become another user: `inside.confine` does, and gives both up.
    """
    root = os.geteuid() == 0
    command = [tier.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    command += ["--cap-add", "CAP_SYS_ADMIN"]
    command += (
        ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user", "--disable-userns"]
    )
    for folder in dict.fromkeys(
        str(parent) for path in [*inner.readable, "/wall/inside"] for parent in reversed(Path(path).parents)
    ):
        command += ["--perms", "0755", "--dir", folder]  # else only their maker could pass through them
    for path in inner.readable:
        command += ["--ro-bind", path, path]
    for path in inner.covered:
        command += ["--ro-bind", f"{compiled()}/nothing", path]
    command += ["--ro-bind", packages, PACKAGES_INSIDE] if packages else []
    command += ["--ro-bind", f"{inner.code}/inside", "/wall/inside", "--perms", "0755", "--dir", "/dev"]
    for name in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--dir", "/dev/shm", "--dir", inner.scratch, "--remount-ro", "/", "--chdir", "/"]
    command += ["--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", inner.scratch,
                "--setenv", "TMPDIR", inner.scratch]  # fmt: skip
    return [*command, "--", *inner.command, *arguments]


def own_uid() -> int:
    """Return an unused user id: from the upper half of the largest range of this user namespace. 0: not root."""
    if os.geteuid() != 0:
        return 0
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(ranges, key=lambda row: row[2])
    return random.SystemRandom().randrange(first + count // 2, first + count - 1) if count > 2 else 0
