"""The Triton kernels without a GPU: `interpreted*.py`, in a process of their own.

The interpreter must be chosen before Triton is imported, and compiling does not work where it is. `make test` runs one
shape of each kernel, and the packed engine on them in the same process; the proofs all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


KERNELS = sorted(Path(__file__).parent.glob("interpreted*.py"))
ENGINE = Path(__file__).parents[1] / "engine" / "interpreted_engine.py"


def interpreted(which: str, files: list[Path]) -> None:
    """Run these files' tests in a process that has chosen the interpreter, and hold that all of them pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", which, *map(str, files)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout  # and none at all would not be 0


@pytest.mark.parametrize(
    ("which", "files"),
    [("not proof", [*KERNELS, ENGINE]), pytest.param("proof", KERNELS, marks=pytest.mark.proof)],
    ids=["one shape of each", "all shapes"],
)
def test_the_kernels_compute_what_their_torch_twins_say_and_the_engine_on_them_what_a_cpu_says(which, files):
    interpreted(which, files)
