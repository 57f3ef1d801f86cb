"""`doctor` says what each system serves, and what it says of other systems follows from the code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from qualgate.cli import doctor

WITHOUT = "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None"  # as on Windows


def on(monkeypatch: pytest.MonkeyPatch, system: str) -> doctor.Finding:
    monkeypatch.setattr(doctor.sys, "platform", system)
    return doctor._platform()


def test_linux_serves_everything(monkeypatch):
    assert on(monkeypatch, "linux").ok


def test_on_macos_a_run_goes_and_what_is_missing_is_said(monkeypatch):
    found = on(monkeypatch, "darwin")
    assert not found.ok
    assert found.optional
    assert "code that models write: it is not run, so code cases stay undecided" in found.detail
    assert "do not start" not in found.detail


def test_on_windows_nothing_is_run_and_the_way_out_is_said(monkeypatch):
    found = on(monkeypatch, "win32")
    assert not found.ok
    assert not found.optional
    assert "run, plan, gate, score, config check and quantize do not start" in found.detail
    assert "WSL 2" in found.detail


def test_an_unknown_system_is_not_called_good(monkeypatch):
    assert not on(monkeypatch, "freebsd15").ok


@pytest.mark.parametrize(
    "module", ["qualgate.run", "qualgate.pipeline.plan", "qualgate.scoring", "qualgate.quantize.folder"]
)
def test_what_runs_needs_fcntl_and_resource(module):
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}; import qualgate.{module}"], capture_output=True, text=True
    )
    assert "ModuleNotFoundError" in done.stderr, "served on Windows by now? Then doctor.SERVED should say so"


def test_reading_needs_neither():
    modules = "qualgate.config, qualgate.report.summary, qualgate.report.formats.html, qualgate.store.decisions"
    subprocess.run([sys.executable, "-c", f"{WITHOUT}; import {modules}, qualgate_app.data"], check=True)


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
