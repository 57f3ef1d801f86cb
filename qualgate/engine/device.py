"""Where a run computes. Needs no torch."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
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


def packs(device: Device) -> bool:
    """Whether packed passes may be made there; of a GPU that takes Triton, without which models run in padded batches.
    Whether a model's are is known when it is loaded."""
    return device == "cpu" or find_spec("triton") is not None
