"""Which heads by others are read, and what is said of those that are not."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head
from qualgate.engine.draft_heads.published import WEIGHTS, taps
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.records import DraftSource, Speculation
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.jobs import loaded


def edit(head, **changes):
    file = head / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change(head, **changes):
    tensors = load_file(head / WEIGHTS)
    found = {**tensors, **{name.replace("__", "."): one for name, one in changes.items()}}
    save_file({name: one for name, one in found.items() if one is not None}, head / WEIGHTS)


def test_an_eagle_3_head_is_known_by_its_files(tmp_path):
    first, second = (read_head_folder(save_eagle3(tmp_path / str(seed), seed=seed)) for seed in (0, 1))
    assert (first.layout, first.shape.kv_heads, first.shape.head_dim) == ("eagle3", 2, 16)
    assert first.sha256 != second.sha256


def test_names_of_later_releases_are_read_too(tmp_path):
    head = save_eagle3(tmp_path / "head")
    tensors = load_file(head / WEIGHTS)
    save_file({name.replace("midlayer.", "layers.0."): one for name, one in tensors.items()}, head / WEIGHTS)
    assert load_head(read_head_folder(head), 6, torch.empty(0)).numbers > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["EagleLlamaForCausalLM"]}, "layout EagleLlamaForCausalLM.*reads EAGLE-3"),
        ({"architectures": ["MedusaModel"]}, "layout MedusaModel"),
        ({"architectures": ["DFlashDraftModel"]}, "layout DFlashDraftModel"),
        ({"architectures": ["MiMoMTPModel"]}, "layout MiMoMTPModel"),
        ({"speculators_model_type": "eagle3"}, "has the model_type None"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_other_layouts_are_named_and_refused(tmp_path, changes, said):
    head = save_eagle3(tmp_path / "head")
    edit(head, **changes)
    with pytest.raises(NotInThisVersion, match=said):
        read_head_folder(head)


def test_what_is_damaged_or_a_pickle_is_refused_by_name(tmp_path):
    head = save_eagle3(tmp_path / "head")
    for changes, said in (
        ({"midlayer__hidden_norm__weight": None}, "hidden_norm.weight is missing"),
        ({"fc__weight": torch.zeros(64, 128)}, "fc.weight holds 64 x 128"),
        ({"d2t": None}, "d2t is missing"),
        ({"d2t": torch.full((130,), 200)}, "d2t names tokens that no vocabulary of 260 has"),
    ):
        whole = load_file(head / WEIGHTS)
        change(head, **changes)
        with pytest.raises(UsageError, match=said):
            load_head(read_head_folder(head), 6, torch.empty(0))
        save_file(whole, head / WEIGHTS)
    edit(head, hidden_size="wide")
    with pytest.raises(UsageError, match="does not say the sizes"):
        read_head_folder(head)
    (head / WEIGHTS).unlink()
    with pytest.raises(UsageError, match=r"pytorch_model\.bin"):
        read_head_folder(head)


def test_layers_that_the_target_has_not_are_another_model_s(saved, tmp_path):
    assert taps({}, 32) == (2, 16, 29)
    key = "eagle_aux_hidden_state_layer_ids"
    # lmsys's head of Qwen3-235B, whose 94 layers are read where they are by default, as each of two servers says it.
    assert taps({"eagle_config": {key: [1, 46, 90]}}, 94) == taps({key: [2, 47, 91]}, 94) == taps({}, 94)
    for layers in (2, 3):
        with pytest.raises(UsageError, match="another model's"):
            taps({}, layers)
    spec = Speculation(draft=DraftSource(kind="head", head=str(save_eagle3(tmp_path / "head"))), tokens=3)
    for how, error, said in (
        ({}, UsageError, "another model's"),
        ({"layers": 6, "width": 32}, UsageError, "hidden size of 64, and its target has 32"),
        ({"layers": 6, "arch": "gemma2"}, NotInThisVersion, "reads between a model's layers"),
    ):
        with pytest.raises(error, match=said):
            loaded(saved(**how), tmp_path, "v", speculation=spec)
