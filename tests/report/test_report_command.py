"""`qualgate report` in each format, the same bytes wherever it is made; what `gate` tells the host it runs on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from qualgate.errors import Exit
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.summary import load_report
from tests.benchmarks.commands import fill
from tests.command_line import qualgate
from tests.depth import with_proofs

HOSTS = ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('command') / 'q.db'}"
    fill(url, cases=12)
    return url


@pytest.fixture(autouse=True)
def _nowhere_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HOSTS:
        monkeypatch.delenv(name, raising=False)


def test_the_printed_schema_fits_the_printed_report(url: str, tmp_path: Path) -> None:
    schema = json.loads(qualgate("report", "--schema", cwd=tmp_path).stdout)
    done = qualgate("report", "--store", url, "--format", "json", cwd=tmp_path)
    Draft202012Validator(schema).validate(json.loads(done.stdout))
    qualgate("report", "--store", url, "--format", "json", "--out", "deep/report.json", cwd=tmp_path)
    assert (tmp_path / "deep" / "report.json").read_text(encoding="utf-8") == done.stdout


def test_gate_tells_github_and_warn_only_tells_the_true_code(url: str, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    hosted = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true"}
    done = qualgate("gate", "--store", url, "--json", cwd=tmp_path, **hosted)
    assert done.returncode == Exit.UNDECIDED, done.stderr  # the made-up scorers are not of this version
    assert json.loads(done.stdout)["exit"] == Exit.UNDECIDED, "stdout is JSON alone"
    assert done.stdout == qualgate("report", "--store", url, "--json", cwd=tmp_path).stdout
    assert "::warning file=" in done.stderr
    assert "WARN ONLY" not in done.stderr
    warned = qualgate("gate", "--store", url, "--json", "--warn-only", cwd=tmp_path, **hosted)
    assert warned.returncode == 0
    assert json.loads(warned.stdout)["exit"] == Exit.UNDECIDED
    assert "WARN ONLY: the true exit code is 12" in warned.stderr
    assert summary.read_text(encoding="utf-8").count("## qualgate: run") == 2
    assert "the true exit code is **12**" in summary.read_text(encoding="utf-8")


def test_annotations_on_stdout_are_the_files_bytes_and_told_once(url: str, tmp_path: Path) -> None:
    hosted = {"GITHUB_ACTIONS": "true"}
    shown = qualgate("report", "--store", url, "--format", "annotations", cwd=tmp_path, **hosted)
    qualgate("report", "--store", url, "--format", "annotations", "--out", "a.txt", cwd=tmp_path)
    assert shown.stdout == (tmp_path / "a.txt").read_text(encoding="utf-8")
    assert shown.stdout.startswith("::warning file=")
    gated = qualgate("gate", "--store", url, "--format", "annotations", cwd=tmp_path, **hosted)
    assert gated.stdout.startswith("::warning file=")
    assert "::warning" not in gated.stderr, "the runner reads both streams"
    kept = qualgate("gate", "--store", url, "--format", "annotations", "--out", "b.txt", cwd=tmp_path, **hosted)
    assert "::warning file=" in kept.stderr


def test_warn_only_hides_no_mistake_and_no_summary_hides_a_verdict(url: str, tmp_path: Path) -> None:
    assert qualgate("gate", "no-such.yaml", "--warn-only", cwd=tmp_path).returncode == Exit.USAGE
    done = qualgate("gate", "--store", url, cwd=tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path))
    assert done.returncode == Exit.UNDECIDED
    assert "step summary cannot be written" in done.stderr
    assert "::" not in done.stderr, "annotations are for GitHub alone"


PRINT_DIGESTS = """
import hashlib, json, sys
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.summary import load_report
found = load_report(sys.argv[1])
print(json.dumps({form: hashlib.sha256(rendered(found, form).encode()).hexdigest() for form in FORMATS}))
"""
EVERYWHERE = [
    {"PYTHONHASHSEED": "4294967295", "TZ": "Asia/Kolkata", "LC_ALL": "de_DE.UTF-8", "PYTHONUTF8": "0"},
    {"PYTHONHASHSEED": "0", "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "OMP_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "1", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "OMP_NUM_THREADS": "2"},
]


@pytest.mark.parametrize("at", with_proofs(range(3), (1, 2)))
def test_every_format_is_the_same_bytes_under_any_environment(url: str, at: int, tmp_path: Path) -> None:
    report = load_report(url)
    mine = {form: hashlib.sha256(rendered(report, form).encode()).hexdigest() for form in FORMATS}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS, url], capture_output=True, encoding="utf-8", cwd=tmp_path, check=True,
        env={**os.environ, **EVERYWHERE[at]},
    )  # fmt: skip
    assert json.loads(done.stdout) == mine
