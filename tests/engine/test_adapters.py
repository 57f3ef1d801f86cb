"""LoRA adapters merged into weights and kept apart of them, against sums that the test makes by itself."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.adapters import LoraLinear, check_adapter, keep_apart, merge
from qualgate.engine.check_weights import check_weights
from qualgate.engine.identity import identify
from qualgate.engine.job import run_job
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.adapter_folder import read_adapter_folder
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import Adapter, ArmSpec
from qualgate_kernels.dequantize import dequantize_torch
from tests.adapter_folders import EVERY, TWO, save_adapter, write_config
from tests.engine.jobs import (
    INT4,
    INT8,
    NGRAM,
    SELF_DRAFT,
    job,
    loaded,
    said,
    the_same_however_asked,
    the_same_whoever_drafts,
    under,
)
from tests.quant.readers.models import gptq_folder

ARCHES = ["llama", "gemma2", pytest.param("qwen2", marks=pytest.mark.proof)]


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    """Of every layer."""
    return save_adapter(tmp_path_factory.mktemp("lora") / "lora")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Of two layers."""
    return save_adapter(tmp_path_factory.mktemp("small") / "lora", parts=TWO)


def beside(folder, merged=False):
    return Adapter(path=str(folder), merged=merged)


def matrices(adapter):
    """Module → its two matrices, in float64."""
    tensors = load_file(adapter / "adapter_model.safetensors")
    modules = {name.removeprefix("base_model.model.").partition(".lora_")[0] for name in tensors}
    return {
        name: [tensors[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB"] for name in modules
    }


def merged_by_hand(model, adapter, scale, folder):
    """A model's folder whose weights are W + scale · B A, each rounded once to bfloat16."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    for name, (a, b) in matrices(adapter).items():
        whole = weights[f"{name}.weight"].double() + scale * torch.einsum("or,ri->oi", b, a)
        weights[f"{name}.weight"] = whole.float().bfloat16()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("arch", ARCHES)
def test_merged_it_answers_as_the_model_that_was_merged_by_hand_to_the_bit(saved, tmp_path, arch):
    model = saved(arch=arch)
    adapter = save_adapter(tmp_path / "lora", exact=True)
    by_hand = loaded(merged_by_hand(model, adapter, 2.0, tmp_path / "by-hand"), tmp_path)
    arm, without = loaded(model, tmp_path, adapter=beside(adapter, merged=True)), loaded(model, tmp_path)
    assert arm.choice.kind == by_hand.choice.kind
    mine, theirs, bare = (said(run_job(one, job(one, "", count=8))) for one in (arm, by_hand, without))
    assert mine == theirs != bare


def by_eager_code(arm, model, adapter, scale):
    """Log-probs of what `arm` said, by transformers' own code over float64 weights W + scale · B A."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).double().eval()
    for name, (a, b) in matrices(adapter).items():
        rounded = scale * b.bfloat16().double() @ a.bfloat16().double()
        theirs.get_submodule(name).weight.data += rounded
    work, found = job(arm, "", count=6), []
    for prompt, told in zip(work.prompts, run_job(arm, work).completions, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *told.token_ids]])
        with torch.inference_mode():
            logits = theirs(tokens).logits[0, len(prompt.token_ids) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(told.token_ids)), torch.tensor(told.token_ids)]
        found += (expected - torch.tensor(told.logprobs)).abs().tolist()
    return max(found)


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}], ids=["alpha / r", "rank-stabilized"])
@pytest.mark.parametrize("arch", ARCHES)
def test_apart_it_is_near_the_sum_in_twice_the_precision(saved, tmp_path, arch, config):
    model, adapter = saved(arch=arch), save_adapter(tmp_path / "lora", config=config)
    arm = loaded(model, tmp_path, adapter=beside(adapter))
    assert sum(isinstance(one, LoraLinear) for one in arm.model.modules()) == 2 * len(EVERY)
    assert arm.choice.kind == "packed"
    assert arm.choice.because == "a LoraLinear that no kernel in C multiplies" or arch == "gemma2"
    scale = 8 / math.sqrt(4) if config else 8 / 4
    assert by_eager_code(arm, model, adapter, scale) < 1e-4


@pytest.mark.parametrize("parts", [EVERY, TWO], ids=["every layer", "two of three fused"])
@pytest.mark.parametrize("recipe", [None, INT4, INT8], ids=["full precision", "int4", "int8"])
def test_apart_a_row_has_the_same_bits_drafted_from_the_baselines_and_plainly_and_alone(
    tiny_arm, tmp_path, lora, small, recipe, parts
):
    adapter = beside(lora if parts is EVERY else small)
    arm = loaded(Path(tiny_arm.spec.model), tmp_path, "variant", recipe, adapter=adapter)
    the_same_however_asked(tiny_arm, arm, tmp_path / "job-0.safetensors")


def test_over_packed_weights_it_is_near_the_sum_of_the_packed_weights_and_its_own(model, tmp_path):
    """Of the twin in torch, whose weights can be read."""
    adapter = save_adapter(tmp_path / "lora", parts=("mlp.down_proj",))
    arm, plain = (
        loaded(model, tmp_path, "variant", INT4, adapter=one, kernels="torch") for one in (beside(adapter), None)
    )
    x = torch.randn(5, 128)
    for name, (a, b) in matrices(adapter).items():
        packed = dequantize_torch(plain.model.get_submodule(name).packed).double()
        expected = x.double() @ (packed + 2.0 * b.bfloat16().double() @ a.bfloat16().double()).T
        assert torch.allclose(arm.model.get_submodule(name)(x).double(), expected, atol=1e-5, rtol=1e-5)


def test_a_folder_that_is_quantized_takes_it_apart_and_not_merged(saved, lora, tmp_path):
    folder = gptq_folder(saved(dtype="float32"), tmp_path / "gptq")
    check(folder, lora)
    with pytest.raises(UsageError, match=r"quantized checkpoint \(gptq.*Leave `merge` out"):
        check(folder, lora, merged=True)
    with pytest.raises(UsageError, match=r"adapts model\.layers\.2"):
        check(folder, save_adapter(tmp_path / "deep", layers=(0, 1, 2)))
    arm, without = (loaded(folder, tmp_path, "variant", adapter=one) for one in (beside(lora), None))
    layer: Any = arm.model.get_submodule("model.layers.0.mlp.down_proj")
    assert isinstance(layer, LoraLinear)
    assert isinstance(layer.base, QuantizedLinear)
    assert said(run_job(arm, job(arm, "", count=4))) != said(run_job(without, job(without, "", count=4)))


def test_padded_batches_say_what_packed_passes_say(model, lora, tmp_path):
    packed = loaded(model, tmp_path, adapter=beside(lora))
    expected = [one.token_ids for one in run_job(packed, job(packed, "", count=8)).completions]
    padded = under("padded", packed)
    assert [one.token_ids for one in run_job(padded, job(padded, "", count=8)).completions] == expected


@pytest.mark.parametrize("merged", [False, True], ids=["apart", "merged"])
def test_who_drafts_for_it_changes_no_bit_of_its_answers(model, lora, tmp_path, merged):
    plain = loaded(model, tmp_path, "variant", adapter=beside(lora, merged))
    for draft in (replace(SELF_DRAFT, tokens=4), NGRAM):
        drafted = loaded(model, tmp_path, "variant", adapter=beside(lora, merged), speculation=draft)
        the_same_whoever_drafts(plain, drafted)
        assert drafted.draft is not None
        for one in drafted.draft.arms:  # a self-draft is made of the base, and has the adapter beside it
            assert one is None or sum(isinstance(module, LoraLinear) for module in one.model.modules()) == 14


def test_a_merged_weight_is_within_a_step_of_what_peft_gives(model, small, tmp_path):
    """PEFT adds B A in float32 to the weight and rounds once; ours is the sum rounded once."""
    arm = loaded(model, tmp_path, adapter=beside(small, merged=True))
    weights = load_file(model / "model.safetensors")
    for name, (a, b) in matrices(small).items():
        theirs = (weights[f"{name}.weight"].float() + (b.float() @ a.float()) * 2.0).bfloat16()
        layer: Any = arm.model.get_submodule(name)
        ours = layer.weight.bfloat16()
        assert torch.ne(ours, theirs).float().mean() < 0.001
        assert torch.equal(ours, theirs) or (ours.float() - theirs.float()).abs().max() < 2**-7


def test_it_is_a_part_of_the_arms_identity_and_its_weights_are_counted_where_they_are_held(model, lora, tmp_path):
    other = save_adapter(tmp_path / "other", seed=1)
    arms = [
        loaded(model, tmp_path, adapter=adapter)
        for adapter in (None, beside(lora), beside(lora, merged=True), beside(other))
    ]
    assert arms[0].identity.content["adapter"] == ""
    assert arms[0].identity.adapted == ""
    assert {arm.identity.bare for arm in arms} == {arms[0].identity.weights}, "the same weights below each"
    assert len({arm.identity.adapter for arm in arms}) == len({arm.identity.weights for arm in arms}) == 4
    assert [arm.spec.weights_label for arm in arms] == [
        "bfloat16", "bfloat16 + LoRA lora", "bfloat16 + LoRA lora merged", "bfloat16 + LoRA other",
    ]  # fmt: skip
    numbers = sum(tensor.numel() for tensor in load_file(lora / "adapter_model.safetensors").values())
    weights, *more = (arm.footprint.facts["memory.weights"] for arm in arms)
    assert more == [weights + 2 * numbers, weights, weights + 2 * numbers]
    size, (disk, *with_it) = (
        (lora / "adapter_model.safetensors").stat().st_size,
        [arm.footprint.bytes_on_disk for arm in arms],
    )
    assert set(with_it) == {disk + size}


def test_activations_of_an_adapter_that_float16_cannot_hold_are_counted_by_its_names(saved, tmp_path):
    adapter = save_adapter(tmp_path / "lora", parts=("mlp.up_proj",), config={"lora_alpha": 4e6})
    arm = loaded(saved(dtype="float16"), tmp_path, adapter=beside(adapter), dtype="float16")
    assert "model.layers.0.mlp.up_proj" in {name for _, name, _ in run_job(arm, job(arm, "", count=2)).overflow}


@pytest.mark.parametrize("turned", [True, False], ids=["as config says", "as the layer is"])
def test_layers_whose_weights_lie_turned_are_adapted_as_they_lie(tmp_path, turned):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("gpt2", vocab_size=260, n_embd=64, n_layer=1, n_head=4)
    apart, merged = (AutoModelForCausalLM.from_config(config).eval().requires_grad_(False) for _ in range(2))
    merged.load_state_dict(apart.state_dict())
    name = "transformer.h.0.attn.c_attn"
    weight, bias = apart.get_submodule(name).weight.double(), apart.get_submodule(name).bias.double()
    a, b = torch.randn(4, 64).bfloat16().float(), torch.randn(192, 4).bfloat16().float()
    tensors = {f"base_model.model.{name}.lora_{part}.weight": one for part, one in (("A", a), ("B", b))}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    write_config(tmp_path, {"target_modules": ["c_attn"], "fan_in_fan_out": turned})
    adapter, x = read_adapter_folder(tmp_path), torch.randn(5, 64)
    check_adapter(adapter, apart, merged=False)
    expected = x.double() @ (weight + 2.0 * (b.double() @ a.double()).T) + bias
    keep_apart(apart, adapter, torch.bfloat16)
    merge(merged, adapter, torch.float32)
    for model in (apart, merged):
        assert torch.allclose(model.get_submodule(name)(x).double(), expected, atol=1e-4, rtol=1e-4)


def test_a_file_that_changed_since_it_was_named_is_not_loaded(tmp_path):
    folder = read_adapter_folder(save_adapter(tmp_path / "lora", parts=TWO))
    save_adapter(tmp_path / "lora", parts=TWO, seed=1)
    with pytest.raises(UsageError, match="changed while it was loaded"):
        merge(torch.nn.Module(), folder, torch.float32)


def test_an_arm_is_not_loaded_with_another_config_than_its_identity_names(model, tmp_path, monkeypatch):
    adapter, named = save_adapter(tmp_path / "lora", parts=TWO), identify

    def then_changed(*given):
        found = named(*given)
        write_config(adapter, {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 9})
        return found

    monkeypatch.setattr("qualgate.engine.load.identify", then_changed)
    with pytest.raises(UsageError, match="lora changed while it was loaded"):
        loaded(model, tmp_path, adapter=beside(adapter))


def check(model, adapter, merged=False):
    check_weights(ArmSpec(name="lora", model=str(model), adapter=beside(adapter, merged)), read_model_folder(model))


def test_one_of_another_base_is_refused_by_the_layer_that_does_not_fit(model, saved, small, tmp_path):
    check(model, small)
    said_of_it = r"layers\.0\.self_attn\.q_proj is for a weight of 64 x 64.*96 x 96.*another base"
    with pytest.raises(UsageError, match=said_of_it):
        check(saved(width=96), small)
    deep = save_adapter(tmp_path / "deep", parts=TWO, layers=(0, 1, 2))
    with pytest.raises(UsageError, match=r"adapts model\.layers\.2\.self_attn\.q_proj, and .* no linear layer"):
        check(model, deep)


DOES_NOT_FIT = {
    "a layer's tensors missing": ({"layers": (0,)}, UsageError, r"lacks tensors of 2 layers \(model\.layers\.1"),
    "tensors that no target names": (
        {"config": {"target_modules": ["q_proj"]}}, UsageError, "holds unnamed tensors of 2 layers",
    ),
    "turned weights": ({"config": {"fan_in_fan_out": True}}, UsageError, "`fan_in_fan_out` says"),
    "the head, apart": ({"head": True}, NotInThisVersion, "adapts the output head, which is not kept apart"),
    "an embedding as a target": (
        {"config": {"target_modules": ["q_proj", "v_proj", "embed_tokens"]}}, NotInThisVersion, "adapts the embedding",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", DOES_NOT_FIT)
def test_what_does_not_fit_the_model_is_refused_by_name(model, tmp_path, fault):
    how, error, said_of_it = DOES_NOT_FIT[fault]
    with pytest.raises(error, match=said_of_it):
        check(model, save_adapter(tmp_path / "lora", parts=TWO, **how))


def test_the_head_may_be_merged_where_it_is_not_tied(model, tmp_path):
    adapter, tied = save_adapter(tmp_path / "lora", parts=TWO, head=True), tmp_path / "tied"
    check(model, adapter, merged=True)
    shutil.copytree(model, tied)
    config = json.loads((tied / "config.json").read_text())
    (tied / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tensors = load_file(tied / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tied / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotInThisVersion, match="tied to the embedding"):
        check(tied, adapter, merged=True)


REFUSED = {  # by the number in one of its tensors, and lora_alpha
    "NaN, apart": ("B", math.nan, 8, "bfloat16", False, r"layers\.1\.self_attn\.v_proj hold NaN or infinities"),
    "NaN, merged": ("B", math.nan, 8, "bfloat16", True, r"layers\.1\.self_attn\.v_proj hold NaN or infinities"),
    "beyond the dtype": ("A", 1e6, 8, "float16", False, r"v_proj hold numbers that torch\.float16 does not"),
    "of bfloat16": ("A", 1e6, 8, "bfloat16", False, ""),
    "beyond it when merged": ("A", 0.0, 9e8, "float16", True, r"gives numbers that torch\.float16 does not hold"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_numbers_that_are_none_or_beyond_the_dtype_are_refused_before_they_answer(model, tmp_path, why):
    matrix, number, alpha, dtype, merged, message = REFUSED[why]
    adapter = save_adapter(tmp_path / "lora", parts=TWO, config={"lora_alpha": alpha})
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors[f"base_model.model.model.layers.1.self_attn.v_proj.lora_{matrix}.weight"][0, 0] = number
    save_file(tensors, adapter / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=message) if message else nullcontext():
        loaded(model, tmp_path, dtype=dtype, adapter=beside(adapter, merged))
