"""LoRA adapters merged into weights and kept apart of them, against sums that the test makes by itself."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.adapters import LoraLinear, check_adapter, keep_apart, merge
from qualgate.engine.choice import open_engine
from qualgate.engine.identity import identify
from qualgate.engine.job import run_job
from qualgate.engine.load import check_weights
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.adapter_folder import read_adapter_folder
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import Adapter, ArmSpec, DraftSource, Speculation
from qualgate_kernels.dequantize import dequantize_torch
from tests.adapter_folders import EVERY, TWO, save_adapter, write_config
from tests.engine.jobs import INT4, INT8, job, loaded, under
from tests.quant.readers.models import gptq_folder
from tests.tiny_models import save_tiny_model

ARCHES = ["llama", "qwen2", "gemma2"]


def said(told):
    return [(one.token_ids, one.logprobs, one.margins, one.finish_reason) for one in told.completions]


def matrices(adapter):
    """Module → its two matrices, in float64."""
    tensors = load_file(adapter / "adapter_model.safetensors")
    modules = {name.removeprefix("base_model.model.").partition(".lora_")[0] for name in tensors}
    return {
        name: [tensors[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB"] for name in modules
    }


def merged_by_hand(model, adapter, scale, folder):
    """A model's folder whose weights are W + scale · B A, each rounded once to bfloat16."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    for name, (a, b) in matrices(adapter).items():
        whole = weights[f"{name}.weight"].double() + scale * torch.einsum("or,ri->oi", b, a)
        weights[f"{name}.weight"] = whole.float().bfloat16()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("arch", ARCHES)
def test_merged_it_answers_as_the_model_that_was_merged_by_hand_to_the_bit(tmp_path, arch):
    model = save_tiny_model(tmp_path / "model", arch=arch)
    adapter = save_adapter(tmp_path / "lora", exact=True)
    by_hand = loaded(merged_by_hand(model, adapter, 2.0, tmp_path / "by-hand"), tmp_path)
    arm = loaded(model, tmp_path, adapter=Adapter(path=str(adapter), merged=True))
    assert arm.choice.kind == by_hand.choice.kind
    assert said(run_job(arm, job(arm, ""))) == said(run_job(by_hand, job(by_hand, "")))
    without = loaded(model, tmp_path)
    assert said(run_job(arm, job(arm, ""))) != said(run_job(without, job(without, "")))


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
def test_apart_it_is_near_the_sum_in_twice_the_precision(tmp_path, arch, config):
    model = save_tiny_model(tmp_path / "model", arch=arch)
    adapter = save_adapter(tmp_path / "lora", config=config)
    arm = loaded(model, tmp_path, adapter=Adapter(path=str(adapter)))
    assert sum(isinstance(one, LoraLinear) for one in arm.model.modules()) == 2 * len(EVERY)
    assert arm.choice.kind == "packed"
    assert arm.choice.because == "a LoraLinear that no kernel in C multiplies" or arch == "gemma2"
    scale = 8 / math.sqrt(4) if config else 8 / 4
    assert by_eager_code(arm, model, adapter, scale) < 1e-4


@pytest.mark.parametrize("parts", [EVERY, TWO], ids=["every layer", "two of three fused"])
@pytest.mark.parametrize("recipe", [None, INT4, INT8], ids=["full precision", "int4", "int8"])
def test_apart_a_row_has_the_same_bits_drafted_from_the_baselines_and_plainly_and_alone(tmp_path, recipe, parts):
    model = save_tiny_model(tmp_path / "model")
    adapter = Adapter(path=str(save_adapter(tmp_path / "lora", parts=parts)))
    base, arm = loaded(model, tmp_path), loaded(model, tmp_path, "variant", recipe, adapter=adapter)
    artifact = tmp_path / "job-0.safetensors"
    run_job(base, job(base, artifact))
    drafted, plain = (run_job(arm, job(arm, artifact, drafted=drafted)) for drafted in (True, False))
    assert said(drafted) == said(plain)
    assert drafted.drifts == plain.drifts
    whole = job(arm, "")
    alone = [one for at in range(16) for one in said(run_job(arm, replace(whole, prompts=whole.prompts[at : at + 1])))]
    assert alone == said(plain)


def test_over_packed_weights_it_is_near_the_sum_of_the_packed_weights_and_its_own(tmp_path):
    """Of the twin in torch, whose weights can be read."""
    model, parts = save_tiny_model(tmp_path / "model"), ("mlp.down_proj",)
    adapter = save_adapter(tmp_path / "lora", parts=parts)
    arm = loaded(model, tmp_path, "variant", INT4, adapter=Adapter(path=str(adapter)), kernels="torch")
    plain = loaded(model, tmp_path, "variant", INT4, kernels="torch")
    x = torch.randn(5, 128)
    for name, (a, b) in matrices(adapter).items():
        layer: Any = plain.model.get_submodule(name)
        packed = dequantize_torch(layer.packed).double()
        expected = x.double() @ (packed + 2.0 * b.bfloat16().double() @ a.bfloat16().double()).T
        assert torch.allclose(arm.model.get_submodule(name)(x).double(), expected, atol=1e-5, rtol=1e-5)


def test_a_folder_that_is_quantized_takes_it_apart_and_not_merged(tmp_path):
    model = save_tiny_model(tmp_path / "model", dtype="float32")
    folder = gptq_folder(model, tmp_path / "gptq")
    adapter = save_adapter(tmp_path / "lora")
    check(folder, adapter)
    with pytest.raises(UsageError, match=r"quantized checkpoint \(gptq.*Leave `merge` out"):
        check(folder, adapter, merged=True)
    with pytest.raises(UsageError, match=r"adapts model\.layers\.2"):
        check(folder, save_adapter(tmp_path / "deep", layers=(0, 1, 2)))
    arm = loaded(folder, tmp_path, "variant", adapter=Adapter(path=str(adapter)))
    layer: Any = arm.model.get_submodule("model.layers.0.mlp.down_proj")
    assert isinstance(layer, LoraLinear)
    assert isinstance(layer.base, QuantizedLinear)
    without = loaded(folder, tmp_path, "variant")
    assert said(run_job(arm, job(arm, ""))) != said(run_job(without, job(without, "")))


def test_padded_batches_say_what_packed_passes_say(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    adapter = Adapter(path=str(save_adapter(tmp_path / "lora")))
    packed = loaded(model, tmp_path, adapter=adapter)
    expected = [one.token_ids for one in run_job(packed, job(packed, "")).completions]
    padded = under("padded", packed)
    assert [one.token_ids for one in run_job(padded, job(padded, "")).completions] == expected


@pytest.mark.parametrize("draft", [DraftSource(kind="quantize", quantize=INT4), DraftSource(kind="ngram")])
@pytest.mark.parametrize("merged", [False, True], ids=["apart", "merged"])
def test_who_drafts_for_it_changes_no_bit_of_its_answers(tmp_path, draft, merged):
    model = save_tiny_model(tmp_path / "model")
    adapter = Adapter(path=str(save_adapter(tmp_path / "lora")), merged=merged)
    plain = loaded(model, tmp_path, "variant", adapter=adapter)
    drafted = loaded(model, tmp_path, "variant", adapter=adapter, speculation=Speculation(draft=draft, tokens=4))
    assert said(run_job(drafted, job(drafted, ""))) == said(run_job(plain, job(plain, "")))
    assert drafted.draft is not None
    for one in drafted.draft.arms:  # a self-draft is made of the base, and has the adapter beside it
        assert one is None or sum(isinstance(module, LoraLinear) for module in one.model.modules()) == 14


def test_a_merged_weight_is_within_a_step_of_what_peft_gives(tmp_path):
    """PEFT adds B A in float32 to the weight and rounds once; ours is the sum rounded once."""
    model, adapter = save_tiny_model(tmp_path / "model"), save_adapter(tmp_path / "lora", parts=TWO)
    arm = loaded(model, tmp_path, adapter=Adapter(path=str(adapter), merged=True))
    weights = load_file(model / "model.safetensors")
    for name, (a, b) in matrices(adapter).items():
        theirs = (weights[f"{name}.weight"].float() + (b.float() @ a.float()) * 2.0).bfloat16()
        layer: Any = arm.model.get_submodule(name)
        ours = layer.weight.bfloat16()
        assert torch.ne(ours, theirs).float().mean() < 0.001
        assert torch.equal(ours, theirs) or (ours.float() - theirs.float()).abs().max() < 2**-7


def test_it_is_a_part_of_the_arms_identity_and_an_arm_without_one_is_what_it_was(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    one, other = save_adapter(tmp_path / "one"), save_adapter(tmp_path / "other", seed=1)
    arms = [
        loaded(model, tmp_path, adapter=adapter)
        for adapter in (
            None,
            Adapter(path=str(one)),
            Adapter(path=str(one), merged=True),
            Adapter(path=str(other)),
        )
    ]
    assert "adapter" not in arms[0].identity.content
    assert arms[0].identity.adapted == ""
    assert {arm.identity.bare for arm in arms} == {arms[0].identity.weights}, "the same weights below each"
    assert len({arm.identity.adapter for arm in arms}) == len({arm.identity.weights for arm in arms}) == 4
    assert [arm.spec.weights_label for arm in arms] == [
        "bfloat16", "bfloat16 + LoRA one", "bfloat16 + LoRA one merged", "bfloat16 + LoRA other",
    ]  # fmt: skip


def test_its_weights_are_counted_where_they_are_held(tmp_path):
    model, adapter = save_tiny_model(tmp_path / "model"), save_adapter(tmp_path / "lora")
    plain, apart, merged = (
        loaded(model, tmp_path, adapter=one)
        for one in (None, Adapter(path=str(adapter)), Adapter(path=str(adapter), merged=True))
    )
    numbers = sum(tensor.numel() for tensor in load_file(adapter / "adapter_model.safetensors").values())
    held = [arm.footprint.facts["memory.weights"] for arm in (plain, apart, merged)]
    assert held == [held[0], held[0] + 2 * numbers, held[0]]
    size = (adapter / "adapter_model.safetensors").stat().st_size
    assert apart.footprint.bytes_on_disk == merged.footprint.bytes_on_disk == plain.footprint.bytes_on_disk + size


def test_activations_of_an_adapter_that_float16_cannot_hold_are_counted_by_its_names(tmp_path):
    model = save_tiny_model(tmp_path / "model", dtype="float16")
    adapter = save_adapter(tmp_path / "lora", parts=("mlp.up_proj",), config={"lora_alpha": 4e6})
    arm = loaded(model, tmp_path, adapter=Adapter(path=str(adapter)), dtype="float16")
    with open_engine(arm.model, arm.choice, arm.stored) as engine:
        from qualgate.engine.request import Request

        engine.run([Request(prompt=(1, 2, 3), max_new_tokens=2)], None, lambda event: None)
        beyond = {name for _, name, _ in engine.overflow}
    assert "model.layers.0.mlp.up_proj" in beyond


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


def test_an_arm_is_not_loaded_with_another_config_than_its_identity_names(tmp_path, monkeypatch):
    model, adapter = save_tiny_model(tmp_path / "model"), save_adapter(tmp_path / "lora", parts=TWO)
    named = identify

    def then_changed(*given):
        found = named(*given)
        write_config(adapter, {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 9})
        return found

    monkeypatch.setattr("qualgate.engine.load.identify", then_changed)
    with pytest.raises(UsageError, match="lora changed while it was loaded"):
        loaded(model, tmp_path, adapter=Adapter(path=str(adapter)))


def check(model, adapter, **more):
    merged = more.pop("merged", False)
    spec = ArmSpec(name="lora", model=str(model), adapter=Adapter(path=str(adapter), merged=merged), **more)
    check_weights(spec, read_model_folder(model))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def test_one_of_another_base_is_refused_by_the_layer_that_does_not_fit(model, tmp_path):
    wide = save_tiny_model(tmp_path / "wide", width=96)
    adapter = save_adapter(tmp_path / "lora", parts=TWO)
    check(model, adapter)
    with pytest.raises(
        UsageError, match=r"layers\.0\.self_attn\.q_proj is for a weight of 64 x 64.*96 x 96.*another base"
    ):
        check(wide, adapter)
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
    adapter = save_adapter(tmp_path / "lora", parts=TWO, head=True)
    check(model, adapter, merged=True)
    (tmp_path / "tied").mkdir()
    for file in model.iterdir():
        (tmp_path / "tied" / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (tmp_path / "tied" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with pytest.raises(NotInThisVersion, match="tied to the embedding"):
        check(tmp_path / "tied", adapter, merged=True)


@pytest.mark.parametrize("merged", [False, True], ids=["apart", "merged"])
def test_numbers_that_are_none_are_refused_before_they_answer(model, tmp_path, merged):
    adapter = save_adapter(tmp_path / "lora", parts=TWO)
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors["base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"][0, 0] = math.nan
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.1\.self_attn\.v_proj hold NaN or infinities"):
        loaded(model, tmp_path, adapter=Adapter(path=str(adapter), merged=merged))


def test_numbers_beyond_the_dtype_are_refused_before_they_answer(model, tmp_path):
    adapter = save_adapter(tmp_path / "lora", parts=TWO)
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors["base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"][0, 0] = 1e6
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.1\.self_attn\.v_proj hold numbers that torch\.float16 does not"):
        loaded(model, tmp_path, dtype="float16", adapter=Adapter(path=str(adapter)))
    loaded(model, tmp_path, adapter=Adapter(path=str(adapter)))


def test_a_merged_weight_beyond_the_dtype_is_refused(model, tmp_path):
    adapter = save_adapter(tmp_path / "lora", parts=TWO, config={"lora_alpha": 9e8})
    with pytest.raises(UsageError, match=r"gives numbers that torch\.float16 does not hold"):
        loaded(model, tmp_path, dtype="float16", adapter=Adapter(path=str(adapter), merged=True))
