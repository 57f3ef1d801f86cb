"""Layers for further tokens that cannot draft: what is said of them, and that models without them run as before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from qualgate.engine.draft_heads.folder import own_head, read_head_folder
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import DraftSource, Speculation
from tests.engine.draft_heads.models_ahead import LAYERS, WEIGHTS, put, save_model_ahead, say
from tests.engine.jobs import loaded

OWN = Speculation(draft=DraftSource(kind="head", head="own"), tokens=2)
AT = f"model.layers.{LAYERS}."


@pytest.fixture(scope="module")
def ahead(tmp_path_factory):
    return {
        kind: save_model_ahead(tmp_path_factory.mktemp(kind) / "model", kind).folder
        for kind in ("llama", "qwen3", "glm4_moe")
    }


@pytest.fixture
def folder(ahead, tmp_path):
    return Path(shutil.copytree(ahead["llama"], tmp_path / "model"))


def loads(folder, cache):
    return loaded(folder, cache, "v", speculation=OWN)


def gone(_):
    return None


PLANNED = {  # by the plan, which reads no numbers
    "no norm of the state": ("hnorm.weight", gone, "hnorm.weight is missing, expected 64"),
    "no W": ("eh_proj.weight", gone, "eh_proj.weight is missing, expected 64 x 128"),
    "W of another width": (
        "eh_proj.weight", lambda one: one[:, :64].contiguous(), "eh_proj.weight holds 64 x 64 numbers, expected 64 x 12"
    ),
    "a last norm of another width": ("shared_head.norm.weight", lambda one: one[:32].clone(), "holds 32 numbers"),
}  # fmt: skip
LOADED = {
    "no tensor of its layer": ("mlp.up_proj.weight", gone, f"{AT}mlp.up_proj.weight is missing, expected 96 x 64"),
    "a shape that is not its class's": (
        "self_attn.k_proj.weight", lambda one: one[:16].clone(), "k_proj.weight holds 16 x 64 numbers, expected 32 x 64"
    ),
    "NaN": ("self_attn.q_proj.weight", lambda one: one.fill_(torch.nan), "q_proj.weight holds NaN"),
    "an infinite norm": ("enorm.weight", lambda one: one.fill_(torch.inf), "enorm.weight holds NaN or infinities"),
    "a tensor that its class has not": (
        "self_attn.q_norm.weight", lambda _: torch.ones(16), "q_norm.weight holds 16 numbers, expected no such tensor"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", [*PLANNED, *LOADED])
def test_a_damaged_layer_is_refused_by_name_and_by_the_plan_where_that_sees_it(folder, tmp_path, fault):
    name, change, said = (PLANNED | LOADED)[fault]
    put(folder, {AT + name: change(load_file(folder / WEIGHTS).get(AT + name))})
    with pytest.raises(UsageError, match=said) as refused:
        own_head(read_model_folder(folder)) if fault in PLANNED else loads(folder, tmp_path)
    assert not isinstance(refused.value, NotInThisVersion)
    assert fault != "no W" or loaded(folder, tmp_path, "v").draft is None


@pytest.mark.parametrize(
    ("kind", "change", "error", "said"),
    [
        ("glm4_moe", {f"{AT}mlp.experts.3.up_proj.weight": gone}, UsageError, "up_proj.weight is missing, expected 32"),
        ("glm4_moe", {f"{AT}mlp.gate.e_score_correction_bias": gone}, UsageError, "e_score_correction_bias is missing"),
        (
            "qwen3", {"mtp.layers.0.mlp.up_proj.weight": lambda one: one.to(torch.float8_e4m3fn)}, NotInThisVersion,
            r"is quantized \(mtp.layers.0.mlp.up_proj.weight holds F8_E4M3\)",
        ),
    ],
    ids=["an expert", "its router", "a quantized layer"],
)  # fmt: skip
def test_each_expert_and_its_router_have_to_be_there_as_floats(ahead, tmp_path, kind, change, error, said):
    folder = Path(shutil.copytree(ahead[kind], tmp_path / "model"))
    held = load_file(folder / WEIGHTS)
    put(folder, {name: made(held[name]) for name, made in change.items()})
    with pytest.raises(error, match=said):
        loads(folder, tmp_path)


def test_as_many_layers_as_the_config_says_have_to_be_there_and_one_alone_drafts(folder, tmp_path):
    say(folder, num_nextn_predict_layers=2)
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


def test_a_model_without_one_is_told_what_to_do(saved, tmp_path):
    plain = Path(shutil.copytree(saved(), tmp_path / "plain"))
    with pytest.raises(UsageError, match=r"hold none: .*`draft: \{quantize: mxfp4\}`"):
        loads(plain, tmp_path)
    say(plain, num_nextn_predict_layers=1)
    with pytest.raises(UsageError, match=r"although its config says `num_nextn_predict_layers: 1` \(a library"):
        loads(plain, tmp_path)


def test_what_packed_passes_or_its_config_do_not_describe_and_a_model_as_another_s_head_are_refused(
    saved, ahead, tmp_path
):
    neox = Path(shutil.copytree(saved(arch="gpt_neox"), tmp_path / "neox"))
    shapes = {"enorm": (64,), "hnorm": (64,), "eh_proj": (64, 128), "shared_head.norm": (64,)}
    put(neox, {f"{AT}{name}.weight": torch.ones(*shape) for name, shape in shapes.items()})
    say(neox, num_nextn_predict_layers=1)
    with pytest.raises(NotInThisVersion, match="does not draft by itself"):
        loads(neox, tmp_path)
    with pytest.raises(UsageError, match=r"draft: \{head: own\}"):
        read_head_folder(ahead["llama"])
    wide = Path(shutil.copytree(ahead["qwen3"], tmp_path / "wide"))
    say(wide, hidden_size="wide")
    with pytest.raises(UsageError, match="hidden_size"):
        own_head(read_model_folder(wide))
