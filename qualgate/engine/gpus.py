"""Several GPUs of one machine: which ones a gate file means, and whether they are of one kind. Needs no torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from qualgate.engine.device import VISIBLE
from qualgate.errors import UsageError, one_line

TOGETHER = "QUALGATE_GPUS_TOGETHER"  # number of GPUs over which a worker spreads a model
SECONDS = 60  # in which a driver answers


def as_environment(gpus: str) -> dict[str, str]:
    """Return the environment of a process that sees only these GPUs (an entry of `gpus_of`, numbered as in nvidia-smi)
    and spreads its models over all of them."""
    together = {TOGETHER: str(gpus.count(",") + 1)}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", VISIBLE: gpus} | together


def together() -> int:
    """Return the number of GPUs over which this process spreads a model; 1 by default."""
    return int(os.environ.get(TOGETHER, "1"))


def gpus_of(devices: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Return each process's GPUs as CUDA_VISIBLE_DEVICES names them. UsageError for a GPU that this variable hides."""
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(",".join(map(str, group)) for group in devices)
    available = [name.strip() for name in visible.split(",")]
    if missing := [number for group in devices for number in group if number >= len(available)]:
        raise UsageError(
            f"`workers.devices` names GPU {missing[0]}, and {VISIBLE}={visible} leaves {len(available)}, counted "
            "from 0."
        )
    return tuple(",".join(available[number] for number in group) for group in devices)


def check_alike(devices: Sequence[Sequence[int]]) -> None:
    """Raise UsageError if a GPU is missing or they differ in kind: answers and times would then depend on which of them
    ran a batch."""
    single_gpus = [(number,) for group in devices for number in group]
    kinds = {number: _kind(number, gpu) for (number,), gpu in zip(single_gpus, gpus_of(single_gpus), strict=True)}
    if len(set(kinds.values())) > 1:
        text = "; ".join(f"{number}: {kind}" for number, kind in kinds.items())
        raise UsageError(
            f"`workers.devices` are of unlike kinds ({text}), so that a verdict would depend on which of them a batch "
            "met. Name those of one kind."
        )


def _kind(number: int, gpu: str) -> str:
    """Return model and memory, as in "NVIDIA H100 80GB HBM3, 81559 MiB"."""
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
