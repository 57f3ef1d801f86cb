"""The first worker of a run, which starts before it is known what it will answer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from qualgate.config import GateFile
from qualgate.workers.pool import hired_ahead


def first_worker(gate: GateFile) -> AbstractContextManager[None]:
    """Starts and imports our engine while the plan is made, where an arm of the gate file is to be run here by it. Not
    where GPUs are named: a process sees the one that it was started with. Within another's nothing is started."""
    own = any(arm.served is None for arm in (gate.baseline, *gate.variants))
    return hired_ahead() if own and gate.ray is None and isinstance(gate.devices, str) else nullcontext()
