"""The layout of the GPU kernels: invertible, and honest about what it leaves to the torch twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qualgate_kernels.linear import matmul, matmul_torch, prepare
from qualgate_kernels.packed import PackedWeight
from qualgate_kernels.planes import concatenate, lay_out, restore, uncovered
from tests.packed_samples import weight
from tests.tables import each_row

FORMS = (
    "int2 g64", "int3 g16", "int3 g128 asym", "int4 g16", "int4 g32", "int4 g128", "int4 g128 asym", "int4 g256",
    "int4", "int8", "int8 g32", "int8 g128 asym", "e4m3", "e4m3 128x128", "e5m2", "mxfp4", "nvfp4",
)  # fmt: skip


def same(found: PackedWeight, expected: PackedWeight) -> None:
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(other.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
    assert replace(found, **expected.tensors).format == expected.format


@each_row("form", FORMS)
@each_row(("rows", "columns"), [(1, 512), (131, 1280)])
def test_the_layout_can_be_undone_to_the_bit(form, rows, columns):
    packed = weight(form, rows, columns)
    prepared = lay_out(packed)
    assert prepared.twin_because == ""
    same(restore(prepared), packed)


@pytest.mark.parametrize(
    ("form", "to"), [("int8", "int8"), ("int8 g128", "int8"), ("e4m3", "fp8"), ("e4m3 128x128", "fp8 g128")]
)
def test_the_layout_for_eight_bit_activations_can_be_undone(form, to):
    packed = weight(form, 131, 300 if "g128" not in form else 384)
    same(restore(lay_out(packed, to)), packed)


def test_act_order_can_be_undone():
    g_idx = (torch.randperm(256, generator=torch.Generator().manual_seed(0)) // 64).to(torch.int32)
    packed = replace(weight("int4 g64 asym", 70, 256), g_idx=g_idx)
    prepared = lay_out(packed)
    assert prepared.order is not None
    same(restore(prepared), packed)
    in_order = replace(packed, g_idx=(torch.arange(256) // 64).to(torch.int32))
    assert lay_out(in_order).order is None


def test_a_row_of_codes_takes_no_more_memory_than_it_did():
    for form, limit in (("int4 g128", 4.2), ("int3 g128", 3.2), ("int8", 8.1), ("mxfp4", 4.3), ("nvfp4", 4.6)):
        prepared = lay_out(weight(form, 256, 4096))
        assert prepared.nbytes * 8 / (256 * 4096) < limit, form


INT4 = weight("int4 g128", 2, 128)
ASYMMETRIC = weight("int4 g128 asym", 2, 128)
NOT_A_NUMBER = torch.full((1, 16), 0xFF, dtype=torch.uint8)
UNEVEN = torch.tensor([0] * 20 + [1] * 12 + [2] * 16 + [3] * 16, dtype=torch.int32)


@pytest.mark.parametrize(
    ("packed", "activations", "reason"),
    [
        (replace(INT4, code="nf4"), "", "nf4 codes"),
        (replace(INT4, offsets=torch.zeros(2, 1)), "", "offsets"),
        (replace(ASYMMETRIC, zero_points=torch.tensor([[-1], [3]]).short()), "", "zero points from -1 to 3"),
        (weight("int4 g24", 2, 96), "", "groups of 24"),
        (INT4, "int8", "int4 g128 weights with int8 activations"),
        (weight("int8 g128 asym", 2, 128), "int8", "zero points with int8 activations"),
        (weight("int8 g32", 2, 128), "int8", "groups of 32 with int8 activations"),
        (weight("int8", 2, 128), "int4", "activations 'int4'"),
        (replace(weight("e4m3", 1, 16), codes=NOT_A_NUMBER), "", "weights that are NaN or infinite"),
        (replace(INT4, scales=INT4.scales * torch.nan), "", "scales that are NaN or infinite"),
        (replace(weight("int4 g16", 1, 64), g_idx=UNEVEN), "", "act-order with uneven groups"),
    ],
)
def test_what_the_kernels_do_not_cover_is_left_to_the_twin_with_the_reason(packed, activations, reason):
    assert uncovered(packed, activations) == reason
    prepared = lay_out(packed, activations)
    assert (prepared.twin, prepared.twin_because) == (packed, reason)
    assert restore(prepared) is packed


def test_on_a_cpu_the_twin_multiplies_and_the_reason_is_kept(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    packed = weight("int4 g64", 5, 128)
    prepared = prepare(packed)
    assert prepared.twin is packed
    assert prepared.twin_because in ("the kernels run on an NVIDIA GPU, not on cpu", "triton is not installed")
    x, bias = torch.randn(3, 128, dtype=torch.bfloat16), torch.randn(5)
    assert torch.equal(matmul(x, prepared, bias), matmul_torch(x, packed, bias=bias))


@pytest.mark.parametrize(
    ("x", "fault"),
    [
        (torch.zeros(2, 128, dtype=torch.float64), "x: expected float16, bfloat16 or float32"),
        (torch.zeros(2, 64), r"x: expected \[rows, 128\], got \[2, 64\]"),
        (torch.zeros(128), r"x: expected \[rows, 128\], got \[128\]"),
        (torch.zeros(0, 128), "at least one row"),
        (torch.zeros(128, 2).T, "stride 2"),
        (torch.zeros(1, 128).expand(2, 128), "do not overlap"),
        (torch.zeros(2, 128, device="meta"), "x: expected a tensor on cpu"),
    ],
)
def test_bad_activations_are_refused(x, fault):
    with pytest.raises(ValueError, match=fault):
        matmul(x, prepare(weight("int4 g64", 5, 128)))


def test_a_bad_bias_is_refused():
    prepared = prepare(weight("int4 g64", 5, 128))
    for bias in (torch.zeros(4), torch.zeros(5, dtype=torch.int32), torch.zeros(10)[::2]):
        with pytest.raises(ValueError, match=r"bias: expected a contiguous float tensor \[5\]"):
            matmul(torch.zeros(1, 128), prepared, bias)


@pytest.mark.parametrize(
    ("one", "other", "fault"),
    [
        ("int4 g64", "int8 g64", "bits"),
        ("int4 g64", "int4 g128", "group_size"),
        ("int4 g64", "int4 g64 asym", "tensors"),
        ("e4m3 128x128", "e4m3 128x128", "block_rows"),
    ],
)
def test_weights_that_differ_are_not_joined(one, other, fault):
    with pytest.raises(ValueError, match=fault):
        concatenate([weight(one, 70, 128), weight(other, 70, 128)])
    with pytest.raises(ValueError, match="in_features"):
        concatenate([weight("int8", 7, 128), weight("int8", 7, 256)])
