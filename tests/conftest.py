"""What holds for every test."""

from __future__ import annotations

import functools
import gc
import os
import signal

import pytest
import typer.main
import typer.testing
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.depth import DEEP, FEW, MANY

# Hypothesis gives an example 200 ms; a busy machine's own pauses are longer.
settings.register_profile("qualgate", deadline=None, max_examples=MANY if DEEP else FEW)
settings.load_profile("qualgate")

# Hypothesis reads the constants of every module that is imported, for one draw in twenty. That takes seconds in each
# process, and what is drawn would depend on what was imported before.
if not DEEP:
    providers._get_local_constants = lambda: providers._local_constants

# Commands are made of their functions once, not for each call: that took a fifth of the time of tests/cli.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)

# What was imported and collected stays to the end, and looking through it for garbage again and again took a sixth of
# the time of all tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)
    gc.enable()
    gc.unfreeze = lambda: None  # the product's own, called in this process, would undo it for all later tests


# Before torch is imported: in workers that are forked, its second thread would spin between any two operations, which
# took up to two thirds of a run's processor seconds. A worker that is spawned sees to it itself.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it for its workers; a pipe has no width


@pytest.fixture
def ctrl_c():
    """SIGINT as a terminal's programs get it: in a shell's background they ignore it, and their children too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# What takes longest, longest first: so that no process ends alone with one of them.
LONG = (
    "tests/run/",
    "tests/harness/",
    "tests/sandbox/",
    "tests/verification/",
    "tests/gate/planning/",
    "tests/kernels/",
    "tests/gate/four_arm/",
    "tests/cli/test_bad_input.py",
    "tests/pipeline/test_four_arm.py",
    "tests/pipeline/test_quantized_variant.py",
    "tests/pipeline/quantize/",
    "tests/app/",
    "tests/test_wheel.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((at for at, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))
