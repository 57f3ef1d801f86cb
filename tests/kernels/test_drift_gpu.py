"""The Triton kernels without a GPU: their arithmetic in the interpreter.

In a process of its own: the interpreter must be chosen before Triton is imported, and excludes the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


WHAT = (
    "drift_is_its_twin",
    "a_drift_row_does_not_notice_the_others",
    "ties_and_broken_rows",
    "attention_is_its_twin_and_a_row_its_own",
)


@pytest.fixture(scope="module")
def said() -> str:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreted_drift.py")), *WHAT],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("what", WHAT)
def test_in_the_interpreter(what, said):
    assert f"{what} passed" in said.splitlines(), said[-4000:]
