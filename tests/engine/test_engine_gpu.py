"""The packed engine on the kernels of GPUs, without one: `interpreted_engine.py`, in a process of its own. What
`make test` runs of it, `tests/kernels/test_interpreted.py` does, in one process with the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.proof
def test_in_the_interpreter():
    file = str(Path(__file__).with_name("interpreted_engine.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "proof", file],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout  # and none at all would not be 0
