"""Layers for further tokens that cannot draft: what is said of them, and that models without them run as before."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from qualgate.engine.draft_heads.folder import own_head, read_head_folder
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import DraftSource, Speculation
from tests.engine.draft_heads.models_ahead import LAYERS, WEIGHTS, put, save_model_ahead, say
from tests.engine.jobs import loaded
from tests.tiny_models import save_tiny_model

OWN = Speculation(draft=DraftSource(kind="head", head="own"), tokens=2)
AT = f"model.layers.{LAYERS}."


def loads(folder, cache):
    return loaded(folder, cache, "v", speculation=OWN)


def changed(folder, name, change):
    tensors = load_file(folder / WEIGHTS)
    put(folder, {AT + name: change(tensors[AT + name])})


PLANNED = {  # by the plan, which reads no numbers
    "no norm of the state": ("hnorm.weight", lambda _: None, "hnorm.weight is missing, expected 64"),
    "no W": ("eh_proj.weight", lambda _: None, "eh_proj.weight is missing, expected 64 x 128"),
    "W of another width": (
        "eh_proj.weight", lambda one: one[:, :64].contiguous(), "eh_proj.weight holds 64 x 64 numbers, expected 64 x 12"
    ),
    "a last norm of another width": ("shared_head.norm.weight", lambda one: one[:32].clone(), "holds 32 numbers"),
}  # fmt: skip
LOADED = {
    "no tensor of its layer": ("mlp.up_proj.weight", lambda _: None, "up_proj.weight is missing, expected 96 x 64"),
    "a shape that is not its class's": (
        "self_attn.k_proj.weight", lambda one: one[:16].clone(), "k_proj.weight holds 16 x 64 numbers, expected 32 x 64"
    ),
    "NaN": ("self_attn.q_proj.weight", lambda one: one.fill_(torch.nan), "q_proj.weight holds NaN"),
    "an infinite norm": ("enorm.weight", lambda one: one.fill_(torch.inf), "enorm.weight holds NaN or infinities"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANNED)
def test_a_damaged_layer_is_refused_by_the_plan(tmp_path, fault):
    name, change, said = PLANNED[fault]
    folder = save_model_ahead(tmp_path / "model").folder
    changed(folder, name, change)
    with pytest.raises(UsageError, match=said) as refused:
        own_head(read_model_folder(folder))
    assert not isinstance(refused.value, NotInThisVersion)
    assert loaded(folder, tmp_path, "v").draft is None


@pytest.mark.parametrize("fault", LOADED)
def test_a_damaged_layer_is_refused_by_name_when_it_is_loaded(tmp_path, fault):
    name, change, said = LOADED[fault]
    folder = save_model_ahead(tmp_path / "model").folder
    changed(folder, name, change)
    with pytest.raises(UsageError, match=said) as refused:
        loads(folder, tmp_path)
    assert not isinstance(refused.value, NotInThisVersion)
    assert AT in str(refused.value)


def test_a_tensor_that_its_class_has_not_is_refused(tmp_path):
    folder = save_model_ahead(tmp_path / "model").folder
    put(folder, {f"{AT}self_attn.q_norm.weight": torch.ones(16)})
    with pytest.raises(UsageError, match=r"q_norm.weight holds 16 numbers, expected no such tensor"):
        loads(folder, tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("experts.3.up_proj.weight", "experts.3.up_proj.weight is missing, expected 32 x 64"),
        ("gate.e_score_correction_bias", "e_score_correction_bias is missing"),
    ],
)
def test_each_expert_and_its_router_have_to_be_there(tmp_path, name, said):
    folder = save_model_ahead(tmp_path / "model", "glm4_moe").folder
    put(folder, {f"{AT}mlp.{name}": None})
    with pytest.raises(UsageError, match=said):
        loads(folder, tmp_path)


def test_as_many_layers_as_the_config_says_have_to_be_there_and_one_alone_drafts(tmp_path):
    folder = save_model_ahead(tmp_path / "model", num_nextn_predict_layers=2).folder
    with pytest.raises(
        UsageError, match=r"says `num_nextn_predict_layers: 2`, and its files hold 1 such layers"
    ) as why:
        loads(folder, tmp_path)
    assert not isinstance(why.value, NotInThisVersion)
    second = {name.replace(AT, f"model.layers.{LAYERS + 1}."): one for name, one in load_file(folder / WEIGHTS).items()}
    put(folder, {name: one for name, one in second.items() if f".{LAYERS + 1}." in name})
    with pytest.raises(NotInThisVersion, match="2 layers for further tokens"):
        loads(folder, tmp_path)
    assert loaded(folder, tmp_path, "v").draft is None


def test_a_model_without_one_is_told_what_to_do(tmp_path):
    plain = save_tiny_model(tmp_path / "plain")
    with pytest.raises(UsageError, match=r"hold none: .*`qualgate draft train`"):
        loads(plain, tmp_path)
    say(plain, num_nextn_predict_layers=1)
    with pytest.raises(UsageError, match=r"although its config says `num_nextn_predict_layers: 1` \(a library"):
        loads(plain, tmp_path)


def test_a_quantized_layer_is_not_taken_for_floats(tmp_path):
    folder = save_model_ahead(tmp_path / "model", "qwen3").folder
    weight = "mtp.layers.0.mlp.up_proj.weight"
    put(folder, {weight: load_file(folder / WEIGHTS)[weight].to(torch.float8_e4m3fn)})
    with pytest.raises(NotInThisVersion, match=r"is quantized \(mtp.layers.0.mlp.up_proj.weight holds F8_E4M3\)"):
        loads(folder, tmp_path)


def test_an_attention_that_packed_passes_do_not_have_is_refused(tmp_path):
    folder = save_tiny_model(tmp_path / "model", arch="gpt_neox")
    tensors = {
        "enorm.weight": (64,),
        "hnorm.weight": (64,),
        "eh_proj.weight": (64, 128),
        "shared_head.norm.weight": (64,),
    }
    put(folder, {AT + name: torch.ones(*shape) for name, shape in tensors.items()})
    say(folder, num_nextn_predict_layers=1)
    with pytest.raises(NotInThisVersion, match="does not draft by itself"):
        loads(folder, tmp_path)


def test_such_a_model_is_no_head_of_another(tmp_path):
    with pytest.raises(UsageError, match=r"draft: \{head: own\}"):
        read_head_folder(save_model_ahead(tmp_path / "model").folder)


def test_a_layer_that_config_does_not_describe_is_refused(tmp_path):
    folder = save_model_ahead(tmp_path / "model", "qwen3").folder
    say(folder, hidden_size="wide")
    with pytest.raises(UsageError, match="hidden_size"):
        own_head(read_model_folder(folder))
