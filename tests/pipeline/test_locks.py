"""One process for one run, unless leases keep several apart."""

from __future__ import annotations

import contextlib

import pytest

from qualgate.errors import InfrastructureError
from qualgate.pipeline.locks import sole_coordinator


@pytest.mark.parametrize(("first", "second", "refused"), [
    (False, False, True), (False, True, True), (True, False, True), (True, True, False),
])  # fmt: skip
def test_only_leased_runs_stand_beside_each_other(tmp_path, first, second, refused):
    said = pytest.raises(InfrastructureError, match="another qualgate process") if refused else contextlib.nullcontext()
    with sole_coordinator(tmp_path / "run", leased=first), said, sole_coordinator(tmp_path / "run", leased=second):
        pass
    with sole_coordinator(tmp_path / "run"):
        pass
