"""Run model-written code, only here: walled in, limited, and never trusted with a verdict."""

from __future__ import annotations

from qualgate.sandbox.probe import Probe, Sandbox, probe
from qualgate.sandbox.process import Ended, Interpreter, Limits, SandboxFailed
from qualgate.sandbox.tiers import Tier

__all__ = ["Ended", "Interpreter", "Limits", "Probe", "Sandbox", "SandboxFailed", "Tier", "probe"]
