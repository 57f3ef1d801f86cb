"""GPTQ's layouts, written here number by number: every width, v1 and v2, act-order, and the traps of v1's zeros."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from qualgate.quant.formats import recognise
from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import MODULE, dequantized, folder_of, gptq_tensors

N, K = 64, 96


def made(bits: int, group_size: int, *, symmetric: bool, act_order: bool = False, seed: int = 0):
    """q, zeros, scales, g_idx of a random layer; asymmetric zeros avoid 0, which v1 cannot hold."""
    random = np.random.default_rng(seed)
    groups = K // group_size if group_size > 0 else 1
    q = random.integers(0, 2**bits, (N, K))
    middle = np.full((N, groups), 2 ** (bits - 1))
    zeros = middle if symmetric else random.integers(1, 2**bits, (N, groups))
    scales = torch.tensor(random.uniform(0.001, 0.1, (N, groups))).half()
    g_idx = np.arange(K) // (K // groups)
    return q, zeros, scales, random.permutation(g_idx) if act_order else g_idx


def config(bits: int, group_size: int, **more) -> dict:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, **more}


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("layout", ["gptq", "gptq_v2"])
@pytest.mark.parametrize(
    ("group_size", "symmetric", "act_order"), [(32, True, False), (32, False, True), (-1, False, False)]
)
def test_every_width_and_layout_is_read_to_the_bit(tmp_path, bits, layout, group_size, symmetric, act_order):
    q, zeros, scales, g_idx = made(bits, group_size, symmetric=symmetric, act_order=act_order, seed=bits)
    tensors = gptq_tensors(q, zeros, scales, bits, g_idx if act_order else None, v1=layout == "gptq")
    settings = config(bits, group_size, checkpoint_format=layout, sym=symmetric, desc_act=act_order)
    folder = folder_of(tmp_path, tensors, settings)
    layer = read_quantized(folder).layers[MODULE]
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), dequantized(q, zeros, scales, g_idx))
    assert layer.weight.bits == bits
    assert (layer.weight.zero_points is None) == symmetric
    assert (layer.weight.g_idx is not None) == act_order


def test_a_g_idx_in_the_natural_order_costs_nothing(tmp_path):
    q, zeros, scales, g_idx = made(4, 32, symmetric=True)
    folder = folder_of(tmp_path, gptq_tensors(q, zeros, scales, 4, g_idx, v1=True), config(4, 32, desc_act=True))
    assert read_quantized(folder).layers[MODULE].weight.format == "int4 g32"


def test_v1_words_that_lost_their_zero_points_are_counted_and_read_as_the_default_kernel_does(tmp_path):
    """AutoGPTQ stores true zeros [5, 5, 5, 0, 5, 5, 5, 5] as [4, 4, 4, 15, 15, 15, 15, 15]."""
    q, _, scales, g_idx = made(4, -1, symmetric=True)
    zeros = np.full((N, 1), 5)
    zeros[3:8] = 0  # (15 + 1) & 15
    tensors = gptq_tensors(q, zeros, scales, 4, None, v1=True)
    assert tensors[f"{MODULE}.qzeros"][0, 0].item() & 0xFFFFFFFF == 0xFFFFF444
    layer = read_quantized(folder_of(tmp_path, tensors, config(4, -1, sym=False))).layers[MODULE]
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), dequantized(q, zeros, scales, g_idx))
    assert [oddity for oddity in layer.oddities if oddity.startswith("5 stored zero points of 15, read as 0")]


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("maker", "borrows"), [("gptqmodel:7.6.0", True), ("gptqmodel:0.9.1", True), ("gptqmodel:0.8.5", False)]
)
def test_gptqmodel_takes_one_from_whole_words_so_that_a_zero_borrows_from_its_neighbour(tmp_path, bits, maker, borrows):
    """As its converter does: qzeros -= 0x11111111, field by field only at 3 bits."""
    q, zeros, scales, g_idx = made(bits, 32, symmetric=False)
    zeros[::3] = 0
    zeros[1] = 1
    tensors = gptq_tensors(q, zeros, scales, bits, None, v1=False)
    name, once = f"{MODULE}.qzeros", sum(1 << shift for shift in range(0, 32, bits))
    if bits == 3:
        tensors[name] = gptq_tensors(q, zeros, scales, bits, None, v1=True)[name]
    else:
        less = (tensors[name].numpy().astype(np.int64) - once) & 0xFFFFFFFF
        tensors[name] = torch.tensor(less.astype(np.uint32).view(np.int32))
    settings = config(bits, 32, sym=False, checkpoint_format="gptq", meta={"quantizer": [maker]})
    layer = read_quantized(folder_of(tmp_path, tensors, settings)).layers[MODULE]
    same = np.array_equal(dequantize_torch(layer.weight).numpy(), dequantized(q, zeros, scales, g_idx))
    assert same == (borrows or bits == 3)
    assert bool(layer.oddities) == (not borrows)


def test_the_same_bytes_mean_another_weight_in_v2(tmp_path):
    q, zeros, scales, g_idx = made(4, 32, symmetric=False)
    tensors = gptq_tensors(q, zeros, scales, 4, None, v1=True)
    folder = folder_of(tmp_path, tensors, config(4, 32, checkpoint_format="gptq_v2", sym=False))
    found = dequantize_torch(read_quantized(folder).layers[MODULE].weight).numpy()
    assert np.array_equal(found, dequantized(q, zeros - 1, scales, g_idx))


@pytest.mark.parametrize("where", ["quantize_config.json", "header"])
def test_autogptqs_file_names_and_separate_config_are_recognised(tmp_path, where):
    q, zeros, scales, g_idx = made(4, 32, symmetric=True)
    header = {"gptq_bits": "4", "gptq_group_size": "32", "gptq_desc_act": "False", "gptq_is_marlin_format": "False"}
    folder = folder_of(
        tmp_path,
        gptq_tensors(q, zeros, scales, 4, None, v1=True),
        None,
        name="gptq_model-4bit-32g.safetensors",
        metadata=header if where == "header" else None,
    )
    if where == "quantize_config.json":
        (folder / where).write_text(json.dumps({"bits": 4, "group_size": 32, "is_marlin_format": False}))
    format = recognise(folder)
    assert format is not None
    assert format.method == "gptq"
    found = dequantize_torch(read_quantized(folder).layers[MODULE].weight).numpy()
    assert np.array_equal(found, dequantized(q, zeros, scales, g_idx))


def test_gptqmodels_dynamic_gives_a_module_its_own_bits(tmp_path):
    q, zeros, scales, g_idx = made(8, 32, symmetric=True)
    dynamic = {r"-:.*up_proj": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": 32}}
    folder = folder_of(tmp_path, gptq_tensors(q, zeros, scales, 8, None, v1=True), config(4, 16, dynamic=dynamic))
    found = dequantize_torch(read_quantized(folder).layers[MODULE].weight).numpy()
    assert np.array_equal(found, dequantized(q, zeros, scales, g_idx))


def test_a_scale_of_zero_over_zeros_is_a_group_of_zeros(tmp_path):
    q, zeros, scales, _ = made(4, 32, symmetric=True)
    q[0, :32], scales[0, 0] = 8, 0
    folder = folder_of(tmp_path, gptq_tensors(q, zeros, scales, 4, None, v1=True), config(4, 32))
    assert not dequantize_torch(read_quantized(folder).layers[MODULE].weight)[0, :32].any()
