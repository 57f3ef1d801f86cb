"""Checkpoints of NVIDIA ModelOpt, made by hand from their layout: numbers, inputs, cache, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

from qualgate.engine.job import run_job
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.agreement.plain_layers import Module, check_plain
from qualgate.quant.formats import recognise
from qualgate.quant.readers import read_quantized
from qualgate.quant.readers.checkpoint import check_runnable
from qualgate_kernels.dequantize import dequantize_torch
from tests.engine.jobs import job, loaded
from tests.engine.test_own_cache import ScaledCache
from tests.quant.readers.made import MODULE, folder_of
from tests.tiny_models import save_tiny_model

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
ONE = torch.tensor(0.5)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def fp8(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    tensors = {"weight": drawn(6, 32).to(torch.float8_e4m3fn), "weight_scale": ONE, "input_scale": torch.tensor(0.25)}
    return {f"{MODULE}.{name}": tensor for name, tensor in (tensors | more).items()}


def nvfp4(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    tensors = {
        "weight": torch.arange(6 * 16, dtype=torch.uint8).reshape(6, 16) * 37 % 251,
        "weight_scale": (drawn(6, 2).abs() + 0.1).to(torch.float8_e4m3fn),
        "weight_scale_2": torch.tensor(0.125),
        "input_scale": torch.tensor(0.0625),
    }
    return {f"{MODULE}.{name}": tensor for name, tensor in (tensors | more).items()}


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in names}


def read(folder: Path, tensors: dict[str, torch.Tensor], algorithm: str):
    plain = {"model.norm.weight": torch.ones(4)}
    return read_quantized(folder_of(folder, tensors | plain, {"quant_method": "modelopt", "quant_algo": algorithm}))


@pytest.mark.parametrize("algorithm", ["FP8", "fp8"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_fp8_has_one_scale_a_tensor_and_one_for_all_inputs(tmp_path, algorithm, shape):
    tensors = fp8(weight_scale=ONE.reshape(shape), input_scale=torch.tensor(0.25).reshape(shape))
    layer = read(tmp_path, tensors, algorithm).layers[MODULE]
    assert torch.equal(dequantize_torch(layer.weight), 0.5 * tensors[f"{MODULE}.weight"].float())
    assert layer.activations.rounding == Rounding(code="e4m3", bits=8, scale=0.25)
    assert (layer.layout, layer.weight.format) == ("modelopt FP8", "fp8 e4m3 per tensor")


@pytest.mark.parametrize("inner", [False, True])
def test_a_mixed_checkpoint_names_the_algorithm_of_each_layer(tmp_path, inner):
    other, more = MODULE.replace("down", "up"), {}
    for name, tensor in without(fp8(), "input_scale").items():
        more[name.replace("down", "up")] = torch.ones(6) if name.endswith("scale") else tensor
    layers = {MODULE: {"quant_algo": "NVFP4", "group_size": 16}, other: {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}}
    config = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "exclude_modules": ["lm_head"]}
    config = {"quant_method": "modelopt", **({"quantization": config} if inner else config)}
    checkpoint = read_quantized(folder_of(tmp_path, nvfp4() | more, config))
    assert {name: layer.layout for name, layer in checkpoint.layers.items()} == {
        MODULE: "modelopt NVFP4", other: "modelopt FP8_PER_CHANNEL_PER_TOKEN",
    }  # fmt: skip
    alone = read(tmp_path / "alone", nvfp4(), "NVFP4").layers[MODULE]
    assert torch.equal(dequantize_torch(checkpoint.layers[MODULE].weight), dequantize_torch(alone.weight))
    assert checkpoint.layers[MODULE].activations == alone.activations
    modules = [Module(name=name, classes=("Linear",)) for name in (MODULE, other, "model.layers.0.mlp.gate_proj")]
    check_plain(checkpoint.format, modules, checkpoint.layers, [modules[2].name], None)  # not listed: plain
    with pytest.raises(UsageError, match=f"{MODULE} holds a plain weight"):
        check_plain(checkpoint.format, modules, [other], [MODULE], None)


def test_fp8_by_channel_and_token_has_a_scale_a_row_and_none_for_inputs(tmp_path):
    scales = torch.arange(1.0, 7.0)
    layer = read(tmp_path, without(fp8(weight_scale=scales), "input_scale"), "FP8_PER_CHANNEL_PER_TOKEN").layers[MODULE]
    assert torch.equal(dequantize_torch(layer.weight), scales[:, None] * fp8()[f"{MODULE}.weight"].float())
    assert layer.activations.rounding == Rounding(code="e4m3", bits=8)


def test_nvfp4_multiplies_codes_by_their_block_s_scale_and_the_tensor_s(tmp_path):
    tensors = nvfp4()
    layer = read(tmp_path, tensors, "NVFP4").layers[MODULE]
    codes, expected = tensors[f"{MODULE}.weight"], torch.empty(6, 32)
    for row in range(6):
        for k in range(32):
            code = int(codes[row, k // 2]) >> (4 if k % 2 else 0) & 15
            expected[row, k] = E2M1[code] * tensors[f"{MODULE}.weight_scale"][row, k // 16].float() * 0.125
    assert torch.equal(dequantize_torch(layer.weight), expected)
    assert layer.activations.rounding is not None
    assert layer.activations.rounding.label == "nvfp4"
    assert (layer.activations.rounding.tensor_scale, layer.activations.rounding.tensor_divides) == (0.0625, False)


def test_of_w4a16_inputs_are_left_as_they_are(tmp_path):
    checkpoint = read(tmp_path, without(nvfp4(), "input_scale"), "W4A16_NVFP4")
    assert checkpoint.layers[MODULE].activations.rounding is None
    check_runnable(checkpoint)


@pytest.mark.parametrize(
    ("tensors", "algorithm", "message"),
    [
        (fp8(pre_quant_scale=torch.ones(32)), "FP8", "pre_quant_scale multiplies its input"),
        (nvfp4(), "W4A16_NVFP4", "for which W4A16_NVFP4 has no use"),
    ],
)
def test_what_happens_to_inputs_otherwise_is_read_and_not_run(tmp_path, tensors, algorithm, message):
    checkpoint = read(tmp_path, tensors, algorithm)
    with pytest.raises(NotInThisVersion, match=message):
        check_runnable(checkpoint)


def test_an_algorithm_without_a_name_says_that_nothing_is_quantized(tmp_path):
    settings = {"quant_method": "modelopt", "quantization": {"quant_algo": None, "kv_cache_quant_algo": None}}
    assert recognise(folder_of(tmp_path, fp8(), settings)) is None


class Rounded(nn.Module):
    """A linear layer by its FP8 numbers, its input by a fixed scale: what a server computes, in float64."""

    def __init__(self, weight: torch.Tensor, input_scale: float) -> None:
        super().__init__()
        self.numbers, self.input_scale = weight.double(), input_scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = (x.double() / self.input_scale).clamp(-448, 448).float().to(torch.float8_e4m3fn).double()
        return (steps * self.input_scale @ self.numbers.T).float()


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A tiny model and its FP8 export, keys and values by scales of layers, as ModelOpt lays it out."""
    plain = save_tiny_model(tmp_path_factory.mktemp("plain") / "model")
    folder = tmp_path_factory.mktemp("exported") / "model"
    shutil.copytree(plain, folder)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        module, scale = name.removesuffix(".weight"), tensors[name].float().abs().max() / 448
        tensors[name] = (tensors[name].float() / scale).to(torch.float8_e4m3fn)
        tensors |= {f"{module}.weight_scale": scale, f"{module}.input_scale": torch.tensor(0.03)}
        if (side := module.rpartition(".")[2][0]) in "kv":
            tensors[f"{module}.{side}_scale"] = torch.tensor(0.0125)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    about = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (folder / "hf_quant_config.json").write_text(
        json.dumps({"producer": {"name": "modelopt", "version": "0.39.0"}, "quantization": about})
    )
    return plain, folder


def test_an_export_answers_by_its_weights_its_inputs_and_its_cache(exported, tmp_path):
    plain, folder = exported
    arm = loaded(folder, tmp_path, "variant")
    assert (arm.identity.kv_cache, arm.footprint.left_out) == ("fp8, scales of the checkpoint", {})
    theirs = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16).float().eval()
    theirs.set_attn_implementation("eager")
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        module = name.removesuffix(".weight")
        weight = tensors[name].float() * tensors[f"{module}.weight_scale"]
        setattr(theirs.get_submodule(module.rpartition(".")[0]), module.rpartition(".")[2], Rounded(weight, 0.03))
    work = job(arm, "", count=4)
    for prompt, told in zip(work.prompts, run_job(arm, work).completions, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *told.token_ids]])
        scales = dict.fromkeys(range(8), (float(torch.tensor(0.0125)),) * 2)
        with torch.inference_mode():
            logits = theirs(tokens, past_key_values=ScaledCache(scales), use_cache=True).logits[0].double()
        logprobs = logits[len(prompt.token_ids) - 1 : -1].log_softmax(-1)
        assert torch.equal(logprobs.argmax(-1), torch.tensor(told.token_ids))
        said = logprobs[range(len(told.token_ids)), torch.tensor(told.token_ids)]
        assert torch.allclose(said, torch.tensor(told.logprobs).double(), atol=2e-3)
