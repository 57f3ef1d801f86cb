"""A folder with a finished, signed run of a real tiny model, made once a session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import changed


@pytest.fixture(scope="session")
def _finished(tmp_path_factory) -> Path:
    folder = make_workspace(tmp_path_factory.mktemp("signed")).parent
    shutil.copytree(folder / "model", folder / "copy")
    shutil.copytree(folder / "model", folder / "noisy")
    weights = load_file(folder / "model" / "model.safetensors")
    torch.manual_seed(0)
    noisy = {name: weight + weight.std() * torch.randn_like(weight) for name, weight in weights.items()}
    save_file(noisy, folder / "noisy" / "model.safetensors", {"format": "pt"})
    changed(folder, ("same: {model: ./model", "noisy: {model: ./noisy, dtype: float32}\n  same: {model: ./copy"))
    for name in ("ci", "eve"):
        assert qualgate("key", "new", name, cwd=folder).returncode == 0
    made = qualgate("run", "gate.yaml", cwd=folder, QUALGATE_KEY=str(folder / "ci"))
    assert (made.returncode, "signed: the verdicts and their evidence, with the key " in made.stdout) == (10, True)
    return folder


@pytest.fixture
def signed(_finished, tmp_path) -> Path:
    """A copy of it, signed by the key `ci`: the folder `same` is approved, the folder `noisy` is blocked."""
    shutil.copytree(_finished, tmp_path, dirs_exist_ok=True)
    return tmp_path
