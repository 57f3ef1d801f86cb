"""Checks before a run is planned: what can fail in seconds should not fail after minutes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from qualgate.config import GateFile
from qualgate.documents import read_yaml
from qualgate.engine.device import choose_device
from qualgate.engine.gpus import gpus_of
from qualgate.errors import UsageError
from qualgate.pipeline.judging import judge_there
from qualgate.store.address import DEFAULT, artifacts_folder, file_of, placed
from qualgate.store.database import check_store
from qualgate.store.signing.keys import trusted_keys
from qualgate.workers.ray_reach import try_cluster


def try_before(gate: GateFile) -> None:
    """Try what a run will need, in the order of TRIED. Raises UsageError for what is unavailable, and
    InfrastructureError for a server that is away."""
    for attempt in TRIED:
        attempt(gate)


def try_store(gate: GateFile) -> None:
    """Check that the store can be reached and opened, and has this program's revision. No new store is made."""
    try:
        check_store(gate.store_url)
    except UsageError as error:
        document = read_yaml(gate.path)
        stated = document.value.get("store", DEFAULT) if isinstance(document.value, dict) else ""
        if placed(stated, gate.path.parent) != gate.store_url:  # the command named another
            raise
        raise type(error)(str(document.fault(("store",), str(error)))) from None


def try_folders(gate: GateFile) -> None:
    """Check that the store's file and the folders of artifacts and reports can be written."""
    path = file_of(gate.store_url)
    if path is not None and path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{path}: the store can be read and not written. Give the file to the user who runs qualgate.")
    for folder in (artifacts_folder(gate.store_url, gate.path.parent), gate.path.parent / "qualgate-reports"):
        existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
        try:
            with tempfile.TemporaryFile(dir=existing):
                pass
        except OSError as error:
            raise UsageError(
                f"{folder}: a run writes there, and {existing} cannot be written ({error.strerror}). Mend that, or "
                "move the gate file and its store to a folder that can be."
            ) from None


def try_keys(gate: GateFile) -> None:
    """Check that the keys that the environment names can be read."""
    trusted_keys()


def try_devices(gate: GateFile) -> None:
    """Check that the GPUs that the gate file names can be used."""
    choose_device(gate.devices)
    if isinstance(gate.devices, tuple):
        gpus_of(gate.devices)


def try_ray(gate: GateFile) -> None:
    """Check that Ray is installed and a cluster answers at the address."""
    if gate.ray is not None and any(arm.served is None for arm in (gate.baseline, *gate.variants)):
        try_cluster(gate.ray)


def try_judge(gate: GateFile) -> None:
    """Check that the judge answers and serves the model that the gate file names."""
    judge_there(gate.policy)


TRIED: tuple[Callable[[GateFile], None], ...] = (
    try_store, try_folders, try_keys, try_devices, try_ray, try_judge,
)  # fmt: skip
