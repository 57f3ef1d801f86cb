from __future__ import annotations

import pytest

from qualgate.sandbox import Limits, Sandbox, probe


@pytest.fixture(params=["A", "B"])
def sandbox(request) -> Sandbox:
    """A sandbox of each tier that holds on this machine, with tight limits."""
    found = probe(request.param)
    if found.tier is None:
        pytest.skip(f"tier {request.param} does not hold here: {'; '.join(found.reasons)}")
    return Sandbox(tier=found.tier, limits=Limits(cpu_seconds=2, wall_seconds=120, memory_bytes=2**29))
