"""Estimate whether a worker can keep all arms of a run in memory, so that turns load each arm once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from qualgate.engine.device import Device, Devices, choose_device
from qualgate.engine.draft_arms import draft_models
from qualgate.records import ArmSpec

BYTES = 4  # most bytes per weight: floats are held as float32, packed weights take less
SHARE = 0.5  # share of all memory for weights; the rest is for KV caches, logits and other processes
CGROUPS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")


def weight_counts(arms: Iterable[ArmSpec], parameters: Mapping[str, int]) -> Iterator[int]:
    """Yield the number of weights of each arm and each of its drafts, except of served arms. parameters: by folder."""
    for arm in (arm for arm in arms if arm.served is None):
        for spec in (arm, *draft_models(arm)):
            yield parameters[spec.model]


def fit_together(parameters: Iterable[int], devices: Devices) -> bool:
    """Return whether models with these numbers of weights fit into the devices' memory together."""
    gpu_count = len(devices[0]) if isinstance(devices, tuple) else 1
    return BYTES * sum(parameters) <= SHARE * memory(choose_device(devices)) * gpu_count


def memory(device: Device) -> int:
    """Return the total memory in bytes: the GPU's, or this process's limit on the machine; 0 if unknown.

    Free memory would not do: the same plan must be laid out alike a minute later.
    """
    if device == "cuda":
        import torch

        return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in CGROUPS:
        with suppress(OSError, ValueError):  # none, or "max"
            limits.append(int(limit.read_text()))
    return min(limits)
