"""`doctor` says what each system serves, and what it says of other systems follows from the code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from qualgate.cli import doctor
from qualgate.errors import Exit
from qualgate.errors.extras import EXTRAS, install_command
from qualgate.sandbox import Probe
from tests.command_line import qualgate


@pytest.mark.parametrize(
    ("system", "state", "said"),
    [
        ("linux", "ready", ""),
        ("darwin", "optional", "code that models write: it is not run, so code cases stay undecided"),
        ("win32", "stops", "run, plan, gate, score, config check and quantize do not start"),
        ("win32", "stops", "WSL 2"),
        ("freebsd15", "optional", "not tested"),
    ],
)
def test_what_a_system_serves_and_lacks_is_said(monkeypatch, system, state, said):
    monkeypatch.setattr(doctor.sys, "platform", system)
    found = doctor._platform()
    assert found.state == state
    assert said in found.detail
    assert ("do not start" in found.detail) == (system == "win32")


OF_A_RUN = ("qualgate.run", "qualgate.pipeline.plan", "qualgate.scoring", "qualgate.pipeline.quantize.folder")
READING = ("qualgate.config", "qualgate.report.summary", "qualgate.report.formats.html", "qualgate.store.decisions",
           "qualgate_app.data")  # fmt: skip
PROGRAM = f"""
import importlib, sys
sys.modules["fcntl"] = sys.modules["resource"] = None  # as on Windows
for module in {(*READING, *OF_A_RUN)}:
    try:
        importlib.import_module(module)
        print(module)
    except ModuleNotFoundError as error:
        assert error.name in ("fcntl", "resource"), error
"""


def test_what_runs_needs_fcntl_and_resource_and_reading_neither():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split()) == READING, "served on Windows by now? Then doctor.SERVED should say so"


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [
        ((3, 34, 1), "stops", "3.35 or newer is needed"),
        ((3, 40, 1), "optional", "write to a store from one process at a time"),
        ((3, 51, 2), "optional", "a newer Python has it"),
        ((3, 51, 3), "ready", "3.51.3"),
    ],
)
def test_a_sqlite_that_can_corrupt_a_store_is_told_with_what_to_do(monkeypatch, version, state, said):
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version", ".".join(map(str, version)))
    found = doctor.sqlite_finding()
    assert found.state == state
    assert said in found.detail + found.gives


@pytest.fixture
def bare(monkeypatch):
    """A stock machine: no extra, no sandbox, no GPU, Debian 12's SQLite."""
    monkeypatch.setattr(doctor, "installed_version", lambda extra: "")
    monkeypatch.setattr("qualgate.sandbox.probe", lambda: Probe(tier=None, reasons=("no bwrap",)))
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version_info", (3, 40, 1))


def test_a_stock_machine_is_not_alarmed_and_learns_what_each_missing_thing_would_give(bare):
    done = qualgate("doctor")
    assert (done.returncode, "NO" in done.stdout, "STOPS" in done.stdout) == (Exit.APPROVE, False, False)
    _, _, optional = done.stdout.partition("Optional (no run stops for it):\n")
    assert "only evalsets with code need it" in optional
    for extra in set(EXTRAS) - {"kernels"}:
        assert f"gives: {EXTRAS[extra][1]}\n" in optional
        assert f"get it: {install_command(extra)}\n" in optional
    assert "\nNothing stops a run.\n" in optional


def test_what_stops_a_run_is_told_last_and_exits_with_13_in_json_too(bare, monkeypatch):
    monkeypatch.setattr("qualgate.engine.device.choose_device", lambda devices: "cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = qualgate("doctor")
    assert done.returncode == Exit.INFRASTRUCTURE
    assert "write `workers: {devices: cpu}`" in done.stdout.partition("STOPS A RUN:\n")[2]
    assert "Nothing stops" not in done.stdout
    told = qualgate("doctor", "--json")
    assert told.returncode == Exit.INFRASTRUCTURE
    states = {one["what"]: one["state"] for one in json.loads(told.stdout)}
    assert (states["device"], states["sandbox"], states["python"]) == ("stops", "optional", "ready")
