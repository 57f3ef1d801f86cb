"""The packed engine on the kernels of GPUs, without one: `interpreted_engine.py`, in a process of its own. What
`make test` runs of it, `tests/kernels/test_interpreted.py` does, in one process with the kernels."""

from __future__ import annotations

import pytest

from tests.kernels.test_interpreted import ENGINE, interpreted


@pytest.mark.proof
def test_in_the_interpreter():
    interpreted("proof", [ENGINE])
