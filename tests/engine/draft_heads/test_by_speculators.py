"""EAGLE-3 folders that `speculators` wrote draft here as they do there; `by_speculators/make.py` made them by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.dense import DenseEmbedding
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import LoadedHead, load_head
from qualgate.engine.draft_heads.proposer import _Part
from qualgate.engine.draft_heads.published import WEIGHTS, Eagle3Form
from qualgate.engine.draft_heads.rows import Row
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.records import DraftSource, Sampling, Speculation
from tests.engine.jobs import INT4, loaded, the_same_whoever_drafts

FOLDERS = Path(__file__).parent / "by_speculators"
LAYERS = 6  # of the target
FORMS = {
    "by_default": Eagle3Form(norm_before_fc=True, norm_before_residual=True, norm_output=True, window=9),
    "as_asked": Eagle3Form(taps=2, fc_norm=True, norm_before_residual=True, head_norms=True),
}


def embedding(name: str) -> torch.Tensor:
    return load_file(FOLDERS / name / WEIGHTS)["embed_tokens.weight"]


def passes(head: LoadedHead, embed, blocks: KeysValues, row: Row, tokens, states, first: int) -> torch.Tensor:
    part = _Part(row, first, [0] * len(tokens), len(tokens), torch.empty(0))
    return head.layer.forward(head.layer.joined(embed(tokens), states), batch([part], 3), blocks, 1)


@pytest.mark.parametrize("name", FORMS)
def test_its_drafts_have_the_logits_of_the_library_at_every_place(name):
    folder = read_head_folder(FOLDERS / name)
    assert (folder.layout, folder.form, folder.shape.eps) == ("eagle3", FORMS[name], 1e-5)
    head = load_head(folder, LAYERS, embedding(name))
    drafts, embed = load_file(FOLDERS / name / "drafts.safetensors"), DenseEmbedding(embedding(name))
    tokens, rows, steps = drafts["tokens"], len(drafts["tokens"]), len(drafts["logits"])
    window = folder.form.window
    assert head.head is not None
    for length in range(1, rows - steps):  # a draft behind each part of the text
        row, blocks, read = Row(0, (), blocks=[2, 0, 1]), KeysValues(), head.layer.entered(drafts["states"][:length])
        state = passes(head, embed, blocks, row, tokens[:length], read, 0)[-1:]
        for step in range(steps):
            # In training a drafted token sees its text's window; here its own, as where one is served.
            if step and window and length + step > window:
                break
            if step:
                at = length + step - 1
                state = passes(head, embed, blocks, row, tokens[at : at + 1], state, at)
            found = head.head.logits(state)[:, ::2]
            assert torch.allclose(found[0], drafts["logits"][step, length - 1], atol=1e-4, rtol=1e-3), (length, step)


@pytest.mark.parametrize("name", FORMS)
def test_an_embedding_of_its_own_is_held_where_it_is_not_the_target_s(name):
    folder, own = read_head_folder(FOLDERS / name), embedding(name)
    alike, other = load_head(folder, LAYERS, own), load_head(folder, LAYERS, own + 1)
    assert alike.embed is None
    assert other.embed is not None
    assert torch.equal(other.embed(torch.tensor([3])), own[3:4].float())
    assert other.numbers - alike.numbers == own.numel()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("recipe", "tokens"), [(None, 4), pytest.param(INT4, 0, marks=pytest.mark.proof)])
def test_no_bit_of_an_answer_depends_on_it(saved, tmp_path, name, recipe, tokens):
    spec = Speculation(draft=DraftSource(kind="head", head=str(FOLDERS / name)), tokens=tokens)
    model = saved(layers=LAYERS)
    plain, drafted = (loaded(model, tmp_path, "v", recipe, speculation=one) for one in (None, spec))
    the_same_whoever_drafts(plain, drafted, Sampling(), Sampling(temperature=0.8, top_p=0.95))


def edited(folder: Path, layer: dict | None = None, **changes) -> Path:
    config = json.loads((FOLDERS / "by_default" / "config.json").read_text()) | changes
    config["transformer_layer_config"] |= layer or {}
    shutil.copytree(FOLDERS / "by_default", folder)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("layer", "changes", "error", "said"),
    [
        ({}, {"speculators_model_type": "peagle"}, NotInThisVersion, "of the layout peagle"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}, {}, NotInThisVersion, "num_hidden_layers: 2"),
        ({"mlp_bias": True}, {}, NotInThisVersion, "mlp_bias: True"),
        ({"hidden_act": "gelu"}, {}, NotInThisVersion, "hidden_act: gelu"),
        ({"model_type": "gemma2"}, {}, NotInThisVersion, "model_type 'gemma2'"),
        ({"hidden_size": "wide"}, {}, UsageError, "transformers does not read|does not say the sizes"),
        ({"sliding_window": 0}, {}, UsageError, "a window is a whole number from 1"),
        ({}, {"norm_output": "yes"}, UsageError, "norms are true or false"),
        ({}, {"eagle_aux_hidden_state_layer_ids": ["2"]}, UsageError, "lists whole numbers"),
    ],
)
def test_what_is_not_read_of_its_config_is_named(tmp_path, layer, changes, error, said):
    with pytest.raises(error, match=said):
        read_head_folder(edited(tmp_path / "head", layer, **changes))


def test_tensors_that_contradict_its_config_or_each_other_are_named(tmp_path):
    other = edited(tmp_path / "other", fc_norm=True, norm_before_fc=False)
    with pytest.raises(UsageError, match=r"fc_norm\.0\.weight is missing"):
        load_head(read_head_folder(other), LAYERS, embedding("by_default"))
    head = edited(tmp_path / "head")
    tensors = load_file(head / WEIGHTS)
    save_file({**tensors, "t2d": tensors["t2d"].roll(1)}, head / WEIGHTS)
    with pytest.raises(UsageError, match="d2t and t2d name other tokens"):
        load_head(read_head_folder(head), LAYERS, embedding("by_default"))
    for ids in ([0, 3, 5], [2, 3, 6], [5, 3, 2]):
        head = edited(tmp_path / f"ids {ids}", eagle_aux_hidden_state_layer_ids=ids)
        with pytest.raises(UsageError, match="It is another model's, or it reads embeddings"):
            load_head(read_head_folder(head), LAYERS, embedding("by_default"))
