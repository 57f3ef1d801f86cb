"""A run that a node of a pool has begun: what it stores holds while the lease does, and it ends with the node."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from qualgate.config import GateFile
from qualgate.errors import UsageError, is_lack
from qualgate.records import ArmSpec, Lease
from qualgate.store import leases
from qualgate.store.database import open_store
from qualgate.store.lease_guard import RunTaken


def under_lease(gate: GateFile, lease: str) -> GateFile:
    """The gate file, whose run is made under a node's lease (ID:TOKEN) and is asked to stop when this process's input
    ends, as it does with the node. UsageError for what is no lease."""
    submission, _, token = lease.rpartition(":")
    if not submission or not token.isdecimal():
        raise UsageError(f"--lease {lease!r}: expected ID:TOKEN, which a node gives")
    threading.Thread(target=_end_with_input, daemon=True).start()
    baseline, *variants = (_where_it_is(arm) for arm in (gate.baseline, *gate.variants))
    return replace(gate, baseline=baseline, variants=tuple(variants), lease=Lease(submission, int(token)))


@contextmanager
def giving_way(gate: GateFile) -> Iterator[None]:
    """Give the submission back where its run is another's just now, or this machine lacks what it takes: that is
    neither a death of a worker nor the submission's end."""
    try:
        yield
    except (RunTaken, UsageError) as error:
        back = leases.give_way if isinstance(error, RunTaken) else leases.refuse if is_lack(error) else None
        if gate.lease is not None and back is not None:
            with open_store(gate.store_url, create=False) as store:
                back(store, gate.lease, str(error))
        raise


def _where_it_is(arm: ArmSpec) -> ArmSpec:
    """With the model's own path, not that of the link to it which a claim lays out: by it runs of one gate file are
    told from others."""
    target = os.readlink(arm.model) if os.path.islink(arm.model) else ""
    return replace(arm, model=target) if os.path.isabs(target) and arm.model.endswith(target) else arm


def _end_with_input() -> None:
    while os.read(0, 4096):  # no buffered reader: at its end the interpreter would want its lock
        pass
    os.kill(os.getpid(), signal.SIGTERM)
