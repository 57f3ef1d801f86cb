"""A run that a node of a pool has begun: what it stores holds while the lease does, and it ends with the node."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.records import Lease


def under_lease(gate: GateFile, lease: str) -> GateFile:
    """The gate file, whose run is made under a node's lease (ID:TOKEN) and is asked to stop when this process's input
    ends, as it does with the node. UsageError for what is no lease."""
    submission, _, token = lease.rpartition(":")
    if not submission or not token.isdecimal():
        raise UsageError(f"--lease {lease!r}: expected ID:TOKEN, which a node gives")
    threading.Thread(target=_end_with_input, daemon=True).start()
    return replace(gate, lease=Lease(submission, int(token)))


def _end_with_input() -> None:
    while os.read(0, 4096):  # no buffered reader: at its end the interpreter would want its lock
        pass
    os.kill(os.getpid(), signal.SIGTERM)
