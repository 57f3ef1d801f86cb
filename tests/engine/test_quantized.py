"""Quantized folders as arms: the same numbers as the floats they stand for, and refusals before anything runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.check_weights import check_weights
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.quantized import load_quantized
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import PER_TOKEN, round_inputs
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import read_model_folder
from qualgate.quant.readers import read_quantized
from qualgate.records import ArmSpec, QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from tests.engine.jobs import job, under
from tests.quant.readers.models import gptq_folder, rounded_folder

IDS = torch.arange(40).view(2, 20)


@pytest.fixture(scope="module")
def model(saved) -> Path:
    return saved(dtype="float32")


@pytest.fixture(scope="module")
def quantized(model, tmp_path_factory) -> Path:
    return gptq_folder(model, tmp_path_factory.mktemp("gptq") / "gptq")


@pytest.fixture
def folder(quantized, tmp_path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(quantized, tmp_path / "gptq"))


def arm(folder: Path, tmp_path: Path, **more):
    """Through the torch twin, whose bits are those of torch's products of the dequantized floats."""
    spec = ArmSpec(name="v", model=str(folder), dtype="float32", kernels="torch", **more)
    return under("padded", load_arm(spec, tmp_path, {}, device="cpu"))


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(IDS).logits


@pytest.mark.parametrize(("arch", "head"), [("llama", False), ("qwen2", False), ("gemma2", True), ("llama", True)])
def test_a_quantized_folder_computes_what_its_floats_do(saved, tmp_path, arch, head):
    plain = saved(arch=arch, dtype="float32")
    bits = 8 if head else 4  # 260 tokens do not fill words of 4-bit zero points
    found = arm(gptq_folder(plain, tmp_path / "gptq", bits=bits, head=head), tmp_path)
    expected = arm(rounded_folder(plain, tmp_path / "rounded", bits=bits, head=head), tmp_path)
    assert torch.equal(logits(found.model), logits(expected.model))
    packed = [module for module in found.model.modules() if isinstance(module, QuantizedLinear)]
    assert len(packed) == 14 + head
    assert not any(parameter.is_meta for parameter in found.model.parameters())
    if arch == "llama":
        assert all(module.bias is None for module in packed)  # AutoGPTQ's biases of zeros are dropped
    work = job(found, "", count=3)  # a packed head has no parameter to ask for its device
    assert run_job(found, work).completions[0].token_ids == run_job(expected, work).completions[0].token_ids


def test_tied_embeddings_stay_tied(model, tmp_path):
    plain = Path(shutil.copytree(model, tmp_path / "model"))
    spoil(plain, lambda tensors: tensors.pop("lm_head.weight"))
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    found = arm(gptq_folder(plain, tmp_path / "gptq"), tmp_path).model
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert torch.equal(logits(found), logits(arm(rounded_folder(plain, tmp_path / "rounded"), tmp_path).model))


def test_a_model_without_weights_has_every_place_and_no_numbers(quantized):
    found = load_quantized(read_model_folder(quantized), torch.float32, weightless=True)
    whole = load_quantized(read_model_folder(quantized), torch.float32)
    assert (found.packed_bytes, found.weights) == (whole.packed_bytes, whole.weights)
    for mine, theirs in ((found.model.named_parameters(), whole.model.named_parameters()),
                         (found.model.named_buffers(), whole.model.named_buffers())):  # fmt: skip
        assert {name: one.shape for name, one in mine} == {name: one.shape for name, one in theirs}
    assert all(parameter.is_meta for parameter in found.model.parameters())


def test_a_quantized_arms_footprint_is_what_it_holds_and_its_parameters_are_weights(quantized, model, tmp_path):
    found, floats = arm(quantized, tmp_path), read_model_folder(model).parameters
    layers = read_quantized(quantized).layers.values()
    packed = sum(layer.weight.nbytes for layer in layers)
    numbers = sum(layer.weight.shape[0] * layer.weight.shape[1] for layer in layers)
    assert found.footprint.quantized_bytes == packed
    memory = found.footprint.bytes_in_memory
    assert memory == pytest.approx(packed + 4 * (floats - numbers), abs=128)  # and the rotary frequencies
    assert found.footprint.bytes_on_disk == (quantized / "gptq_model-4bit-32g.safetensors").stat().st_size
    assert found.footprint.effective_bits == pytest.approx(8 * memory / floats, rel=0.02)
    zero_biases = sum(layer.weight.shape[0] for layer in layers)
    assert read_model_folder(quantized).parameters == floats + zero_biases


def test_the_file_beside_the_config_is_part_of_the_identity(folder, tmp_path):
    before = arm(folder, tmp_path).identity
    settings = json.loads((folder / "quantize_config.json").read_text())
    (folder / "quantize_config.json").write_text(json.dumps(settings | {"note": 1}))
    after = arm(folder, tmp_path).identity
    assert before.config != after.config
    assert replace(after, config=before.config) == before


def spoil(folder: Path, change) -> None:
    file = next(folder.glob("*.safetensors"))
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def settings(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


FIRST = "model.layers.0.self_attn.q_proj"
DAMAGE = {  # others, the readers' own tests have
    "truncated": (lambda f: _cut(next(f.glob("*.safetensors"))), "is truncated: tensor"),
    "NaN scale": (lambda f: spoil(f, lambda t: t[f"{FIRST}.scales"].fill_(float("nan"))), rf"{FIRST}\.qweight has NaN"),
    "bits": (lambda f: settings(f, bits=8), r"says bits 8, and .*quantize_config\.json says bits 4"),
    "mixed": (lambda f: spoil(f, lambda t: t.update({"x.weight_packed": torch.zeros(2)})), "cannot mix formats"),
}


def check(spec: ArmSpec, **more: bool) -> None:
    """What a plan does with every arm."""
    check_weights(spec, read_model_folder(Path(spec.model)), **more)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-500])


@pytest.mark.parametrize("fault", DAMAGE)
def test_damage_is_refused_before_anything_is_generated(folder, fault):
    change, message = DAMAGE[fault]
    spec = ArmSpec(name="v", model=str(folder))
    check(spec)
    change(folder)
    with pytest.raises(UsageError, match=message) as refused:
        check(spec)
    assert str(folder) in str(refused.value)


def test_a_quantized_baseline_unless_the_gate_file_says_so_and_a_second_quantization_are_refused(quantized, tmp_path):
    baseline = ArmSpec(name="baseline", model=str(quantized))
    with pytest.raises(UsageError, match="cannot be the baseline"):
        check(baseline)
    check(baseline, quantized_baseline=True)
    assert load_arm(baseline, tmp_path, {}, device="cpu").footprint.quantized_bytes
    with pytest.raises(UsageError, match="Quantize the model it was made from"):
        check(ArmSpec(name="v", model=str(quantized), quantize=QuantizeRecipe(method="int4", group_size=32)))


def refused_alike(folder: Path, tmp_path: Path, error: type[UsageError], message: str) -> None:
    """Loading says it, and so does the plan, before anything is generated."""
    with pytest.raises(error, match=message):
        arm(folder, tmp_path)
    with pytest.raises(error, match=message):
        check(ArmSpec(name="v", model=str(folder)))


def test_weights_that_do_not_fit_the_architecture_are_refused_before_a_run(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    said = r"down_proj holds 64 x 128 weights, but its architecture has 64 x 256"
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 256}))
    refused_alike(folder, tmp_path, UsageError, said)
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    refused_alike(folder, tmp_path, UsageError, r"does not fit its architecture: size mismatch for model\.embed_tokens")
    (folder / "config.json").write_text(json.dumps(config))
    spoil(folder, lambda tensors: tensors.pop("model.norm.weight"))
    refused_alike(folder, tmp_path, UsageError, r"lacks 1 tensor .* model\.norm\.weight")


def w8a8(model: Path, out: Path, inputs: dict | None) -> Path:
    """`model` as compressed-tensors int-quantized with one scale a row, written by hand."""
    shutil.copytree(model, out)
    tensors = load_file(out / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        scale = tensors[name].abs().amax(-1, keepdim=True) / 127
        tensors[name] = (tensors[name] / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "format": "int-quantized",
        "config_groups": {"g": group},
        "ignore": ["lm_head"],
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config))
    return out


def test_inputs_are_rounded_where_the_format_says_so(model, tmp_path):
    token = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token", "symmetric": True}
    found = arm(w8a8(model, tmp_path / "w8a8", token), tmp_path).model.model.layers[0].mlp.down_proj
    x = torch.randn(3, 128)
    expected = torch.nn.functional.linear(round_inputs(x, PER_TOKEN["int8"]), dequantize_torch(found.packed))
    assert torch.equal(found(x), expected)
    assert not torch.equal(found(x), torch.nn.functional.linear(x, dequantize_torch(found.packed)))


def test_inputs_with_a_fixed_scale_are_rounded_by_the_layers_own(model, tmp_path):
    static = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor", "symmetric": True}
    folder = w8a8(model, tmp_path / "static", static)
    names = [name for name in load_file(folder / "model.safetensors") if name.endswith("proj.weight")]
    scales = {name.replace("weight", "input_scale"): torch.tensor([0.01 * n]) for n, name in enumerate(names, 1)}
    spoil(folder, lambda tensors: tensors.update(scales))
    found = arm(folder, tmp_path).model
    x = torch.randn(3, 64)
    for name, scale in scales.items():
        layer = found.get_submodule(name.removesuffix(".input_scale"))
        if layer.in_features == 64:
            codes = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
            assert torch.equal(layer(x), torch.nn.functional.linear(codes * scale, dequantize_torch(layer.packed)))
    check(ArmSpec(name="v", model=str(folder)))


def test_inputs_that_cannot_be_computed_are_refused_before_a_run(model, tmp_path):
    batch = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "tensor", "symmetric": True}
    folder = w8a8(model, tmp_path / "batch", batch)
    refused_alike(folder, tmp_path, NotInThisVersion, "a row's result would depend on the rows beside it")


def test_a_baseline_with_a_quantized_head_is_refused(model, tmp_path):
    spec = ArmSpec(name="baseline", model=str(gptq_folder(model, tmp_path / "head", bits=8, head=True)))
    with pytest.raises(NotInThisVersion, match="output head is quantized"):
        check(spec, quantized_baseline=True)
    with pytest.raises(NotInThisVersion, match="output head is quantized"):
        load_arm(spec, tmp_path, {}, device="cpu")


def test_fused_mxfp4_experts_are_dequantized_into_their_place(tmp_path):
    """gpt-oss: each expert's matrix is stored [out, in], transformers' parameter is [experts, in, out]."""
    from transformers import AutoModelForCausalLM, GptOssConfig

    config = GptOssConfig(
        vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, num_local_experts=2, num_experts_per_tok=1, layer_types=["full_attention"],
        max_position_embeddings=64,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    random = torch.Generator().manual_seed(0)
    for name, rows, columns in (("gate_up_proj", 64, 64), ("down_proj", 64, 32)):
        whole = f"model.layers.0.mlp.experts.{name}"
        assert tensors.pop(whole).shape == (2, columns, rows)
        tensors[f"{whole}_blocks"] = torch.randint(0, 256, (2, rows, columns // 32, 16), generator=random).byte()
        tensors[f"{whole}_scales"] = torch.randint(110, 130, (2, rows, columns // 32), generator=random).byte()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    settings = json.loads((tmp_path / "config.json").read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "tokenizer.json").write_text("{}")
    folder = read_model_folder(tmp_path)
    assert load_quantized(folder, torch.bfloat16, weightless=True).weights
    found = load_quantized(folder, torch.bfloat16).model
    layers = read_quantized(tmp_path).layers
    for name in ("gate_up_proj", "down_proj"):
        parameter = found.get_parameter(f"model.layers.0.mlp.experts.{name}")
        for expert in range(2):
            weight = layers[f"model.layers.0.mlp.experts.{name}.{expert}"].weight
            assert torch.equal(parameter[expert], dequantize_torch(weight).T)
