"""What holds of every pass is looked at in every test of the engine."""

from __future__ import annotations

import pytest

from tests.engine.invariants import held


@pytest.fixture(autouse=True)
def every_pass_is_sound():
    with held():
        yield
