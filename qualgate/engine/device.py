"""The device of a run. Needs no torch."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from qualgate.errors import UsageError

Device = Literal["cpu", "cuda"]
Devices = str | tuple[tuple[int, ...], ...]
VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/dev/nvidiactl")  # there where an NVIDIA driver is


def choose_device(devices: Devices) -> Device:
    """Return the device of a run, without torch. devices: the gate file's "auto", "cpu" or GPUs by process.

    "cuda" needs a visible GPU device file and a torch build for it; loading reports a GPU that torch cannot use.
    UsageError if GPUs are named and there is none.
    """
    if devices == "cpu":
        return "cpu"
    hidden = os.environ.get(VISIBLE) in ("", "-1")
    gpu = DRIVER.exists() and not hidden and "+cpu" not in version("torch")
    if isinstance(devices, tuple) and not gpu:
        why = f"{VISIBLE} hides them" if hidden else "this torch is built for CPUs, or there is no NVIDIA driver"
        raise UsageError(f"`workers.devices` names GPUs, and none can be used here: {why}. Write `devices: auto`.")
    return "cuda" if gpu else "cpu"


def packs(device: Device) -> bool:
    """Return whether packed passes are possible on `device`; a GPU needs Triton. Loading decides it for each model."""
    return device == "cpu" or find_spec("triton") is not None
