"""Check this machine and installation: what is ready, what is optional and missing, what stops a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qualgate.errors.extras import EXTRAS, install_command, installed_version, pip_install
from qualgate.records.identity import own_version

State = Literal["ready", "optional", "stops"]
_HEADINGS: dict[State, str] = {
    "ready": "Ready",
    "optional": "Optional (no run stops for it)",
    "stops": "STOPS A RUN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. gives: the benefit of a missing part; get: the command that installs it."""

    what: str
    state: State
    detail: str
    gives: str = ""
    get: str = ""


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings by state, those that stop a run last."""
    lines: list[str] = []
    for state, heading in _HEADINGS.items():
        if of_state := [finding for finding in findings if finding.state == state]:
            lines += ["", f"{heading}:", *(line for finding in of_state for line in _lines(finding))]
    if not stops_a_run(findings):
        lines += ["", "Nothing stops a run."]
    return "\n".join(lines[1:])


def _lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.what:<14} {finding.detail}{f'; gives: {finding.gives}' if finding.gives else ''}"
    if finding.get:
        yield f"  {'':<14} get it: {finding.get}"


def stops_a_run(findings: Iterable[Finding]) -> bool:
    """Return whether any finding stops a run."""
    return any(finding.state == "stops" for finding in findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A feature that depends on the operating system."""

    what: str
    by: str  # what provides it on Linux
    macos: str = ""  # the behaviour there; "": as on Linux
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
    """Return every finding. Imports torch (seconds)."""
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
    )
    return (*(_guarded(check) for check in checks), *(_extra(name) for name in EXTRAS if name != "kernels"))


def _guarded(check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check; if it raises, a finding that names the error and stops."""
    try:
        return check()
    except Exception as error:  # a broken installation is reported and must not crash the report
        return Finding(what=check.__name__.strip("_"), state="stops", detail=f"{type(error).__name__}: {error}")


def _extra(name: str) -> Finding:
    if version := installed_version(name):
        return Finding(what=name, state="ready", detail=f"{EXTRAS[name][0]} {version}")
    missing = f"{EXTRAS[name][0]} is not installed"
    return Finding(what=name, state="optional", detail=missing, gives=EXTRAS[name][1], get=install_command(name))


def _qualgate() -> Finding:
    return Finding(what="qualgate", state="ready", detail=own_version())


def _python() -> Finding:
    return Finding(
        what="python",
        state="ready" if sys.version_info >= (3, 11) else "stops",
        detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    )


def _platform() -> Finding:
    """Return what this system does not support. Only Linux is tested; for the others this follows from the code."""
    match sys.platform:
        case "linux":
            return Finding(what="platform", state="ready", detail="Linux, on which everything is tested")
        case "darwin":
            instead = _limits_text([(served.what, served.macos) for served in SERVED])
            return Finding(what="platform", state="optional", detail=f"macOS, not tested: {instead}")
        case "win32":
            instead = _limits_text([(served.what, served.windows) for served in SERVED if served.windows != _NO_RUN])
            return Finding(what="platform", state="stops", detail=f"Windows: {instead}; use WSL 2, which is Linux")
    return Finding(what="platform", state="optional", detail=f"{sys.platform}: not tested. Use Linux")


def _limits_text(served: list[tuple[str, str]]) -> str:
    return "; ".join(f"{what}: {instead}" for what, instead in served if instead)


def _torch() -> Finding:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return Finding(what="torch", state="ready", detail=f"{torch.__version__}, CPU capability {capability}")


def _device() -> Finding:
    """Say where arms run by default. A driver without a usable GPU stops a run; a CPU build of torch beside one does
    not."""
    import torch

    from qualgate.engine.device import DRIVER, choose_device

    if torch.cuda.is_available():
        return Finding(what="device", state="ready", detail=f"cuda: {torch.cuda.get_device_name(0)}")
    if choose_device("auto") == "cuda":
        detail = "there is an NVIDIA driver, and torch finds no GPU usable: write `workers: {devices: cpu}`, or mend it"
        return Finding(what="device", state="stops", detail=detail)
    cpu = "cpu; arithmetic in float32 unless a gate file sets another"
    if DRIVER.exists() and "+cpu" in torch.__version__:
        build = pip_install("--force-reinstall", f"torch=={torch.__version__.partition('+')[0]}")
        return Finding(what="device", state="optional", detail=cpu, gives="runs on this machine's GPU", get=build)
    return Finding(what="device", state="ready", detail=cpu)


def _kernels() -> Finding:
    """Say which kernels serve quantized arms. Missing ones only make these slower."""
    import torch

    from qualgate_kernels import cpu
    from qualgate_kernels.availability import unavailable

    on_cpu = f"C on the CPU: {cpu.available()}"
    if torch.cuda.is_available() and (missing := unavailable(torch.device("cuda"))):
        detail = f"torch twin on the GPU: {missing}; {on_cpu}"
        gives, get = EXTRAS["kernels"][1], install_command("kernels")
        return Finding(what="kernels", state="optional", detail=detail, gives=gives, get=get)
    if torch.cuda.is_available():
        return Finding(what="kernels", state="ready", detail=f"Triton on the GPU; {on_cpu}")
    if cpu.path():
        return Finding(what="kernels", state="ready", detail=f"{on_cpu}; nf4 is left to the torch twin")
    return Finding(
        what="kernels",
        state="optional",
        detail=f"{cpu.available()}; quantized arms run, slower",
        gives="faster quantized arms, once qualgate is installed where there is a C compiler (gcc or clang)",
        get=install_command("", "--force-reinstall", "--no-deps"),
    )


def _transformers() -> Finding:
    return Finding(what="transformers", state="ready", detail=importlib.metadata.version("transformers"))


def sqlite_finding() -> Finding:
    """Check SQLite's version. Before 3.51.3, two connections that write or checkpoint at the same moment can rarely
    corrupt a store in WAL mode: https://sqlite.org/wal.html, "The WAL-Reset Bug"."""
    from qualgate.store.sqlite import OLDEST

    version = sqlite3.sqlite_version_info
    if version >= (3, 51, 3):
        return Finding(what="sqlite", state="ready", detail=sqlite3.sqlite_version)
    if version < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Finding(what="sqlite", state="stops", detail=f"{sqlite3.sqlite_version} ({needed} or newer is needed)")
    return Finding(
        what="sqlite",
        state="optional",
        detail=f"{sqlite3.sqlite_version}: write to a store from one process at a time, and keep a backup",
        gives="with 3.51.3 or newer (a newer Python has it), stores that two processes may write at the same moment; "
        "before, that can rarely corrupt one (WAL reset)",
    )


def _disk() -> Finding:
    """Say whether this folder can be written; the error of one that cannot is reported by `_guarded`."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd()):
        pass
    return Finding(what="folder", state="ready", detail=f"{Path.cwd()} can be written")


def _reference_model() -> Finding:
    """Say whether the shipped model can be read."""
    from qualgate import refmodel
    from qualgate.quant.model_folder import read_model_folder

    read_model_folder(refmodel.PATH)
    return Finding(what="reference", state="ready", detail=f"the shipped model is whole ({refmodel.PATH})")


def _evalsets() -> Finding:
    """Say which evalsets are installed; without any, nothing can run."""
    from qualgate import evalsets

    names = evalsets.shipped()
    return Finding(
        what="evalsets", state="ready" if names else "stops", detail=", ".join(names) or "none are installed"
    )


def _sandbox() -> Finding:
    """Say whether programs that models write can run here. Only evalsets with code need it."""
    from qualgate.sandbox import probe

    sandbox = probe()
    if sandbox.tier is not None:
        return Finding(what="sandbox", state="ready", detail=str(sandbox))
    gives = "a place to run programs that models write; only evalsets with code need it"
    return Finding(what="sandbox", state="optional", detail=str(sandbox), gives=gives, get="apt-get install bubblewrap")
