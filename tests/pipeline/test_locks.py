"""One process for one run, unless leases keep several apart."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from qualgate.errors import InfrastructureError
from qualgate.pipeline.locks import sole_coordinator
from qualgate.records import Lease
from qualgate.store.database import open_store


@pytest.mark.parametrize(("first", "second", "refused"), [
    (False, False, True), (False, True, True), (True, False, True), (True, True, False),
])  # fmt: skip
def test_only_leased_runs_stand_beside_each_other(tmp_path, first, second, refused):
    said = pytest.raises(InfrastructureError, match="another qualgate process") if refused else contextlib.nullcontext()
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        stores = {False: store, True: replace(store, lease=Lease("s", 1))}
        with (
            sole_coordinator(tmp_path / "run", stores[first]),
            said,
            sole_coordinator(tmp_path / "run", stores[second]),
        ):
            pass
        with sole_coordinator(tmp_path / "run", store):
            pass
