"""A sandbox that code is run in."""

from __future__ import annotations

import pytest

from qualgate.sandbox import Limits, Sandbox, probe


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    found = probe()
    if found.tier is None:
        pytest.skip(str(found))
    return Sandbox(tier=found.tier, limits=Limits(cpu_seconds=4, wall_seconds=120))
