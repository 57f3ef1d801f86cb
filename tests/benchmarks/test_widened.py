"""A widened model is the same function: its weights are copies, and its answers and drafts are the reference's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate import refmodel
from tests.benchmarks.widened import write_widened


@pytest.fixture(scope="module")
def widened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("widened") / "model"
    assert write_widened(Path(refmodel.PATH), folder, least=2**24) == 4
    return folder


def test_inner_features_are_there_so_often_and_each_counts_for_a_part(widened):
    wide, narrow = (load_file(folder / "model.safetensors") for folder in (widened, refmodel.PATH))
    assert wide.keys() == narrow.keys()
    for name, weight in narrow.items():
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            assert wide[name].shape == (4 * weight.shape[0], weight.shape[1])
            assert all(torch.equal(part, weight) for part in wide[name].split(len(weight)))
        elif name.endswith("down_proj.weight"):
            assert wide[name].shape == (weight.shape[0], 4 * weight.shape[1])
            assert all(torch.equal(4 * part, weight) for part in wide[name].split(weight.shape[1], 1))
        else:
            assert torch.equal(wide[name], weight)
    assert sum(tensor.nbytes for tensor in wide.values()) >= 2**24
    assert json.loads((widened / "config.json").read_text())["intermediate_size"] == 4 * 512


def test_a_model_that_is_not_made_so_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 1, "intermediate_size": 4}))
    inner = {f"l.{name}_proj.weight": torch.ones(4, 4) for name in ("gate", "up", "down")}
    save_file(inner, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected bfloat16 weights, got torch\.float32"):
        write_widened(tmp_path, tmp_path / "out")
    save_file({"l.up_proj.weight": torch.ones(4, 4).bfloat16()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="gate, up and down"):
        write_widened(tmp_path, tmp_path / "out")
