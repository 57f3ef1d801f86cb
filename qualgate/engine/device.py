"""Where a run computes. Needs no torch."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]


def choose_device(devices: str) -> Device:
    """Where a run computes, decided once, without torch. devices: the gate file's "auto" or "cpu".

    "cuda" where a GPU's device file is visible and torch was built for it; should torch then not find it usable,
    loading says so.
    """
    if devices == "cpu":
        return "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    gpu = Path("/dev/nvidiactl").exists() and not hidden and "+cpu" not in version("torch")
    return "cuda" if gpu else "cpu"
