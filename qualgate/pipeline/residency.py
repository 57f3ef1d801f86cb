"""Whether a worker can keep all arms of a run in memory, so that taking turns loads each of them once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from qualgate.engine.device import Device, Devices, choose_device
from qualgate.engine.draft_arms import draft_models
from qualgate.records import ArmSpec

BYTES = 4  # of a number at most: floats are held as float32, and what is packed takes less
SHARE = 0.5  # of the memory in all: the rest is for keys, values, logits, and for whoever else is there
CGROUPS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")


def held(arms: Iterable[ArmSpec], parameters: Mapping[str, int]) -> Iterator[int]:
    """Numbers that the weights of each arm, and of each model that drafts for it, stand for; a served arm's are
    elsewhere. parameters: by folder."""
    for arm in (arm for arm in arms if arm.served is None):
        for one in (arm, *draft_models(arm)):
            yield parameters[one.model]


def fit_together(parameters: Iterable[int], devices: Devices) -> bool:
    """parameters: numbers that the weights of each model stand for; devices: the gate file's."""
    together = len(devices[0]) if isinstance(devices, tuple) else 1
    return BYTES * sum(parameters) <= SHARE * memory(choose_device(devices)) * together


def memory(device: Device) -> int:
    """Bytes in all, whoever holds them now: of the GPU, or what this process may use of the machine's.

    Not what is free now, for the same plan is to be laid out alike a minute later. 0 where the GPU does not tell.
    """
    if device == "cuda":
        import torch

        return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in CGROUPS:
        with suppress(OSError, ValueError):  # none, or "max"
            limits.append(int(limit.read_text()))
    return min(limits)
