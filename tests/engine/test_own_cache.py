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

from qualgate.engine.check_weights import check_weights
from qualgate.engine.job import run_job
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec
from tests.engine.jobs import INT4, job, loaded, said, the_same_however_asked
from tests.quant.test_cache_scheme import SCHEME

SCALES = {0: (0.015625, 0.25), 1: (0.03, 0.011)}  # by layer, of keys and of values
COMPRESSED = {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {}, "kv_cache_scheme": SCHEME}


def scaled(model: Path, folder: Path, tensors=None, declared=None, form="model.layers.{}.self_attn.{}_scale") -> Path:
    """The model with scales, those of SCALES unless told otherwise, and a config that declares them."""
    folder.mkdir(parents=True)
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    if tensors is None:
        sides = [(n, at, side) for n in SCALES for at, side in enumerate("kv")]
        tensors = {form.format(n, side): torch.tensor(SCALES[n][at]) for n, at, side in sides}
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | ({"quantization_config": declared} if declared else {})))
    return folder


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    """With scales that its config declares."""
    return scaled(model, tmp_path_factory.mktemp("scaled") / "model", declared=COMPRESSED)


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


def far(model: Path, arm, *ways) -> list[float]:
    """By scales of each way the largest distance of an arm's log-probs from transformers' with a cache by them."""
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).float().eval()
    theirs.set_attn_implementation("eager")
    work, most = job(arm, "", count=4), [0.0] * len(ways)
    for prompt, told in zip(work.prompts, run_job(arm, work).completions, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *told.token_ids]])
        for at, scales in enumerate(ways):
            with torch.inference_mode():
                logits = theirs(tokens, past_key_values=ScaledCache(scales), use_cache=True).logits[0].double()
            logprobs = logits[len(prompt.token_ids) - 1 : -1].log_softmax(-1)
            wanted = logprobs[range(len(told.token_ids)), torch.tensor(told.token_ids)]
            most[at] = max(most[at], float((wanted - torch.tensor(told.logprobs)).abs().max()))
    return most


def test_declared_scales_are_used_as_a_server_uses_them_and_no_bit_depends_on_drafts(model, folder, tmp_path):
    arm, variant = loaded(folder, tmp_path), loaded(folder, tmp_path, "variant", INT4)
    assert arm.spec.weights_label == "bfloat16, KV fp8"
    assert arm.identity.kv_cache == "fp8, scales of the checkpoint"
    assert dict(arm.choice.scales) == {n: tuple(map(float, torch.tensor(pair))) for n, pair in SCALES.items()}
    assert arm.choice.scales == variant.choice.scales
    assert arm.footprint.left_out == {}, "what is used is not left out"
    by_its_own, by_ones = far(model, arm, SCALES, dict.fromkeys(SCALES, (1.0, 1.0)))
    assert by_its_own < 1e-4
    assert by_ones > 1e-2
    the_same_however_asked(arm, variant, tmp_path / "job-0.safetensors")


@pytest.mark.parametrize(
    "form", ["model.layers.{}.self_attn.{}_scale", "model.layers.{0}.self_attn.{1}_proj.{1}_scale"]
)
def test_scales_that_nobody_declares_are_used_where_the_gate_file_says_fp8(model, tmp_path, form):
    folder = scaled(model, tmp_path / "scaled", form=form)
    silent, told = loaded(folder, tmp_path), loaded(folder, tmp_path, kv_cache="fp8", kv_said=True)
    assert (silent.identity.kv_cache, sum(silent.footprint.left_out.values())) == ("", 4)
    assert silent.choice.scales == {}
    assert set(told.choice.scales) == {0, 1}


def test_what_the_gate_file_says_goes_before_what_a_folder_declares(folder, tmp_path):
    for kept in ("float32", "int8"):
        arm = loaded(folder, tmp_path, kv_cache=kept, kv_said=True)
        assert arm.identity.kv_cache == {"float32": "", "int8": "int8"}[kept]
        assert (arm.choice.cache_form, arm.choice.scales) == (kept, {})


def test_memory_that_an_arm_leaves_to_the_next_brings_no_scales_along(model, folder, tmp_path):
    scaled_arm, ones = loaded(folder, tmp_path), loaded(model, tmp_path, kv_cache="fp8", kv_said=True)
    first, between, again, then = (said(run_job(arm, job(arm, "", count=4))) for arm in (ones, scaled_arm) * 2)
    assert first == again
    assert between == then != first


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
    "missing": ({K0: None}, r"none of the keys of layer 0 \(layers\.0\.self_attn\.k_scale\)"),
    "all missing": (dict.fromkeys(GOOD), r"says that keys and values are fp8, and has no scale of any layer"),
    "zero points": ({"model.layers.0.self_attn.k_zero_point": torch.tensor(3)}, r"k_zero_point is not 0"),
}


@pytest.mark.parametrize("fault", BAD)
def test_scales_that_cannot_be_are_refused_before_a_run_with_the_tensors_name(model, tmp_path, fault):
    changes, message = BAD[fault]
    tensors = {name: tensor.clone() for name, tensor in (GOOD | changes).items() if tensor is not None}
    folder = scaled(model, tmp_path / "bad", tensors, COMPRESSED)
    with pytest.raises(UsageError, match=message):
        check_weights(ArmSpec(name="v", model=str(folder)), read_model_folder(folder))


def test_scales_that_an_arm_does_not_use_are_not_looked_at(model, tmp_path):
    folder = scaled(model, tmp_path / "bad", GOOD | {K0: torch.tensor(-1.0)}, COMPRESSED)
    spec = ArmSpec(name="v", model=str(folder), kv_cache="int8", kv_said=True)
    check_weights(spec, read_model_folder(folder))
    with pytest.raises(UsageError, match="k_scale is -1"):
        check_weights(replace(spec, kv_cache="fp8"), read_model_folder(folder))


def test_a_scheme_that_is_not_computed_is_refused_unless_the_gate_file_says_another(model, tmp_path):
    folder = scaled(
        model, tmp_path / "heads", declared=COMPRESSED | {"kv_cache_scheme": SCHEME | {"strategy": "attn_head"}}
    )
    with pytest.raises(NotInThisVersion, match=r"attn_head.*Choose a format for this arm"):
        check_weights(ArmSpec(name="v", model=str(folder)), read_model_folder(folder))
    check_weights(ArmSpec(name="v", model=str(folder), kv_said=True), read_model_folder(folder))
