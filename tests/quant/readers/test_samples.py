"""What the libraries themselves wrote: decoded to the bit, and generating the text it should."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from qualgate.engine.identity import identify
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.quant.activations import PER_TOKEN
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import read_model_folder
from qualgate.quant.readers import read_quantized
from qualgate.records import ArmSpec, Job, Prompt, UnitKey
from qualgate_kernels.dequantize import dequantize_torch
from tests.depth import with_proofs
from tests.quant.readers.made import MODULE, SAMPLES, folder_of

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample checkpoints are not here")

# The dtype in which the library itself dequantizes; our float32 rounded to it must be the same bits.
ROUNDED_TO = {
    "autogptq-sym": torch.float32,
    "autogptq-asym": torch.float32,
    "autoawq-gemm": torch.float16,
    "gptqmodel-gptq-v2fmt": torch.float16,
    "llmcompressor-gptq-w4a16": torch.float16,
    "llmcompressor-smoothquant-w8a8": torch.float16,
    "llmcompressor-fp8": torch.float16,
    "llmcompressor-nvfp4a16": torch.bfloat16,
    "llmcompressor-mxfp4a16": torch.float32,
    "torchao-int8wo": torch.bfloat16,
}
FORMATS = {
    "autogptq-sym": "int4 g64",
    "autogptq-asym": "int4 g64 asym",
    "autoawq-gemm": "int4 g64 asym",
    "gptqmodel-gptq-v2fmt": "int4 g64 asym",
    "llmcompressor-gptq-w4a16": "int4 g64",
    "llmcompressor-smoothquant-w8a8": "int8 per row",
    "llmcompressor-fp8": "fp8 e4m3 per row",
    "llmcompressor-nvfp4a16": "nvfp4",
    "llmcompressor-mxfp4a16": "mxfp4",
    "torchao-int8wo": "int8 per row",
}
PROMPT, ANSWER = "<s>Question: what is", " three plus four? Answer: seven.</s>"


@pytest.mark.parametrize("name", sorted(ROUNDED_TO))
def test_a_librarys_checkpoint_is_decoded_to_the_bit(name):
    checkpoint = read_quantized(SAMPLES / name)
    reference = load_file(SAMPLES / name / "ref_dequant.safetensors")[f"{MODULE}.weight"]
    layer = checkpoint.layers[MODULE]
    assert torch.equal(dequantize_torch(layer.weight).to(ROUNDED_TO[name]).float(), reference)
    assert layer.weight.format == FORMATS[name]
    assert len(checkpoint.layers) == 14
    assert sorted(checkpoint.tensors)[:2] == ["lm_head.weight", "model.embed_tokens.weight"]
    assert len(checkpoint.tensors) == 7


def test_only_the_samples_that_round_their_inputs_say_so():
    inputs = {name: read_quantized(SAMPLES / name).layers[MODULE].activations.rounding for name in ROUNDED_TO}
    assert {name: how for name, how in inputs.items() if how} == {
        "llmcompressor-smoothquant-w8a8": PER_TOKEN["int8"],
        "llmcompressor-fp8": PER_TOKEN["fp8"],
    }


def test_autogptqs_biases_of_zeros_are_recognised():
    found = read_quantized(SAMPLES / "autogptq-sym").oddities
    assert found == {"a bias of zeros, as AutoGPTQ writes for layers without one": 14}


SPOKEN = ("autogptq-asym", "llmcompressor-fp8", "llmcompressor-nvfp4a16")  # of every kind of product one


@pytest.mark.parametrize("name", with_proofs(sorted(ROUNDED_TO), {*ROUNDED_TO} - {*SPOKEN}))
def test_a_librarys_checkpoint_generates_the_text_it_should(name, tmp_path):
    generates_its_text(sample(name, tmp_path / "model"), tmp_path)


def sample(name: str, out: Path) -> Path:
    """A copy without the reference, which vLLM would load with the model."""
    return Path(shutil.copytree(SAMPLES / name, out, ignore=shutil.ignore_patterns("ref_*")))


def generates_its_text(folder: Path, tmp_path: Path) -> None:
    arm = load_arm(ArmSpec(name="v", model=str(folder)), tmp_path, {}, device="cpu")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = Prompt(
        key=UnitKey("v", "set", "1"),
        case_hash="",
        token_ids=tuple(tokenizer.encode(PROMPT, add_special_tokens=False).ids),
        max_new_tokens=40,
    )
    said = run_job(arm, Job(index=0, arm=arm.spec, prompts=(prompt,), artifact="", drafted=False)).completions[0]
    whole = tokenizer.decode(list(prompt.token_ids + said.token_ids), skip_special_tokens=False)
    assert whole == PROMPT + ANSWER
    assert said.finish_reason == "eos"
    assert 0 < arm.footprint.quantized_bytes < arm.footprint.bytes_in_memory


def largest_inputs(folder: Path, tmp_path: Path) -> dict[str, float]:
    """The largest magnitude that enters each quantized layer while the model reads the whole text."""
    arm = load_arm(ArmSpec(name="v", model=str(folder)), tmp_path, {}, device="cpu")
    found: dict[str, float] = {}
    for name, module in arm.model.named_modules():
        if isinstance(module, QuantizedLinear):
            module.register_forward_pre_hook(
                lambda _, inputs, name=name: found.update({name: float(inputs[0].abs().max())})
            )
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT + ANSWER, add_special_tokens=False).ids
    with torch.inference_mode():
        arm.model(torch.tensor([ids]))
    return found


STATIC = {"num_bits": 8, "strategy": "tensor", "dynamic": False, "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
MX = {"type": "float", "strategy": "group", "group_size": 32, "dynamic": True, "scale_dtype": "torch.uint8"}
PROOF = pytest.mark.proof


@pytest.mark.parametrize(
    ("name", "inputs", "part", "scale"),
    [
        ("llmcompressor-fp8", STATIC | {"type": "float"}, "input_scale", lambda peak: peak / 448),
        pytest.param(
            "llmcompressor-smoothquant-w8a8",
            STATIC | {"type": "int"},
            "input_scale",
            lambda peak: peak / 127.5,
            marks=PROOF,
        ),
        pytest.param("llmcompressor-nvfp4a16", NVFP4, "input_global_scale", lambda peak: 448 * 6 / peak, marks=PROOF),
        ("llmcompressor-mxfp4a16", MX | {"num_bits": 4}, "", None),
        pytest.param("llmcompressor-fp8", MX | {"num_bits": 8}, "", None, marks=PROOF),
    ],
)
def test_the_text_survives_inputs_that_are_rounded_otherwise(name, inputs, part, scale, tmp_path):
    """The sample with another scheme for its inputs, its scales calibrated on the text itself."""
    out = sample(name, tmp_path / "model")
    config = json.loads((out / "config.json").read_text())
    for group in config["quantization_config"]["config_groups"].values():
        group["input_activations"] = inputs
    (out / "config.json").write_text(json.dumps(config))
    if part:
        tensors = load_file(out / "model.safetensors")
        for module, peak in largest_inputs(sample(name, tmp_path / "as-it-was"), tmp_path).items():
            tensors[f"{module}.{part}"] = torch.tensor([scale(peak)], dtype=torch.float32)
        save_file(tensors, out / "model.safetensors", {"format": "pt"})
    assert all(layer.activations.rounding for layer in read_quantized(out).layers.values())
    generates_its_text(out, tmp_path)


@pytest.mark.parametrize("name", sorted(ROUNDED_TO))
def test_a_librarys_checkpoint_is_comparable_with_the_model_it_was_made_from(name, tmp_path):
    """Each library saved the tokenizer in its own way; text, tokens and stop rules are the same."""
    found, original = (
        identify(ArmSpec(name="v", model=""), read_model_folder(sample(folder, tmp_path / folder)), {}, "engine")
        for folder in (name, "original-fp16")
    )
    assert (found.tokenizer, found.template, found.sampling) == (
        original.tokenizer,
        original.template,
        original.sampling,
    )


def test_gpt_oss_experts_become_one_weight_each(tmp_path):
    tensors = load_file(SAMPLES / "gptoss-mxfp4-layout" / "tensors.safetensors")
    folder = folder_of(tmp_path / "model", tensors, {"quant_method": "mxfp4"})
    checkpoint = read_quantized(folder)
    reference = load_file(SAMPLES / "gptoss-mxfp4-layout" / "ref_dequant.safetensors")
    for expert in range(2):
        layer = checkpoint.layers[f"model.layers.0.mlp.experts.down_proj.{expert}"]
        expected = reference["model.layers.0.mlp.experts.down_proj"][expert].T  # transformers keeps [experts, in, out]
        assert torch.equal(dequantize_torch(layer.weight), expected.contiguous())
        assert layer.weight.format == "mxfp4"


def test_gguf_blocks_of_every_type_in_the_sample_are_decoded_to_the_bit():
    pytest.importorskip("gguf")
    folder = SAMPLES / "gguf-blocks"
    reference = load_file(folder / "ref_dequant.safetensors")
    layers = read_quantized(folder).layers
    assert sorted(layers) == sorted(reference)
    for name, expected in reference.items():
        assert torch.equal(dequantize_torch(layers[name].weight), expected), name
