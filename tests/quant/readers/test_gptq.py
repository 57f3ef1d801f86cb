"""GPTQ's layouts, written here number by number: every width, v1 and v2, act-order, and the traps of v1's zeros."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.formats import recognise
from qualgate.quant.readers import read_quantized
from qualgate.quant.shards import weight_files
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
    folder = folder_of(tmp_path, tensors, config(bits, group_size, checkpoint_format=layout, sym=symmetric))
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
    folder = folder_of(tmp_path, tensors, config(4, 32, checkpoint_format="gptq_v2"))
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
    assert (format.method, weight_files(folder)[0].name) == ("gptq", "gptq_model-4bit-32g.safetensors")
    found = dequantize_torch(read_quantized(folder).layers[MODULE].weight).numpy()
    assert np.array_equal(found, dequantized(q, zeros, scales, g_idx))


def test_gptqmodels_dynamic_gives_a_module_its_own_bits(tmp_path):
    q, zeros, scales, g_idx = made(8, 32, symmetric=True)
    dynamic = {r"-:.*up_proj": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": 32}}
    folder = folder_of(tmp_path, gptq_tensors(q, zeros, scales, 8, None, v1=True), config(4, 16, dynamic=dynamic))
    found = dequantize_torch(read_quantized(folder).layers[MODULE].weight).numpy()
    assert np.array_equal(found, dequantized(q, zeros, scales, g_idx))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"is_marlin_format": True}, NotInThisVersion, "is_marlin_format is true"),
        ({"checkpoint_format": "marlin"}, NotInThisVersion, "'marlin' is not read"),
        ({"bits": 5}, UsageError, "bits is 5, expected one of 2, 3, 4, 8"),
        ({"bits": "4"}, UsageError, "bits is '4', expected int"),
        ({"bits": 8}, UsageError, r"qweight \[12, 64\] holds 384 bits a column, but the config says 8 bits for 96"),
        (
            {"group_size": 16},
            UsageError,
            r"scales is float16 \[3, 64\], expected .* \[6, 64\] \(96 in_features at 4 bits, in groups",
        ),
        ({"group_size": 40}, UsageError, "96 in_features, not a multiple of the group size 40"),
        ({"group_size": 0}, UsageError, "group_size is 0"),
    ],
)
def test_a_config_that_the_tensors_contradict_is_refused(tmp_path, changes, error, message):
    q, zeros, scales, g_idx = made(4, 32, symmetric=True)
    tensors = gptq_tensors(q, zeros, scales, 4, g_idx, v1=True)
    folder = folder_of(tmp_path, tensors, config(4, 32) | changes)
    with pytest.raises(error, match=message) as refused:
        read_quantized(folder)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t[f"{MODULE}.g_idx"].__setitem__(7, 3), "g_idx: expected groups 0 to 2, got 0 to 3"),
        (lambda t: t[f"{MODULE}.g_idx"].__setitem__(7, -1), "g_idx: expected groups 0 to 2, got -1"),
        (lambda t: t[f"{MODULE}.scales"].__setitem__((0, 0), float("nan")), "NaN or infinite scales"),
        (lambda t: t[f"{MODULE}.scales"].__setitem__((0, 0), -0.1), "negative scales"),
        (lambda t: t[f"{MODULE}.scales"].__setitem__((0, 0), 0.0), "a scale of 0 for weights that are not 0"),
        (lambda t: t.pop(f"{MODULE}.scales"), rf"no tensor {MODULE}\.scales"),
        (lambda t: t.pop(f"{MODULE}.qzeros"), rf"no tensor {MODULE}\.qzeros"),
        (lambda t: t.update({f"{MODULE}.scales": t[f"{MODULE}.scales"].T.contiguous()}), "scales is float16"),
        (lambda t: t.update({f"{MODULE}.qzeros": t[f"{MODULE}.qzeros"][:2]}), "qzeros is int32"),
        (lambda t: t.update({f"{MODULE}.qweight": t[f"{MODULE}.qweight"][:11]}), "holds 352 bits a column"),
        (lambda t: t.update({"x.weight_packed": torch.zeros(1, 1)}), r"x\.weight_packed belongs to another quantized"),
        (lambda t: t.update({"x.weight": torch.zeros(2, 2, dtype=torch.int8)}), r"x\.weight is int8 \[2, 2\]"),
    ],
)
def test_damaged_tensors_are_named(tmp_path, spoil, message):
    q, zeros, scales, g_idx = made(4, 32, symmetric=True)
    tensors = gptq_tensors(q, zeros, scales, 4, np.roll(g_idx, 1), v1=True)
    spoil(tensors)
    folder = folder_of(tmp_path, tensors, config(4, 32))
    with pytest.raises(UsageError, match=message) as refused:
        read_quantized(folder)
    assert str(folder) in str(refused.value)


def test_a_scale_of_zero_over_zeros_is_a_group_of_zeros(tmp_path):
    q, zeros, scales, _ = made(4, 32, symmetric=True)
    q[0, :32], scales[0, 0] = 8, 0
    folder = folder_of(tmp_path, gptq_tensors(q, zeros, scales, 4, None, v1=True), config(4, 32))
    assert not dequantize_torch(read_quantized(folder).layers[MODULE].weight)[0, :32].any()
