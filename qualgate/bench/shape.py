"""The one shape of a benchmark's result."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any


def described(name: str, *, rounds: list[dict[str, Any]], goals: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of benchmark `name`, with the device and the versions it ran on."""
    versions = {
        package: importlib.metadata.version(package)
        for package in ("qualgate", "torch", "transformers", "numpy", "scipy")
    }
    versions["python"] = platform.python_version()
    return {"bench": name, "device": device(), "versions": versions, "rounds": rounds, "goals": goals}


def goal(
    id: str, text: str, measured: Any, *, met: bool | None, spread: Any = None, unmet_because: str | None = None
) -> dict[str, Any]:
    """One row of the goal table. `unmet_because` (not run, too few rounds) makes `met` null."""
    row = {"id": id, "goal": text, "measured": measured, "spread": spread, "met": met}
    return row if unmet_because is None else row | {"met": None, "reason": unmet_because}


def device() -> str:
    """The processor and how many of its cores this process may use."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return f"{found.group(1) if found else platform.processor()}, {len(os.sched_getaffinity(0))} cores"
