"""Find this machine's strongest wall: a short escape suite runs before any model-written code."""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import dataclass, field
from typing import Literal

from qualgate.sandbox import tiers
from qualgate.sandbox.process import Ended, Interpreter, Limits, SandboxFailed
from qualgate.sandbox.program import Program
from qualgate.sandbox.tiers import Tier

# What code inside must not be able to do: each function does it or raises. `outside` is a readable, writable file.
_ESCAPES = """
import ctypes, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def read(outside): return open(outside).read()
def write(outside): open(outside, "w").write("changed")
def remove(outside): os.unlink(outside)
def mode(outside): os.chmod(outside, 0)
def beside(outside): open(outside + ".new", "w").close()
def root(outside): open("/qualgate-probe", "w").close()
def environment(outside): return open(f"/proc/{os.getppid()}/environ").read()
def network(outside): socket.socket()
def signal_parent(outside): os.kill(os.getppid(), 0) if os.getppid() > 1 else must(-1)
def namespace(outside): must(libc.unshare(0x10000000))
def mount(outside): must(libc.mount(b"none", b"/tmp", b"tmpfs", 0, b""))
def trace(outside): must(libc.ptrace(0, 0, 0, 0))
def become_root(outside): os.setuid(0) if os.getuid() else must(-1)
"""
_NAMES = ("read", "write", "remove", "mode", "beside", "root", "environment", "network", "signal_parent", "namespace",
          "mount", "trace", "become_root")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The best tier that holds here, or None; `reasons`: why better ones fail."""

    tier: Tier | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        if self.tier is None:
            return "no sandbox, so code cases stay undecided: " + "; ".join(self.reasons)
        return f"tier {self.tier}" + (f"; {'; '.join(self.reasons)}" if self.reasons else "")


@functools.cache
def probe(force: Literal["A", "B", None] = None) -> Probe:
    """Try the tiers, best first, in about 0.1 s, once per process. `force`: only this one."""
    candidates, reasons = tiers.candidates()
    for tier in candidates:
        if force not in (None, tier.name):
            continue
        fault = _fault(tier)
        if fault is None:
            return Probe(tier=tier, reasons=tuple(reasons))
        reasons.append(f"tier {tier.name}: {fault}")
    return Probe(tier=None, reasons=tuple(reasons))


def _fault(tier: Tier) -> str | None:
    """Return why `tier` fails here, else None.

    It fails if it does not start, if honest code fails in it, or if an escape succeeds.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="qualgate-probe-") as folder:
            outside = os.path.join(folder, "canary")
            with open(outside, "w") as file:
                file.write("canary")
            with Interpreter(tier, Limits(), "answer") as inside:
                honest = "import fractions, statistics\nopen('note', 'w').write('kept')\nheld = open('note').read()"
                loaded = inside.ask({"op": "load", "args": [honest + _ESCAPES, ["held"]]})
                if loaded.get("value") != [True]:
                    return f"an honest program fails in it: {loaded.get('raised')}"
                for name in _NAMES:
                    reply = inside.ask({"op": "call", "name": name, "args": [outside]})
                    if "raised" not in reply:
                        return f"the wall does not hold: {name}"
            if os.listdir(folder) != ["canary"]:
                return "the wall does not hold: files were left outside"
    except SandboxFailed as error:
        return str(error)
    except Ended as error:
        return f"the probe ended: {error}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Where and within which limits candidates run. Each gets a fresh interpreter."""

    tier: Tier
    limits: Limits = field(default_factory=Limits)
    packages: str = ""  # a folder that programs may import from, beside the standard library

    @staticmethod
    def best(limits: Limits | None = None, force: Literal["A", "B", None] = None) -> Sandbox | None:
        """Return this machine's best sandbox, or None: then model-written code is not run."""
        tier = probe(force).tier
        return Sandbox(tier=tier, limits=limits or Limits()) if tier else None

    def interpreter(self, role: Literal["answer", "witness"] = "answer") -> Interpreter:
        """Return a fresh interpreter, to use as a context manager. SandboxFailed if it does not start."""
        return Interpreter(self.tier, self.limits, role, self.packages if role == "answer" else "")

    def program(self) -> Program:
        """Return a fresh interpreter that runs a whole program, likewise."""
        return Program(self.tier, self.limits, "program", self.packages)
