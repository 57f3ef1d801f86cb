"""What `make` would do, told by its own dry run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def dry(target: str, venv: Path, *settings: str) -> str:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    words = ["make", "--dry-run", "--no-print-directory", target, f"VENV={venv}", *settings]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_what_it_needs_alone_and_shows_pips_progress(tmp_path):
    asked = dry("demo", tmp_path / "venv")
    torch, install = [line for line in asked.splitlines() if "pip install" in line]
    assert "--constraint constraints.txt --no-deps --index-url https://download.pytorch.org/whl/cpu torch ||" in torch
    assert install.endswith('--constraint constraints.txt --editable ".[dashboard]"')
    assert "--quiet" not in asked
    assert "-q " not in asked
    assert asked.splitlines()[-1].startswith(f"{tmp_path}/venv/bin/qualgate demo")


def test_on_a_gpu_torch_comes_as_pip_finds_it(tmp_path):
    asked = dry("demo", tmp_path / "venv", "GPU=1")
    assert len([line for line in asked.splitlines() if "pip install" in line]) == 1


def test_the_tests_install_everything_and_what_they_installed_does_for_the_demo(tmp_path):
    asked = dry("install", tmp_path / "venv")
    assert '--editable ".[dev]"' in asked
    assert f"touch {tmp_path}/venv/.demo {tmp_path}/venv/.installed" in asked


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((), "--seed 7"),
        (("ALL=1",), "--all --seed 7"),
        (("SHARE=gate store",), "--share gate store --seed 7"),
    ],
)
def test_verify_runs_the_shares_that_it_is_asked_for(tmp_path, settings, words):
    lines = dry("verify", tmp_path / "venv", "SEED=7", *settings).replace("\\\n", "").splitlines()
    assert lines[-1].split("tests.verification.landing")[1].split() == words.split()
