"""torchao's split tensors, and cuBLAS's swizzled scales spelled out place by place."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import MODULE, folder_of

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
TORCHAO = {"quant_method": "torchao", "quant_type": {"default": {}}}


def read(tmp_path, kind: str, attributes: dict, parts: dict[str, torch.Tensor]):
    described = {"_type": kind, "_data": attributes, "_tensor_data_names": list(parts)}
    metadata = {
        f"{MODULE}.weight": json.dumps(described),
        "tensor_names": json.dumps([f"{MODULE}.weight"]),
        "format": "pt",
    }
    tensors = {f"{MODULE}._weight_{name}": tensor for name, tensor in parts.items()}
    return read_quantized(folder_of(tmp_path, tensors, TORCHAO, metadata=metadata)).layers[MODULE]


@pytest.mark.parametrize("block", [[1, 32], [6, 32]])
def test_int8_by_row_and_by_tensor(tmp_path, block):
    random = np.random.default_rng(0)
    q, zero = random.integers(-128, 128, (6, 32)), random.integers(-5, 5, (6 // block[0], 1))
    scale = random.uniform(0.01, 0.1, zero.shape).astype(np.float32)
    parts = {
        "qdata": torch.tensor(q, dtype=torch.int8),
        "scale": torch.tensor(scale),
        "zero_point": torch.tensor(zero, dtype=torch.int8),
    }
    layer = read(tmp_path, "Int8Tensor", {"block_size": block, "act_quant_kwargs": None}, parts)
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), (q - zero).astype(np.float32) * scale)


def test_a_few_bits_held_in_int8(tmp_path):
    random = np.random.default_rng(0)
    q, zero = random.integers(-8, 8, (4, 64)), random.integers(-8, 8, (4, 2))
    scale = torch.tensor(random.uniform(0.01, 0.1, (4, 2))).bfloat16()
    parts = {
        "qdata": torch.tensor(q, dtype=torch.int8),
        "scale": scale,
        "zero_point": torch.tensor(zero, dtype=torch.int8),
    }
    attributes = {"block_size": [1, 32], "target_dtype": {"_type": "torch.dtype", "_data": "int4"}}
    layer = read(tmp_path, "IntxUnpackedToInt8Tensor", attributes, parts)
    spread = np.arange(64) // 32
    expected = (q - zero[:, spread]).astype(np.float32) * scale.float().numpy()[:, spread]
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), expected)
    assert layer.weight.format == "int4 g32 asym"


def test_float8(tmp_path):
    weight, scale = torch.randn(4, 16).to(torch.float8_e4m3fn), torch.rand(4, 1) + 0.1
    layer = read(tmp_path, "Float8Tensor", {"block_size": [1, 16]}, {"qdata": weight, "scale": scale})
    assert torch.equal(dequantize_torch(layer.weight), weight.float() * scale)


def swizzled(scales: np.ndarray) -> np.ndarray:
    """By the rule of cuBLAS's "1D block scaling factors layout": in each tile of 128 rows and 4 columns, scale (r, c)
    lies at byte (r % 32) * 16 + (r // 32) * 4 + c; tiles follow each other along the columns first.
    """
    rows, groups = scales.shape
    high, wide = -(-rows // 128), -(-groups // 4)
    out = np.zeros(high * wide * 512, dtype=np.uint8)
    for row in range(rows):
        for group in range(groups):
            tile = (row // 128) * wide + group // 4
            r = row % 128
            out[tile * 512 + (r % 32) * 16 + (r // 32) * 4 + group % 4] = scales[row, group]
    return out.reshape(32 * high, 16 * wide)


@pytest.mark.parametrize(("rows", "columns"), [(128, 64), (256, 128), (130, 80), (5, 16)])
@pytest.mark.parametrize("is_swizzled", [True, False])
def test_nvfp4_scales_are_put_back_in_order_and_multiplied(tmp_path, rows, columns, is_swizzled):
    random = np.random.default_rng(0)
    codes, scales = random.integers(0, 16, (rows, columns)), random.integers(1, 127, (rows, columns // 16))
    stored = swizzled(scales) if is_swizzled else scales
    parts = {
        "qdata": torch.tensor(codes[:, 0::2] | codes[:, 1::2] << 4, dtype=torch.uint8),
        "scale": torch.tensor(stored, dtype=torch.uint8).view(torch.float8_e4m3fn),
        "per_tensor_scale": torch.tensor(0.037),
    }
    layer = read(tmp_path, "NVFP4Tensor", {"block_size": 16, "is_swizzled_scales": is_swizzled}, parts)
    values = torch.tensor(scales, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy() * np.float32(0.037)
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), E2M1[codes] * np.repeat(values, 16, 1))


def kwargs(kind: str, granularity: str = "PerRow", **more) -> dict:
    """As torchao's JSON has it: every dataclass, enum and dtype a {"_type", "_data"}."""
    inner = {"granularity": {"_type": granularity, "_data": {"dim": -1} if granularity == "PerRow" else {}}}
    return {"_type": f"QuantizeTensorTo{kind}Kwargs", "_data": inner | more}


ASYMMETRIC = {"_type": "MappingType", "_data": "ASYMMETRIC"}
E5M2 = {"_type": "torch.dtype", "_data": "float8_e5m2"}
INT8 = Rounding(code="int", bits=8, least=2.0**-23)
NVFP4 = Rounding(code="e2m1", bits=4, group_size=16, rule="e4m3", least=2.0**-6)
SCALE = {"act_quant_scale": torch.full((1, 1), 0.5)}


@pytest.mark.parametrize(
    ("how", "parts", "expected"),
    [
        (kwargs("Int8"), {}, INT8),
        (kwargs("Int8", mapping_type=ASYMMETRIC), {}, replace(INT8, symmetric=False)),
        (kwargs("Int8", reduce_range=True), {}, replace(INT8, bits=7)),
        (kwargs("Int8", "PerTensor"), SCALE, Rounding(code="int", bits=8, scale=0.5)),
        (
            kwargs("Int8", "PerTensor", mapping_type=ASYMMETRIC),
            SCALE | {"act_quant_zero_point": torch.full((1, 1), -9, dtype=torch.int8)},
            Rounding(code="int", bits=8, scale=0.5, zero_point=-9),
        ),
        (kwargs("Float8"), {}, Rounding(code="e4m3", bits=8)),
        (kwargs("Float8", float8_dtype=E5M2), {}, Rounding(code="e5m2", bits=8)),
        (kwargs("NVFP4"), {}, NVFP4),
        (kwargs("NVFP4"), {"act_per_tensor_scale": torch.tensor(0.25)}, replace(NVFP4, tensor_scale=0.25)),
        (kwargs("Int8", "PerTensor"), {}, "the rows beside it"),
        (kwargs("Float8", "PerTensor"), {}, "the rows beside it"),
        (kwargs("NVFP4", use_dynamic_per_tensor_scale=True), {}, "the rows beside it"),
        (kwargs("Int8"), SCALE, "int8 activations with the mapping 'SYMMETRIC', 'PerRow'"),
        (kwargs("Int8", mapping_type="ODD"), {}, "the mapping 'ODD'"),
        (kwargs("Float8", hp_value_ub=1200.0), {}, "bounds for their scale"),
        (kwargs("Float8", float8_dtype="float8_e4m3fnuz"), {}, "'float8_e4m3fnuz'"),
        (kwargs("NVFP4", block_size=32), {}, "blocks of 32"),
        (kwargs("MX"), {}, "activations as QuantizeTensorToMXKwargs describes them"),
        (None, SCALE, "act_quant_scale without act_quant_kwargs"),
        (None, {}, None),
    ],
)
def test_what_happens_to_inputs_is_known_or_named(tmp_path, how, parts, expected):
    weight = {"qdata": torch.ones(2, 8, dtype=torch.int8), "scale": torch.ones(2, 1)}
    layer = read(tmp_path, "Int8Tensor", {"block_size": [1, 8], "act_quant_kwargs": how}, weight | parts)
    said = expected if isinstance(expected, str) else ""
    assert layer.activations.rounding == (None if said else expected)
    assert said in layer.activations.unsupported
    assert bool(said) == bool(layer.activations.unsupported)


def test_int8_tokens_with_zero_points_are_named_by_one_word(tmp_path):
    parts = {"qdata": torch.ones(2, 8, dtype=torch.int8), "scale": torch.ones(2, 1)}
    named = {"_type": "IntxUnpackedToInt8TensorActivationQuantization", "_data": "INT8_ASYM_PER_TOKEN"}
    attributes = {"block_size": [1, 8], "activation_quantization": named}
    layer = read(tmp_path, "IntxUnpackedToInt8Tensor", attributes, parts)
    assert layer.activations.rounding == Rounding(code="int", bits=8, symmetric=False)
    layer = read(tmp_path, "IntxUnpackedToInt8Tensor", attributes | {"activation_quantization": "ODD"}, parts)
    assert layer.activations.unsupported == "activation_quantization 'ODD'"


def test_a_part_that_is_not_known_is_refused(tmp_path):
    parts = {"qdata": torch.ones(2, 8, dtype=torch.int8), "scale": torch.ones(2, 1), "act_pre_scale": torch.ones(8)}
    with pytest.raises(NotInThisVersion, match="has the part 'act_pre_scale', which is not computed"):
        read(tmp_path, "Int8Tensor", {"block_size": [1, 8]}, parts)


@pytest.mark.parametrize(
    ("kind", "attributes", "error", "message"),
    [
        ("Int4TilePackedTo4dTensor", {}, NotInThisVersion, "Int4TilePackedTo4dTensor, which is not read"),
        ("Int8Tensor", {"block_size": [1, 3]}, UsageError, "does not divide into blocks of 1 x 3"),
        ("Int8Tensor", {"block_size": [1, 4]}, UsageError, r"_weight_scale is float32 \[2, 1\], expected .* \[2, 2\]"),
        ("Int8Tensor", {"block_size": "x"}, UsageError, "block_size 'x'"),
        ("IntxUnpackedToInt8Tensor", {"block_size": [1, 8], "target_dtype": "int2"}, UsageError, "says 2 bits"),
        ("IntxUnpackedToInt8Tensor", {"block_size": [1, 8], "target_dtype": "int99"}, UsageError, "'int99'"),
    ],
)
def test_what_the_header_says_must_fit(tmp_path, kind, attributes, error, message):
    parts = {"qdata": torch.full((2, 8), 7, dtype=torch.int8), "scale": torch.ones(2, 1)}
    with pytest.raises(error, match=message):
        read(tmp_path, kind, attributes, parts)
