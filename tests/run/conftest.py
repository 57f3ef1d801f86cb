"""A user's own model, evalset and gate file, made once a session, and a finished run of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import employ_two, grow


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """The folder, with 60 cases."""
    return make_workspace(tmp_path_factory.mktemp("made")).parent


@pytest.fixture(scope="session")
def finished(made, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """It, once `qualgate run` has been through it with two workers: to be read, or to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    employ_two(folder)
    return folder, qualgate("run", "gate.yaml", cwd=folder)


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def judged(finished, tmp_path) -> Path:
    """A copy of the finished run's folder."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def long(workspace) -> Path:
    """Three jobs an arm, so that something can happen between two."""
    grow(workspace, copies=3)
    return workspace
