"""`doctor` says what each system serves, and what it says of other systems follows from the code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from qualgate.cli import doctor


@pytest.mark.parametrize(
    ("system", "ok", "optional", "said"),
    [
        ("linux", True, False, ""),
        ("darwin", False, True, "code that models write: it is not run, so code cases stay undecided"),
        ("win32", False, False, "run, plan, gate, score, config check and quantize do not start"),
        ("win32", False, False, "WSL 2"),
        ("freebsd15", False, None, ""),  # not known, so not called good
    ],
)
def test_what_a_system_serves_and_lacks_is_said(monkeypatch, system, ok, optional, said):
    monkeypatch.setattr(doctor.sys, "platform", system)
    found = doctor._platform()
    assert found.ok is ok
    assert optional is None or found.optional is optional
    assert said in found.detail
    assert ("do not start" in found.detail) == (system == "win32")


OF_A_RUN = ("qualgate.run", "qualgate.pipeline.plan", "qualgate.scoring", "qualgate.quantize.folder")
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
    ("version", "ok", "optional", "said"),
    [
        ((3, 34, 1), False, False, "3.35 or newer is needed"),
        ((3, 40, 1), False, True, "write to a store from one process at a time"),
        ((3, 51, 2), False, True, "Use a Python with a newer SQLite"),
        ((3, 51, 3), True, False, "3.51.3"),
    ],
)
def test_a_sqlite_that_can_corrupt_a_store_is_told_with_what_to_do(monkeypatch, version, ok, optional, said):
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version", ".".join(map(str, version)))
    found = doctor.sqlite_finding()
    assert (found.ok, found.optional) == (ok, optional)
    assert said in found.detail
