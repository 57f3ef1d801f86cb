"""Keys and values by the scales that a checkpoint brings for them: used as servers use them, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

from qualgate.engine.job import run_job
from qualgate.engine.load import check_weights
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec
from tests.engine.jobs import INT4, job, loaded
from tests.engine.test_kv_cache import said
from tests.quant.test_cache_scheme import SCHEME
from tests.tiny_models import save_tiny_model

SCALES = {0: (0.015625, 0.25), 1: (0.03, 0.011)}  # by layer, of keys and of values
COMPRESSED = {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {}, "kv_cache_scheme": SCHEME}


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("plain") / "model")


def scaled(plain: Path, folder: Path, tensors=None, declared=None, form="model.layers.{}.self_attn.{}_scale") -> Path:
    """The model with scales, those of SCALES unless told otherwise, and a config that declares them."""
    folder.mkdir(parents=True)
    for file in plain.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    if tensors is None:
        sides = [(n, at, side) for n in SCALES for at, side in enumerate("kv")]
        tensors = {form.format(n, side): torch.tensor(SCALES[n][at]) for n, at, side in sides}
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | ({"quantization_config": declared} if declared else {})))
    return folder


class ScaledCache(DynamicCache):
    """transformers' own, which hands out what a server's fp8 cache with these scales would."""

    def __init__(self, scales) -> None:
        super().__init__()
        self.scales = scales

    def update(self, key_states, value_states, layer_idx, *more, **named):
        states = (
            ((x.double() / scale).clamp(-448, 448).to(torch.float8_e4m3fn).double() * scale).float()
            for x, scale in zip((key_states, value_states), self.scales[layer_idx], strict=True)
        )
        return super().update(*states, layer_idx, *more, **named)


def expected(model: Path, scales, tokens: torch.Tensor) -> torch.Tensor:
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).float().eval()
    theirs.set_attn_implementation("eager")
    with torch.inference_mode():
        return theirs(tokens, past_key_values=ScaledCache(scales), use_cache=True).logits[0].double()


def far(plain: Path, arm, scales) -> float:
    """The largest distance of an arm's log-probs from those of transformers with a cache by these scales."""
    work, most = job(arm, "", count=4), 0.0
    for prompt, told in zip(work.prompts, run_job(arm, work).completions, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *told.token_ids]])
        logits = expected(plain, scales, tokens)[len(prompt.token_ids) - 1 : -1]
        wanted = logits.log_softmax(-1)[range(len(told.token_ids)), torch.tensor(told.token_ids)]
        most = max(most, float((wanted - torch.tensor(told.logprobs)).abs().max()))
    return most


def test_declared_scales_are_used_as_a_server_uses_them(plain, tmp_path):
    arm = loaded(scaled(plain, tmp_path / "scaled", declared=COMPRESSED), tmp_path)
    assert arm.spec.weights_label == "bfloat16, KV fp8"
    assert arm.identity.kv_cache == "fp8, scales of the checkpoint"
    assert dict(arm.choice.scales) == {n: tuple(map(float, torch.tensor(pair))) for n, pair in SCALES.items()}
    assert arm.footprint.left_out == {}, "what is used is not left out"
    assert far(plain, arm, SCALES) < 1e-4
    assert far(plain, arm, dict.fromkeys(SCALES, (1.0, 1.0))) > 1e-2, "by scales of 1 they would be others"


FORMS = ["model.layers.{}.self_attn.{}_scale", "model.layers.{0}.self_attn.{1}_proj.{1}_scale"]


@pytest.mark.parametrize("form", FORMS)
def test_scales_that_nobody_declares_are_used_where_the_gate_file_says_fp8(plain, tmp_path, form):
    folder = scaled(plain, tmp_path / "scaled", form=form)
    silent, told = loaded(folder, tmp_path), loaded(folder, tmp_path, kv_cache="fp8", kv_said=True)
    assert (silent.identity.kv_cache, sum(silent.footprint.left_out.values())) == ("", 4)
    assert silent.choice.scales == {}
    assert set(told.choice.scales) == {0, 1}


def test_what_the_gate_file_says_goes_before_what_a_folder_declares(plain, tmp_path):
    folder = scaled(plain, tmp_path / "scaled", declared=COMPRESSED)
    for kept in ("float32", "int8"):
        arm = loaded(folder, tmp_path, kv_cache=kept, kv_said=True)
        assert arm.identity.kv_cache == {"float32": "", "int8": "int8"}[kept]
        assert (arm.choice.kept, arm.choice.scales) == (kept, {})


def test_weights_made_of_the_folder_have_its_scales_and_drafts_change_no_bit(plain, tmp_path):
    folder = scaled(plain, tmp_path / "scaled", declared=COMPRESSED)
    base, arm = loaded(folder, tmp_path), loaded(folder, tmp_path, "variant", INT4)
    assert arm.choice.scales == base.choice.scales
    artifact = tmp_path / "job-0.safetensors"
    run_job(base, job(base, artifact))
    drafted, alone = (run_job(arm, job(arm, artifact, drafted=drafted)) for drafted in (True, False))
    assert said(drafted) == said(alone)


def test_memory_that_an_arm_leaves_to_the_next_brings_no_scales_along(plain, tmp_path):
    scaled_arm = loaded(scaled(plain, tmp_path / "scaled", declared=COMPRESSED), tmp_path)
    ones = loaded(plain, tmp_path, kv_cache="fp8", kv_said=True)
    first = said(run_job(ones, job(ones, "")))
    between = said(run_job(scaled_arm, job(scaled_arm, "")))
    assert said(run_job(ones, job(ones, ""))) == first
    assert said(run_job(scaled_arm, job(scaled_arm, ""))) == between != first


K0 = "model.layers.0.self_attn.k_scale"
GOOD = {f"model.layers.{n}.self_attn.{side}_scale": torch.tensor(0.5) for n in (0, 1) for side in "kv"}
BAD = {
    "zero": ({K0: torch.tensor(0.0)}, r"k_scale is 0, expected a positive number"),
    "negative": ({K0: torch.tensor(-1.0)}, r"k_scale is -1, expected a positive number"),
    "not a number": ({K0: torch.tensor(float("nan"))}, r"k_scale is nan, expected a positive number"),
    "infinite": ({K0: torch.tensor(float("inf"))}, r"k_scale is inf, expected a positive number"),
    "one a head": ({K0: torch.ones(2)}, r"k_scale is float32 \[2\], expected .*one scale for all keys of a layer"),
    "integers": ({K0: torch.tensor(1)}, r"k_scale is int64 \[\], expected float16"),
    "too small to divide by": ({K0: torch.tensor(1e-40)}, r"k_scale is \S+e-4\d, expected .* damaged"),
    "missing": ({K0: None}, r"no scale of the keys of layer 0 \(layers\.0\.self_attn\.k_scale\)"),
    "all missing": (dict.fromkeys(GOOD), r"says that keys and values are fp8, and has no scale of any layer"),
    "zero points": ({"model.layers.0.self_attn.k_zero_point": torch.tensor(3)}, r"k_zero_point is not 0"),
}


@pytest.mark.parametrize("fault", BAD)
def test_scales_that_cannot_be_are_refused_before_a_run_with_the_tensors_name(plain, tmp_path, fault):
    changes, message = BAD[fault]
    tensors = {name: tensor.clone() for name, tensor in (GOOD | changes).items() if tensor is not None}
    folder = scaled(plain, tmp_path / "bad", tensors, COMPRESSED)
    with pytest.raises(UsageError, match=message):
        check_weights(ArmSpec(name="v", model=str(folder)), read_model_folder(folder))


def test_scales_that_an_arm_does_not_use_are_not_looked_at(plain, tmp_path):
    folder = scaled(plain, tmp_path / "bad", GOOD | {K0: torch.tensor(-1.0)}, COMPRESSED)
    spec = ArmSpec(name="v", model=str(folder), kv_cache="int8", kv_said=True)
    check_weights(spec, read_model_folder(folder))
    with pytest.raises(UsageError, match="k_scale is -1"):
        check_weights(replace(spec, kv_cache="fp8"), read_model_folder(folder))


def test_a_scheme_that_is_not_computed_is_refused_unless_the_gate_file_says_another(plain, tmp_path):
    folder = scaled(
        plain, tmp_path / "heads", declared=COMPRESSED | {"kv_cache_scheme": SCHEME | {"strategy": "attn_head"}}
    )
    with pytest.raises(NotInThisVersion, match=r"attn_head.*Say how this arm holds them"):
        check_weights(ArmSpec(name="v", model=str(folder)), read_model_folder(folder))
    check_weights(ArmSpec(name="v", model=str(folder), kv_said=True), read_model_folder(folder))
