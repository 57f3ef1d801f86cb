"""Fine-grained FP8 as DeepSeek and Qwen publish it."""

from __future__ import annotations

import pytest
import torch

from qualgate.quant.activations import Rounding, round_inputs
from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import MODULE, folder_of

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def made(rows: int, columns: int, exponents: bool) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    shape = (-(-rows // 128), -(-columns // 128))
    scales = torch.rand(shape, generator=random) + 0.01
    if exponents:
        scales = torch.randint(110, 140, shape, generator=random).to(torch.uint8).view(torch.float8_e8m0fnu)
    return {
        f"{MODULE}.weight": torch.randn(rows, columns, generator=random).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale_inv": scales,
        "model.norm.weight": torch.ones(4),
    }


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (256, 384), (130, 200), (5, 129), (1, 64)])
@pytest.mark.parametrize("exponents", [False, True])
def test_blocks_are_multiplied_and_may_be_ragged_at_the_edges(tmp_path, rows, columns, exponents):
    tensors = made(rows, columns, exponents)
    layer = read_quantized(folder_of(tmp_path, tensors, FP8)).layers[MODULE]
    scales = tensors[f"{MODULE}.weight_scale_inv"].float()
    expected = tensors[f"{MODULE}.weight"].float().clone()
    for n in range(rows):
        for block in range(scales.shape[1]):
            expected[n, block * 128 : (block + 1) * 128] *= scales[n // 128, block]
    assert torch.equal(dequantize_torch(layer.weight), expected)
    assert layer.weight.format == "fp8 e4m3 128x128"
    assert layer.activations.rounding.label == "fp8 g128"


def test_without_blocks_there_is_one_scale_a_tensor(tmp_path):
    tensors = {
        f"{MODULE}.weight": torch.ones(4, 6).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale": torch.tensor(0.25),
    }
    layer = read_quantized(
        folder_of(tmp_path, tensors, {"quant_method": "fp8", "activation_scheme": "dynamic"})
    ).layers[MODULE]
    assert dequantize_torch(layer.weight).unique().tolist() == [0.25]
    assert (layer.weight.format, layer.activations.rounding.label) == ("fp8 e4m3 per tensor", "fp8")


@pytest.mark.parametrize("name", ["input_scale", "activation_scale"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("block", [[128, 128], None])
def test_one_scale_for_all_inputs_is_taken_under_either_name(tmp_path, name, shape, block):
    tensors = made(4, 8, False) | {f"{MODULE}.{name}": torch.full(shape, 0.3)}
    if block is None:
        tensors[f"{MODULE}.weight_scale_inv"] = torch.tensor(0.25)
    config = FP8 | {"activation_scheme": "static", "weight_block_size": block}
    layer = read_quantized(folder_of(tmp_path, tensors, config)).layers[MODULE]
    assert layer.activations.rounding == Rounding(code="e4m3", bits=8, scale=float(torch.tensor(0.3)))


def test_inputs_as_they_come_may_have_power_of_two_scales(tmp_path):
    layer = read_quantized(folder_of(tmp_path, made(4, 8, True), FP8 | {"scale_fmt": "ue8m0"})).layers[MODULE]
    assert layer.activations.rounding.label == "fp8 g128 (e8m0 ceiling scales)"
    # 1e-4 is the smallest absmax that DeepSeek's kernels know: ceil(log2(1e-4 / 448)) = -22. 1e-7 is 0.4194 of that,
    # and e4m3 has steps of 1/32 there.
    x = torch.tensor([[1e-7, 0.0]])
    assert round_inputs(x, layer.activations.rounding)[0, 0] == 13 / 32 * 2.0**-22


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        ({"activation_scheme": "else"}, {}, "activation_scheme 'else'"),
        ({}, {"input_scale": torch.tensor(0.3)}, f"{MODULE}.input_scale is there, but activation_scheme is 'dynamic'"),
        ({"activation_scheme": None}, {"activation_scale": torch.tensor(0.3)}, "activation_scale is there"),
        ({"activation_scheme": None}, {}, ""),
    ],
)
def test_inputs_that_are_rounded_otherwise_are_named(tmp_path, config, more, said):
    tensors = made(4, 8, False) | {f"{MODULE}.{name}": tensor for name, tensor in more.items()}
    layer = read_quantized(folder_of(tmp_path, tensors, FP8 | config)).layers[MODULE]
    assert said in layer.activations.unsupported
    assert bool(said) == bool(layer.activations.unsupported)
    assert layer.activations.rounding is None


def test_fbgemm_has_a_scale_a_row_and_a_bound_on_the_scales_of_inputs(tmp_path):
    from transformers.integrations.fbgemm_fp8 import FbgemmFp8Linear

    torch.manual_seed(0)
    theirs = FbgemmFp8Linear(24, 16, bias=False)
    stored = theirs.state_dict()  # the names, shapes and dtypes of transformers
    stored["weight"] = torch.randn(16, 24).to(stored["weight"].dtype)
    stored["weight_scale"] = torch.rand(stored["weight_scale"].shape) + 0.1
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 8.0, "modules_to_not_convert": ["lm_head"]}
    tensors = {f"{MODULE}.{name}": tensor for name, tensor in stored.items()}
    layer = read_quantized(folder_of(tmp_path, tensors, config)).layers[MODULE]
    assert torch.equal(dequantize_torch(layer.weight), stored["weight"].float() * stored["weight_scale"])
    assert (layer.layout, layer.weight.format) == ("fbgemm_fp8 weight_scale", "fp8 e4m3 per row")
    rounding = layer.activations.rounding
    assert rounding is not None
    assert rounding.label == "fp8 up to 8"
    rows = torch.tensor([[1.0, 0.3, -7.0, 0.0], [20.0, 0.3, -16.0, 5.0]])
    scales = rows.abs().amax(1, keepdim=True).clamp(max=8.0) / 448
    expected = (rows / scales).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scales
    assert torch.equal(round_inputs(rows, rounding), expected)
    assert expected[1, 0] == 8.0
