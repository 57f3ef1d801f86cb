"""The fastest way there is on a device, and its name. Chosen by device and installation, never by the rows."""

from __future__ import annotations

import torch

from qualgate_kernels import attention, drift_cpu
from qualgate_kernels import drift as twin
from qualgate_kernels.attention import QuantizedCache, attend_torch
from qualgate_kernels.drift import Drift, Head, drift_torch
from qualgate_kernels.gumbel import Noise


def drift(
    p: Head, q: Head, *, labels: torch.Tensor | None = None, noise: Noise | None = None, threads: int | None = None
) -> Drift:
    """labels: int64 [rows] or None; threads: of the CPU, torch.get_num_threads() by default. See drift.py."""
    twin.check(p, q, labels, noise)
    device = p.hidden.device
    if device.type == "cpu" and isinstance(library := drift_cpu.load(), drift_cpu.Library):
        return Drift(**library.drift(p, q, labels, noise, threads or torch.get_num_threads()))
    if drift_path(device) == "triton":
        from qualgate_kernels.drift_gpu import drift_triton

        return drift_triton(p, q, labels, noise)
    return drift_torch(p, q, labels=labels, noise=noise)


def attend(
    query: torch.Tensor, cache: QuantizedCache, start: torch.Tensor, *, scale: float | None = None
) -> torch.Tensor:
    """See attention.attend_torch."""
    if attend_path(cache) == "triton":
        from qualgate_kernels.attention_gpu import attend_triton

        return attend_triton(query, cache, start, attention.check(query, cache, start, scale))
    return attend_torch(query, cache, start, scale=scale)


def drift_path(device: torch.device) -> str:
    """triton, c, or "torch twin: why"."""
    if device.type == "cpu":
        library = drift_cpu.load()
        return f"torch twin: {library}" if isinstance(library, str) else "c"
    return _triton(device)


def attend_path(cache: QuantizedCache) -> str:
    """triton, or "torch twin: why"."""
    if cache.head_dim & (cache.head_dim - 1):
        return "torch twin: head_dim is not a power of two"
    if cache.format == "fp8" and cache.keys.is_cuda and torch.cuda.get_device_capability(cache.keys.device) < (8, 9):
        return "torch twin: this GPU has no float8"
    return _triton(cache.keys.device)


def _triton(device: torch.device) -> str:
    if device.type != "cuda":
        return f"torch twin: no kernel for {device.type}"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "torch twin: triton is not installed"
    return "triton"
