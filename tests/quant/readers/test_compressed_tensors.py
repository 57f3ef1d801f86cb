"""compressed-tensors' formats, each written here from its layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from qualgate.quant.activations import Rounding
from qualgate.quant.readers import read_quantized
from qualgate.quant.readers.source import Activations
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import MODULE, dequantized, folder_of, words
from tests.quant.readers.seeds import FIXTURES, SEEDS

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def config(format: str, weights: dict, *, targets=("Linear",), inputs=None, **more) -> dict:
    group = {"targets": list(targets), "weights": weights, "input_activations": inputs, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}, **more}


def integer(bits: int, strategy: str, group_size: int | None = None, *, symmetric: bool = True) -> dict:
    return {"num_bits": bits, "type": "int", "strategy": strategy, "group_size": group_size, "symmetric": symmetric}


def floating(bits: int, strategy: str, group_size: int | None = None, block=None) -> dict:
    return {
        "num_bits": bits, "type": "float", "strategy": strategy, "group_size": group_size, "symmetric": True,
        "block_structure": block,
    }  # fmt: skip


def read(tmp_path, tensors: dict[str, torch.Tensor], quantization: dict):
    named = {f"{MODULE}.{name}": tensor for name, tensor in tensors.items()}
    return read_quantized(folder_of(tmp_path, named, quantization)).layers[MODULE]


def found(layer) -> np.ndarray:
    return dequantize_torch(layer.weight).numpy()


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize(("columns", "group_size"), [(96, 32), (37, None)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_packed_integers_of_every_width_and_ragged_rows(tmp_path, bits, columns, group_size, symmetric):
    random = np.random.default_rng(bits)
    rows, groups = 40, columns // group_size if group_size else 1
    q = random.integers(0, 2**bits, (rows, columns))
    zeros = np.full((rows, groups), 2 ** (bits - 1)) if symmetric else random.integers(0, 2**bits, (rows, groups))
    scales = torch.tensor(random.uniform(0.001, 0.1, (rows, groups))).bfloat16()
    tensors = {
        "weight_packed": torch.tensor(words(q, bits)),
        "weight_scale": scales,
        "weight_shape": torch.tensor([rows, columns]),
    }
    if not symmetric:
        tensors["weight_zero_point"] = torch.tensor(words(zeros.T, bits).T.copy())  # packed down each column
    weights = integer(bits, "group" if group_size else "channel", group_size, symmetric=symmetric)
    layer = read(tmp_path, tensors, config("pack-quantized", weights))
    assert np.array_equal(found(layer), dequantized(q, zeros, scales, np.arange(columns) // (columns // groups)))


def test_act_order_of_older_versions_is_followed(tmp_path):
    random = np.random.default_rng(0)
    q, scales = random.integers(0, 16, (8, 64)), torch.tensor(random.uniform(0.01, 0.1, (8, 2))).half()
    g_idx = random.permutation(np.arange(64) // 32)
    tensors = {
        "weight_packed": torch.tensor(words(q, 4)),
        "weight_scale": scales,
        "weight_shape": torch.tensor([8, 64]),
        "weight_g_idx": torch.tensor(g_idx, dtype=torch.int32),
    }
    layer = read(tmp_path / "a", tensors, config("pack-quantized", integer(4, "group", 32) | {"actorder": "group"}))
    assert np.array_equal(found(layer), dequantized(q, np.full((8, 2), 8), scales, g_idx))
    tensors["weight_g_idx"] = torch.full((64,), -1, dtype=torch.int32)  # "no order"
    layer = read(tmp_path / "b", tensors, config("pack-quantized", integer(4, "group", 32) | {"actorder": "group"}))
    assert np.array_equal(found(layer), dequantized(q, np.full((8, 2), 8), scales, np.arange(64) // 32))


@pytest.mark.parametrize(("bits", "symmetric"), [(8, True), (8, False), (4, True)])
def test_plain_integers_with_and_without_zero_points(tmp_path, bits, symmetric):
    random = np.random.default_rng(1)
    half = 2 ** (bits - 1)
    q, zeros = random.integers(-half, half, (6, 32)), random.integers(-half, half, (6, 1))
    zeros = np.zeros_like(zeros) if symmetric else zeros
    scales = torch.tensor(random.uniform(0.01, 0.1, (6, 1))).half()
    tensors = {"weight": torch.tensor(q, dtype=torch.int8), "weight_scale": scales}
    if not symmetric:
        tensors["weight_zero_point"] = torch.tensor(zeros, dtype=torch.int8)
    layer = read(tmp_path, tensors, config("int-quantized", integer(bits, "channel", symmetric=symmetric)))
    assert np.array_equal(found(layer), dequantized(q, zeros, scales, np.zeros(32, dtype=int)))
    assert layer.weight.bits == bits


@pytest.mark.parametrize(
    ("strategy", "block", "shape"),
    [("channel", None, (5, 1)), ("tensor", None, (1,)), ("block", [2, 32], (3, 3))],
)
def test_8_bit_floats_by_row_tensor_and_ragged_block(tmp_path, strategy, block, shape):
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 70, generator=random).to(torch.float8_e4m3fn)
    scales = torch.rand(shape, generator=random) + 0.1
    layer = read(
        tmp_path,
        {"weight": weight, "weight_scale": scales},
        config("float-quantized", floating(8, strategy, block=block)),
    )
    each = {
        "channel": lambda n, k: scales[n, 0],
        "tensor": lambda n, k: scales[0],
        "block": lambda n, k: scales[n // 2, k // 32],
    }[strategy]
    expected = [[weight[n, k].float() * each(n, k) for k in range(70)] for n in range(5)]
    assert found(layer).tolist() == torch.tensor(expected).tolist()


def test_mxfp8_scales_are_exponents(tmp_path):
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 64, generator=random).to(torch.float8_e4m3fn)
    scales = torch.randint(100, 132, (4, 2), generator=random).to(torch.uint8)
    layer = read(
        tmp_path, {"weight": weight, "weight_scale": scales}, config("mxfp8-quantized", floating(8, "group", 32))
    )
    expected = weight.float() * 2.0 ** (scales.float() - 127).repeat_interleave(32, 1)
    assert torch.equal(dequantize_torch(layer.weight), expected)
    assert layer.weight.format == "mxfp8"


@pytest.mark.parametrize("kind", ["nvfp4-pack-quantized", "mxfp4-pack-quantized"])
def test_4_bit_floats_have_their_even_places_in_the_low_nibble(tmp_path, kind):
    random = np.random.default_rng(0)
    block = 16 if kind.startswith("nvfp4") else 32
    codes = random.integers(0, 16, (6, 64))
    tensors = {"weight_packed": torch.tensor(codes[:, 0::2] | codes[:, 1::2] << 4, dtype=torch.uint8)}
    if block == 16:
        scales = torch.tensor(random.uniform(1, 400, (6, 4))).to(torch.float8_e4m3fn)
        tensors |= {"weight_scale": scales, "weight_global_scale": torch.tensor([123.5])}
        by_block = scales.float().numpy() / np.float32(123.5)  # divided, where torchao multiplies
    else:
        exponents = random.integers(90, 160, (6, 2))
        tensors["weight_scale"] = torch.tensor(exponents, dtype=torch.uint8)
        by_block = np.ldexp(1.0, exponents - 127).astype(np.float32)
    layer = read(tmp_path, tensors, config(kind, floating(4, "tensor_group" if block == 16 else "group", block)))
    assert np.array_equal(found(layer), E2M1[codes] * np.repeat(by_block, block, 1))


def test_a_name_or_pattern_comes_before_the_class_of_modules(tmp_path):
    """Two schemes in one model: the tensors of `down_proj` are 8-bit floats, all other linear layers int8."""
    both = config("int-quantized", integer(8, "channel"))
    both["config_groups"][next(iter(both["config_groups"]))]["format"] = both["format"]
    both["format"] = "mixed-precision"
    both["config_groups"]["group_1"] = {
        "targets": ["re:.*down_proj$"], "weights": floating(8, "channel"), "format": "float-quantized",
    }  # fmt: skip
    other = "model.layers.0.mlp.up_proj"
    tensors = {
        f"{MODULE}.weight": torch.ones(4, 8).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale": torch.full((4, 1), 0.5),
        f"{other}.weight": torch.full((4, 8), 3, dtype=torch.int8),
        f"{other}.weight_scale": torch.full((4, 1), 0.5),
        "lm_head.weight": torch.ones(4, 8),
    }
    checkpoint = read_quantized(folder_of(tmp_path, tensors, both | {"ignore": ["lm_head"]}))
    assert checkpoint.layers[MODULE].weight.format == "fp8 e4m3 per row"
    assert checkpoint.layers[other].weight.format == "int8 per row"
    assert sorted(checkpoint.tensors) == ["lm_head.weight"]


def inputs(type: str = "float", bits: int = 8, dynamic: bool | str = True, strategy: str = "token", **more) -> dict:
    given = {"num_bits": bits, "type": type, "dynamic": dynamic, "strategy": strategy, "symmetric": True}
    return given | more


SCALE, WHOLE = {"input_scale": torch.tensor([0.5])}, {"input_global_scale": torch.tensor([317.25])}
ZEROS = {"input_zero_point": torch.tensor([-9], dtype=torch.int8)}
MX = {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
NVFP4 = {"bits": 4, "dynamic": "local", "strategy": "tensor_group", "group_size": 16}
GLOBAL = {"rule": "e4m3", "tensor_scale": 317.25, "tensor_divides": True}


@pytest.mark.parametrize(
    ("args", "tensors", "expected"),
    [
        (None, {}, None),
        (inputs("int"), {}, Rounding(code="int", bits=8)),
        (inputs("int", 4), {}, Rounding(code="int", bits=4)),
        (inputs("int", symmetric=False), {}, Rounding(code="int", bits=8, symmetric=False)),
        (inputs(), {}, Rounding(code="e4m3", bits=8)),
        (inputs(strategy="group", group_size=128), {}, Rounding(code="e4m3", bits=8, group_size=128)),
        (inputs(dynamic=False, strategy="tensor"), SCALE, Rounding(code="e4m3", bits=8, scale=0.5)),
        (inputs("int", dynamic=False, strategy="tensor"), SCALE, Rounding(code="int", bits=8, scale=0.5)),
        (
            inputs("int", dynamic=False, strategy="tensor", symmetric=False),
            SCALE | ZEROS,
            Rounding(code="int", bits=8, symmetric=False, scale=0.5, zero_point=-9),
        ),
        (inputs(bits=4, **MX), {}, Rounding(code="e2m1", bits=4, group_size=32, rule="e8m0 rounded")),
        (inputs(**MX), {}, Rounding(code="e4m3", bits=8, group_size=32, rule="e8m0 rounded")),
        (inputs(**NVFP4), WHOLE, Rounding(code="e2m1", bits=4, group_size=16, **GLOBAL)),
        (inputs(strategy="tensor"), {}, "one scale for a whole batch"),
        (inputs("int", strategy="tensor"), {}, "one scale for a whole batch"),
        (inputs(bits=4, strategy="group", group_size=32), {}, "4-bit float activations of strategy 'group'"),
        (inputs(bits=16), {}, "16-bit float"),
        (inputs(symmetric=False), {}, "8-bit float asymmetric"),
        (inputs(dynamic=False, strategy="channel"), {}, "strategy 'channel', dynamic False"),
        (inputs(), SCALE, f"{MODULE}.input_scale is there, for which its config has no use"),
        (None, WHOLE, "input_global_scale is there"),
        ("odd", {}, "input_activations 'odd'"),
    ],
)
def test_what_happens_to_inputs_is_known_or_named(tmp_path, args, tensors, expected):
    tensors = {"weight": torch.ones(4, 8, dtype=torch.int8), "weight_scale": torch.full((4, 1), 0.5)} | tensors
    layer = read(tmp_path, tensors, config("int-quantized", integer(8, "channel"), inputs=args))
    said = expected if isinstance(expected, str) else ""
    assert layer.activations.rounding == (None if said else expected)
    assert said in layer.activations.unsupported
    assert bool(said) == bool(layer.activations.unsupported)


def test_a_quantized_kv_cache_is_no_part_of_what_enters_a_layer(tmp_path):
    tensors = {"weight": torch.ones(4, 8, dtype=torch.int8), "weight_scale": torch.full((4, 1), 0.5)}
    cache = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    layer = read(tmp_path, tensors, config("int-quantized", integer(8, "channel"), kv_cache_scheme=cache))
    assert layer.activations == Activations()


def test_zero_points_of_symmetric_weights_that_are_zero_are_none(tmp_path):
    tensors = {
        "weight": torch.ones(4, 8, dtype=torch.int8),
        "weight_scale": torch.full((4, 1), 0.5),
        "weight_zero_point": torch.zeros(4, 1, dtype=torch.int8),
    }
    assert read(tmp_path / "a", tensors, config("int-quantized", integer(8, "channel"))).weight.zero_points is None


def test_sparse_weights_are_those_that_the_library_makes_dense(tmp_path):
    tensors, quantization, _ = SEEDS["sparse"]()
    checkpoint = read_quantized(folder_of(tmp_path, tensors, quantization))
    stored = load_file(FIXTURES / "sparse24.safetensors")
    expected = stored["float8.dense"].float() * stored["float8.weight_scale"].float()
    assert torch.equal(dequantize_torch(checkpoint.layers[MODULE].weight), expected)
    assert {*checkpoint.tensors} == {"model.layers.0.mlp.up_proj.weight"}
    assert torch.equal(checkpoint.tensors["model.layers.0.mlp.up_proj.weight"], stored["bfloat16.dense"])
