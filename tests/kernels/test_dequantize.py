"""The torch twin against numpy, value by value and bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4), ("int2", 2)])
@pytest.mark.parametrize(("rows", "columns", "group_size"), [(1, 32, 32), (5, 96, 8), (3, 64, 0)])
def test_integer_weights_are_code_minus_middle_times_scale(name, bits, rows, columns, group_size):
    random = np.random.default_rng(bits)
    codes = random.integers(0, 2**bits, (rows, columns))
    groups = columns // group_size if group_size else 1
    scales = torch.tensor(random.normal(size=(rows, groups))).bfloat16()
    per_byte = 8 // bits
    stored = sum(codes[:, place::per_byte] << (place * bits) for place in range(per_byte))
    weight = PackedWeight(
        format=name,
        shape=(rows, columns),
        group_size=group_size,
        codes=torch.tensor(stored, dtype=torch.uint8),
        scales=scales,
    )
    expected = (codes - 2 ** (bits - 1)) * np.repeat(scales.double().numpy(), columns // groups, axis=1)
    assert np.array_equal(dequantize_torch(weight).numpy(), expected.astype(np.float32))  # exact: 16 significant bits


def test_mxfp4_is_exact_for_every_code_and_exponent():
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = np.concatenate([values, -values])
    codes = np.tile(np.arange(16), 2)
    stored = codes[0::2] | codes[1::2] << 4
    exponents = np.arange(255)  # 255 is NaN and never written
    weight = PackedWeight(
        format="mxfp4",
        shape=(255, 32),
        group_size=32,
        codes=torch.tensor(np.tile(stored, (255, 1)), dtype=torch.uint8),
        scales=torch.tensor(exponents[:, None], dtype=torch.uint8),
    )
    with np.errstate(over="ignore"):
        expected = np.ldexp(values[codes][None, :], exponents[:, None] - 127).astype(np.float32)
    found = dequantize_torch(weight).numpy()
    assert np.array_equal(found.view(np.int32), expected.view(np.int32))
