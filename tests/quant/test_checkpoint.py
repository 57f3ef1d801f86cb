"""Packed checkpoints hold every decoder linear, and come back with the same bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import UsageError
from qualgate.quant.checkpoint import pack, read_packed
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate_kernels.dequantize import dequantize_torch
from tests.tiny_models import save_tiny_model

PER_LAYER = {"llama": 7, "gpt_neox": 4}


@pytest.fixture(scope="module", params=sorted(PER_LAYER))
def folder(request, tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / request.param, arch=request.param)


@pytest.mark.parametrize("method", ["int8", "int4", "int3", "int2", "fp8", "mxfp4", "mxfp8"])
def test_packing_covers_the_decoder_and_reloads_bit_for_bit(folder, tmp_path, method):
    weights = load_file(folder / "model.safetensors")
    packed = read_packed(pack(folder, parse_recipe(method), tmp_path / "packed")).weights
    assert len(packed) == 2 * PER_LAYER[folder.name]
    assert not any("embed" in name or "head" in name or "norm" in name for name in packed)
    for name, weight in packed.items():
        again = quantize_weight(weights[f"{name}.weight"].float(), parse_recipe(method))
        assert torch.equal(weight.codes, again.codes)
        assert torch.equal(weight.scales.view(torch.uint8), again.scales.view(torch.uint8))
    on_disk = (tmp_path / "packed" / "packed.safetensors").stat().st_size
    assert on_disk - sum(weight.nbytes for weight in packed.values()) < 32_000  # the header


def test_layers_that_are_kept_stay_out_or_get_their_own_precision(folder, tmp_path):
    recipe = parse_recipe({"method": "int4", "keep": {"layers.0.*": "bf16", "mlp": "int8", "lm_head": "bf16"}})
    packed = read_packed(pack(folder, recipe, tmp_path / "packed")).weights
    assert len(packed) == PER_LAYER[folder.name]
    assert all(".1." in name for name in packed)
    assert {weight.bits for name, weight in packed.items() if ".mlp." in name} == {8}
    assert {weight.bits for name, weight in packed.items() if ".mlp." not in name} == {4}


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({"layers.7.*": "int8"}, "matches no quantized layer"),
        ({"layers.0.*": "fp16"}, "baseline's dtype, bfloat16"),
        ({"*": "bf16"}, "leaves no layer"),
    ],
)
def test_a_keep_that_does_not_do_what_it_says_is_refused(folder, tmp_path, keep, message):
    with pytest.raises(UsageError, match=message):
        pack(folder, parse_recipe({"method": "int4", "keep": keep}), tmp_path / "packed")


def test_nvfp4_layers_that_servers_fuse_share_their_tensor_scale(tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    packed = read_packed(pack(folder, parse_recipe("nvfp4"), tmp_path / "packed")).weights
    scales = {name: weight.tensor_scale.item() for name, weight in packed.items() if weight.tensor_scale is not None}
    layer = "model.layers.0"
    assert len({scales[f"{layer}.self_attn.{part}_proj"] for part in "qkv"}) == 1
    assert scales[f"{layer}.mlp.gate_proj"] == scales[f"{layer}.mlp.up_proj"] != scales[f"{layer}.mlp.down_proj"]


def test_two_workers_packing_at_once_leave_one_whole_checkpoint_and_any_change_in_it_is_refused(folder, tmp_path):
    out = tmp_path / "packed"
    with ThreadPoolExecutor(2) as pool:
        for made in [pool.submit(pack, folder, parse_recipe("int4"), out) for _ in range(2)]:
            made.result()
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]
    file = out / "manifest.json"
    whole = file.read_bytes()
    for place in range(3, len(whole), len(whole) // 60):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UsageError, match=r"has changed|not a whole packed checkpoint"):
            read_packed(out)
    file.write_bytes(whole)
    read_packed(out)
    tensors = load_file(out / "packed.safetensors")
    next(iter(tensors.values()))[0, 0] += 1
    save_file(tensors, out / "packed.safetensors")
    with pytest.raises(UsageError, match="has changed"):
        read_packed(out)


def test_a_quantized_linear_is_a_linear_with_the_dequantized_weight_and_the_bias():
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 6)
    weight = quantize_weight(linear.weight.detach(), parse_recipe("int4"))
    quantized = QuantizedLinear(weight, linear.bias.detach())
    x = torch.randn(5, 64)
    assert torch.equal(quantized(x), torch.nn.functional.linear(x, dequantize_torch(weight), linear.bias))
    # Nothing of the float weight is held.
    assert sum(buffer.nbytes for buffer in quantized.buffers()) == weight.nbytes
    assert [name for name, _ in quantized.named_parameters()] == ["bias"]
