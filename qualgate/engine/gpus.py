"""Several GPUs of one machine: which a gate file means, and that they are of one kind. Needs no torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from qualgate.engine.device import VISIBLE
from qualgate.errors import UsageError, one_line

TOGETHER = "QUALGATE_GPUS_TOGETHER"  # tells a worker over how many it lays a model
SECONDS = 60  # in which a driver answers


def as_environment(gpus: str) -> dict[str, str]:
    """What a process is started with that is to see these GPUs alone, one of `gpus_of`, counted as nvidia-smi counts
    them, and to lay its models over all of them."""
    together = {TOGETHER: str(gpus.count(",") + 1)}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", VISIBLE: gpus} | together


def together() -> int:
    """Over how many GPUs this process is to lay a model; 1 unless it was started so."""
    return int(os.environ.get(TOGETHER, "1"))


def gpus_of(devices: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Of each process the driver's names of its GPUs, as CUDA_VISIBLE_DEVICES has them. UsageError for one that is not
    among those that this variable leaves."""
    said = os.environ.get(VISIBLE)
    if said is None:
        return tuple(",".join(map(str, group)) for group in devices)
    left = [one.strip() for one in said.split(",")]
    if missing := [one for group in devices for one in group if one >= len(left)]:
        raise UsageError(
            f"`workers.devices` names GPU {missing[0]}, and {VISIBLE}={said} leaves {len(left)}, counted from 0."
        )
    return tuple(",".join(left[one] for one in group) for group in devices)


def check_alike(devices: Sequence[Sequence[int]]) -> None:
    """Raise UsageError where one of them is not there, or they are not all of one kind: then answers and times would
    depend on which of them a batch met."""
    alone = [(one,) for group in devices for one in group]
    kinds = {number: _kind(number, gpu) for (number,), gpu in zip(alone, gpus_of(alone), strict=True)}
    if len(set(kinds.values())) > 1:
        shown = "; ".join(f"{number}: {kind}" for number, kind in kinds.items())
        raise UsageError(
            f"`workers.devices` are of unlike kinds ({shown}), so that a verdict would depend on which of them a batch "
            "met. Name those of one kind."
        )


def _kind(number: int, gpu: str) -> str:
    """Model and memory, as "NVIDIA H100 80GB HBM3, 81559 MiB"."""
    command = ["nvidia-smi", f"--id={gpu}", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"GPU {number} of `workers.devices` cannot be looked at: nvidia-smi gives {one_line(error)}. Write "
            "`devices: auto`, or mend the driver."
        ) from None
    if done.returncode or not done.stdout.strip():
        raise UsageError(
            f"GPU {number} of `workers.devices` is not there: nvidia-smi says "
            f"{(done.stdout.strip() or done.stderr.strip())[:200]!r}. `nvidia-smi -L` lists those that are."
        )
    return done.stdout.strip()
