"""The Triton kernels, through Triton's interpreter, against float64 products of the dequantized weight.

bfloat16 products are wrong in the interpreter, so x is float16 or float32 here; what bfloat16 runs on a GPU is the same
kernel with other constants. `test_interpreted.py` runs this file in a process of its own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qualgate_kernels import configs, dispatch
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.linear import matmul, matmul_torch, prepare
from qualgate_kernels.packed import PackedWeight
from qualgate_kernels.planes import Prepared, concatenate, lay_out
from tests.kernels.one_shape import one_shape
from tests.packed_samples import weight


def activations(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)


def close(found: torch.Tensor, x: torch.Tensor, packed: PackedWeight) -> None:
    """Within what a float32 sum of K products may err, K * 2**-24 of the magnitudes' sum, and the result's rounding."""
    dense = dequantize_torch(packed).double()
    exact, magnitudes = x.double() @ dense.T, x.double().abs() @ dense.abs().T
    rounding = torch.finfo(found.dtype).eps * exact.abs() + torch.finfo(found.dtype).tiny
    assert ((found.double() - exact).abs() <= packed.shape[1] * 2**-24 * magnitudes + rounding).all()


SHAPES = [
    ("int4 g128 asym", 64, 256, torch.float32),
    ("int4 g128", 130, 512, torch.float16),
    ("int4 g64", 1, 320, torch.float16),
    ("int4 g32", 5, 96, torch.float32),
    ("int4 g16", 7, 48, torch.float16),
    ("int4", 3, 100, torch.float32),
    ("int2 g64", 65, 128, torch.float16),
    ("int3 g128", 9, 512, torch.float16),
    ("int3 g16", 3, 80, torch.float32),
    ("int8", 33, 200, torch.float16),
    ("int8 g128 asym", 66, 256, torch.float16),
    ("e4m3", 5, 136, torch.float16),
    ("e4m3 128x128", 140, 200, torch.float32),
    ("e5m2", 4, 128, torch.float16),
    ("mxfp4", 6, 160, torch.float16),
    ("nvfp4", 5, 80, torch.float16),
]


@pytest.mark.parametrize(("form", "rows", "columns", "dtype"), one_shape(*SHAPES))
def test_every_format_is_multiplied_as_its_dequantized_weight(form, rows, columns, dtype):
    packed = weight(form, rows, columns)
    prepared = lay_out(packed)
    assert prepared.twin_because == ""
    x = activations(3, columns, dtype)
    close(matmul(x, prepared), x, packed)
    assert "twin" not in prepared.like.format


@pytest.mark.proof
def test_act_order_reads_the_activations_in_the_order_of_the_groups():
    generator = torch.Generator().manual_seed(3)
    g_idx = (torch.randperm(128, generator=generator) // 32).to(torch.int32)
    packed = replace(weight("int4 g32 asym", 10, 128), g_idx=g_idx)
    x = activations(4, 128)
    close(matmul(x, lay_out(packed)), x, packed)


ROUNDED = [("int8", "int8", 300), ("int8 g128", "int8", 256), ("e4m3", "fp8", 200), ("e4m3 128x128", "fp8 g128", 300)]


@pytest.mark.parametrize(("form", "to", "columns"), one_shape(*ROUNDED))
def test_rounded_activations_meet_eight_bit_weights(form, to, columns):
    from qualgate_kernels.activations import round_tokens_torch
    from qualgate_kernels.launch import rounded

    packed = weight(form, 70, columns)
    prepared = lay_out(packed, to, splits=2)
    assert prepared.twin_because == ""
    x = activations(3, columns)
    x[1] = 0
    codes, scales = round_tokens_torch(x, to)
    made, made_scales = rounded(x, prepared)
    assert torch.equal(made[:, :columns].float(), codes.float())
    assert torch.equal(made_scales[:, : scales.shape[1]], scales)
    wide = scales.repeat_interleave(128 if "g128" in to else columns, 1)[:, :columns]
    close(matmul(x, prepared), codes.double() * wide.double(), packed)


FORMS = [("int4 g128", ""), ("nvfp4", ""), ("int8", "int8"), ("e4m3", "fp8")]


@pytest.mark.parametrize(("form", "to"), one_shape(*FORMS))
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(form, to):
    """The token tile changes with the number of rows, and so does the way the splits are added."""
    packed = weight(form, 3, 512)
    prepared = lay_out(packed, to, splits=2)
    assert prepared.splits == 2
    x = activations(64, 512, torch.float16)
    alone = matmul(x[:1], prepared)
    assert len({configs.tile(rows, 256, 4, 1, 90) for rows in (1, 3, 16, 17, 64)}) == 3
    for rows in (3, 16, 17, 64):
        beside = activations(rows, 512, torch.float16) * 100
        beside[0] = x[0]
        assert torch.equal(matmul(beside, prepared)[:1], alone), rows
        beside[0], beside[-1] = beside[-1].clone(), x[0]
        assert torch.equal(matmul(beside, prepared)[-1:], alone), rows


@pytest.mark.proof
def test_fused_projections_have_the_bits_of_separate_ones():
    parts = [weight("int4 g64 asym", rows, 256, seed) for seed, rows in enumerate((70, 9, 1))]
    x = activations(2, 256, torch.float16)
    together = matmul(x, lay_out(concatenate(parts), splits=2))
    assert torch.equal(together, torch.cat([matmul(x, lay_out(part, splits=2)) for part in parts], 1))


@pytest.mark.proof
def test_a_bias_is_added_in_float32_before_the_result_is_rounded():
    packed = weight("int4 g128", 3, 256)
    x, bias = activations(40, 256, torch.float16), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float16)
    for splits in (1, 2):
        prepared = lay_out(packed, splits=splits)
        few, many = matmul(x[:2], prepared, bias), matmul(x, prepared, bias)
        assert torch.equal(few, many[:2])
        assert torch.allclose(few.float(), (x[:2].float() @ dequantize_torch(packed).T + bias.float()), atol=2e-3)


def test_dispatch_lays_a_weight_out_and_keeps_nothing_else():
    packed, x = weight("int8", 33, 200), activations(3, 200)
    found = dispatch._on_gpu(packed, "int8")
    assert isinstance(found, dispatch.Fused)
    assert (found.kernel, found.rounds) == ("triton int8", True)
    assert torch.equal(found.multiply(x), matmul(x, lay_out(packed, "int8")))
    floats = dispatch._on_gpu(weight("int4 g32", 5, 96), "int8")  # no kernel rounds for these: rounded before
    assert isinstance(floats, dispatch.Fused)
    assert (floats.kernel, floats.rounds) == ("triton", False)
    assert dispatch._on_gpu(replace(packed, offsets=packed.scales), "") == "offsets"


def test_a_weight_on_a_device_with_kernels_is_laid_out_and_one_they_do_not_cover_goes_to_the_twin():
    assert prepare(weight("int4 g128", 2, 128)).twin is None
    left = prepare(replace(weight("int4 g128", 2, 128), offsets=torch.zeros(2, 1)))
    assert isinstance(left, Prepared)
    assert left.twin_because == "offsets"
    x = activations(2, 128)
    assert left.twin is not None
    assert torch.equal(matmul(x, left), matmul_torch(x, left.twin))
