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


QUICK = ("drift_is_its_twin", "a_drift_row_does_not_notice_the_others", "ties_and_broken_rows")
LONG = ("attention_is_its_twin_and_a_row_its_own",)


def said(*what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreted_drift.py")), *what],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("what", [QUICK, pytest.param(LONG, marks=pytest.mark.proof)], ids=["drift", "attention"])
def test_in_the_interpreter(what):
    assert {f"{one} passed" for one in what} <= set(said(*what))
