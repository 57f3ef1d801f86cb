"""What this machine and this installation can do, each finding with what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qualgate.identity import own_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at, and what to do where it is not well."""

    what: str
    ok: bool
    detail: str
    optional: bool = False  # a NO here does not stop a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Something that rests on what an operating system offers. "": served as on Linux."""

    what: str
    by: str  # what serves it on Linux
    macos: str = ""  # what happens there instead
    windows: str = ""


_NO_RUN = "nothing is run there"
SERVED = (
    Served(what="generating, scoring and judging", by="Python's fcntl and resource",
           windows="run, plan, gate, score, config check and quantize do not start"),
    Served(what="code that models write", by="bubblewrap or Landlock, with seccomp, on x86_64 or aarch64",
           macos="it is not run, so code cases stay undecided", windows=_NO_RUN),
    Served(what="bounds on what scoring may take", by="RLIMIT_AS and SIGPROF in a process of its own",
           macos="where the system refuses the limit on memory, schema, regex and IFEval cases stay undecided",
           windows=_NO_RUN),
    Served(what="one process a run, a bound on a template's time", by="flock, SIGALRM", windows=_NO_RUN),
    Served(what="C kernels", by="gcc or clang while it is installed; AMX asks Linux for its tiles",
           macos="with clang, without AMX", windows=_NO_RUN),
    Served(what="GPU", by="CUDA, with Triton's kernels", macos="none is used", windows=_NO_RUN),
    Served(what="the number of workers and threads", by="sched_getaffinity",
           macos="all cores are counted, whatever the process is held to", windows=_NO_RUN),
    Served(what="report, the dashboard and its decisions", by="Python alone"),
)  # fmt: skip


def findings() -> tuple[Finding, ...]:
    """Every check, in the order a reader wants them. Imports torch (seconds)."""
    checks: tuple[Callable[[], Finding], ...] = (
        _qualgate,
        _python,
        _platform,
        _torch,
        _device,
        _kernels,
        _transformers,
        sqlite_finding,
        _disk,
        _reference_model,
        _evalsets,
        _sandbox,
        _dashboard,
    )
    return tuple(_guarded(check) for check in checks)


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # a broken installation must be reported, not crash the report
        return Finding(what=check.__name__.strip("_"), ok=False, detail=f"{type(error).__name__}: {error}")


def _qualgate() -> Finding:
    return Finding(what="qualgate", ok=True, detail=own_version())


def _python() -> Finding:
    return Finding(
        what="python",
        ok=sys.version_info >= (3, 11),
        detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    )


def _platform() -> Finding:
    """What this system cannot serve. Only Linux is tested; of the others this is read from the code."""
    match sys.platform:
        case "linux":
            return Finding(what="platform", ok=True, detail="Linux: everything is served, as far as is said below")
        case "darwin":
            other = _others([(one.what, one.macos) for one in SERVED])
            return Finding(what="platform", ok=False, optional=True, detail=f"macOS, not tested: {other}")
        case "win32":
            other = _others([(one.what, one.windows) for one in SERVED if one.windows != _NO_RUN])
            return Finding(what="platform", ok=False, detail=f"Windows: {other}; use WSL 2, which is Linux")
    return Finding(what="platform", ok=False, optional=True, detail=f"{sys.platform}: not tested. Use Linux")


def _others(served: list[tuple[str, str]]) -> str:
    return "; ".join(f"{what}: {instead}" for what, instead in served if instead)


def _torch() -> Finding:
    import torch

    return Finding(
        what="torch", ok=True, detail=f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}"
    )


def _device() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding(what="device", ok=True, detail=f"cuda: {torch.cuda.get_device_name(0)}")
    return Finding(what="device", ok=True, detail="cpu; arithmetic in float32 where a gate file says no other")


def _kernels() -> Finding:
    import torch

    from qualgate_kernels import cpu
    from qualgate_kernels.availability import unavailable

    found = cpu.available()
    if torch.cuda.is_available():
        missing = unavailable(torch.device("cuda"))
        detail = (
            f"torch twin on the GPU: {missing}. pip install 'qualgate[kernels]'" if missing else "Triton on the GPU"
        )
        return Finding(what="kernels", ok=not missing, optional=True, detail=f"{detail}; C on the CPU: {found}")
    if cpu.path():
        return Finding(what="kernels", ok=True, detail=f"C on the CPU: {found}; nf4 is left to the torch twin")
    return Finding(
        what="kernels",
        ok=False,
        optional=True,
        detail=f"{found}. Quantized arms run, slower. With a C compiler (gcc or clang) install qualgate again",
    )


def _transformers() -> Finding:
    return Finding(what="transformers", ok=True, detail=importlib.metadata.version("transformers"))


def sqlite_finding() -> Finding:
    """Before 3.51.3 a store in WAL mode can rarely be corrupted where two connections write or checkpoint at the same
    moment: see https://sqlite.org/wal.html, "The WAL-Reset Bug"."""
    from qualgate.store.sqlite import OLDEST

    found = sqlite3.sqlite_version_info
    if found >= (3, 51, 3):
        return Finding(what="sqlite", ok=True, detail=sqlite3.sqlite_version)
    if found < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Finding(what="sqlite", ok=False, detail=f"{sqlite3.sqlite_version} ({needed} or newer is needed)")
    return Finding(
        what="sqlite",
        ok=False,
        optional=True,
        detail=f"{sqlite3.sqlite_version}: before 3.51.3 two processes that write one store at the same moment can, "
        "rarely, corrupt it (WAL reset). Use a Python with a newer SQLite, or write to a store from one process at a "
        "time, and keep a backup",
    )


def _disk() -> Finding:
    with tempfile.NamedTemporaryFile(dir=Path.cwd()):
        pass
    return Finding(what="folder", ok=True, detail=f"{Path.cwd()} can be written")


def _reference_model() -> Finding:
    from qualgate import refmodel
    from qualgate.quant.model_folder import read_model_folder

    read_model_folder(refmodel.PATH)
    return Finding(what="reference", ok=True, detail=f"the shipped model is whole ({refmodel.PATH})")


def _evalsets() -> Finding:
    from qualgate import evalsets

    names = evalsets.shipped()
    return Finding(what="evalsets", ok=bool(names), detail=", ".join(names))


def _sandbox() -> Finding:
    from qualgate.sandbox import probe

    found = probe()
    return Finding(what="sandbox", ok=found.tier is not None, detail=str(found), optional=True)


def _dashboard() -> Finding:
    found = importlib.util.find_spec("streamlit") is not None
    detail = importlib.metadata.version("streamlit") if found else "not installed: pip install 'qualgate[dashboard]'"
    return Finding(what="dashboard", ok=found, detail=detail, optional=True)
