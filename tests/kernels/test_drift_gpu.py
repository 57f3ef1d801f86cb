"""The Triton kernels without a GPU: their arithmetic in the interpreter, their machine code from the compiler.

Each in a process of its own: the interpreter must be chosen before Triton is imported, and excludes the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


def run(script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "what",
    [
        "drift_is_its_twin",
        "a_drift_row_does_not_notice_the_others",
        "ties_and_broken_rows",
        "attention_is_its_twin_and_a_row_its_own",
    ],
)
def test_in_the_interpreter(what):
    assert run("interpreted_drift.py", what, TRITON_INTERPRET="1").strip().endswith("passed")
