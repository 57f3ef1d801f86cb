"""Where the Triton kernels run, and why not elsewhere."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch


def interpreted() -> bool:
    """Whether Triton interprets its kernels (on any device, without a GPU, slowly): set before it is imported."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def on_triton(device: torch.device) -> bool:
    """Whether the Triton kernels serve what lies on `device`; on a CPU those in C do, interpreted or not."""
    return device.type == "cuda" and not unavailable(device)


def unavailable(device: torch.device, activations: str = "") -> str:
    """Return why the Triton kernels do not run on `device`; "" if they do."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if interpreted():
        return ""
    if device.type != "cuda" or torch.version.hip:
        return f"the kernels run on an NVIDIA GPU, not on {device.type}"
    offered = capability(device.index or 0)
    required = 89 if activations.startswith("fp8") else 80
    if offered < required:
        return f"compute capability {offered / 10}, {activations or 'the kernels'} need {required / 10}"
    return ""


@functools.cache
def capability(index: int) -> int:
    """Compute capability of GPU `index`, 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability(index)
    return 10 * major + minor
