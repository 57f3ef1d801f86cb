"""A user's own model, evalset and gate file, and a run of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command_line import in_a_process
from tests.gated_model import make_workspace
from tests.run.commands import employ_two


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def judged(made, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A workspace that `qualgate run` has been through once, with two workers."""
    folder = tmp_path_factory.mktemp("judged")
    shutil.copytree(made.parent, folder, dirs_exist_ok=True)
    employ_two(folder)
    return folder, in_a_process("run", "gate.yaml", cwd=folder)


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path
