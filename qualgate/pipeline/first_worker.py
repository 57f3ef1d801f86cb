"""Start the first worker of a run while the plan is made."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from qualgate.config import GateFile
from qualgate.workers.pool import hired_ahead


def first_worker(gate: GateFile) -> AbstractContextManager[None]:
    """Start a process that imports our engine while the plan is made, if an arm will run on it here. Not with named
    GPUs, which a process gets at its start, nor within another such block."""
    own = any(arm.served is None for arm in (gate.baseline, *gate.variants))
    return hired_ahead() if own and gate.ray is None and isinstance(gate.devices, str) else nullcontext()
