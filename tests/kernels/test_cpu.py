"""The C kernels against a float64 product of the torch twin's weight, and one row against any number of rows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu import int8
from qualgate_kernels.cpu.library import Library, fuse, load, read
from qualgate_kernels.packed import pack_codes
from tests.kernels.weights import PATHS, compiled, inputs, multiply, same, weight

SOURCES = Path(cpu.__file__).parent / "c"
INT8_PATHS = (*getattr(load(), "int8_paths", ()), *(("amx_emulated",) if "avx512" in cpu.paths() else ()))
tiled = pytest.mark.skipif("amx_emulated" not in PATHS, reason="the emulation of AMX needs AVX-512 around it")


def test_where_there_is_a_compiler_the_kernels_are_built():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert "scalar" in cpu.paths(), f"{cpu.available()}; run: python setup.py build_ext --inplace"
    assert cpu.available().startswith(cpu.paths()[-1])


@compiled
def test_a_wide_layer_is_the_same_on_any_number_of_threads():
    packed = weight("int", 4, 1000, 512, 128)
    prepared = cpu.prepare(packed)
    for path, dtype in ((cpu.path(), torch.float32), (PATHS[-1], torch.bfloat16)):
        x = inputs(packed.shape[1], dtype, 200)
        expected = multiply(x, prepared, path, threads=1)
        assert all(same(multiply(x, prepared, path, threads), expected) for threads in (2, 3, 5, 64))


@compiled
def test_a_thread_that_flushes_subnormals_gets_the_same_bits():
    packed = weight("int", 4, 64, 64, 32)
    x, prepared = inputs(packed.shape[1], torch.float32, 40) * 1e-38, cpu.prepare(packed)
    expected = cpu.matmul(x, prepared)
    assert bool((expected != 0).any())
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        found = cpu.matmul(x, prepared)
    finally:
        torch.set_flush_denormal(False)
    assert same(found, expected)


@compiled
def test_packed_weights_stay_packed():
    for packed in (weight("int", 4, 512, 1024, 128), weight("e2m1", 4, 512, 1024, 32, scales=torch.uint8)):
        assert cpu.prepare(packed).nbytes == packed.nbytes


@compiled
@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (weight("nf4", 4, 8, 64, 32), "nf4"),
        (weight("int", 7, 8, 64, 32), "7-bit"),
        (weight("int", 4, 8, 256, 2), "padded"),
        (replace(weight("int", 4, 8, 64, 32, zero_points=True), zero_points=torch.full((8, 2), 17).short()), "leave"),
        (replace(weight("e4m3", 8, 8, 64, 32), codes=torch.full((8, 64), 0x7F, dtype=torch.uint8)), "not finite"),
        (replace(weight("int", 4, 8, 64, 32), codes=torch.empty((8, 32), dtype=torch.uint8, device="meta")), "meta"),
    ],
)
def test_what_the_kernels_do_not_cover_is_refused_before_any_product(packed, reason):
    with pytest.raises(cpu.Unsupported, match=reason):
        cpu.prepare(packed)


@compiled
def test_a_path_or_thread_count_that_is_not_there_is_refused():
    x, prepared = torch.zeros(1, 64), cpu.prepare(weight("int", 4, 8, 64, 32))
    with pytest.raises(ValueError, match="scalar"):
        cpu.matmul(x, prepared, path="sse9")
    with pytest.raises(ValueError, match="scalar"):
        cpu.matmul(x, prepared, path="amx_emulated")
    with pytest.raises(ValueError, match="threads"):
        cpu.matmul(x, prepared, threads=0)


def as_intel_documents(x: torch.Tensor, weight: torch.Tensor, segment: int) -> torch.Tensor:
    """x times the weight's transpose, float32 [M, N], in the order of Intel's TDPBF16PS. Sums are made in float64,
    where those of these numbers are exact, and rounded to float32 one by one."""
    x, weight = x.double()[:, None], weight.double()
    y = torch.zeros(x.shape[0], weight.shape[0])
    for first in range(0, x.shape[-1], segment):
        partial = torch.zeros_like(y)
        for step in range(first, min(first + segment, x.shape[-1]), 32):
            chains = [torch.zeros_like(y), torch.zeros_like(y)]
            for k in range(step, min(step + 32, first + segment, x.shape[-1])):
                chains[k % 2] = (chains[k % 2].double() + x[:, :, k] * weight[:, k]).float()
            partial = partial + (chains[0] + chains[1])
        y = y + partial  # the scale is 1
    return y


@tiled
@pytest.mark.parametrize(("bits", "columns", "group"), [(4, 256, 128), (8, 180, 60), (3, 192, 64), (2, 96, 48)])
def test_amx_adds_up_in_the_order_that_intel_documents(bits, columns, group):
    """Inputs that cancel: what is left is the roundings alone, so another order gives other numbers."""
    packed = weight("int", bits, 70, columns, group)
    ones = torch.full((70, columns), 2 ** (bits - 1) + 1, dtype=torch.uint8)
    packed = replace(packed, codes=pack_codes(ones, bits), scales=torch.ones_like(packed.scales))
    random = torch.Generator().manual_seed(bits)
    half = torch.rand(40, columns // 2, generator=random) + 1
    half *= 2 ** torch.randint(0, 20, (40, columns // 2), generator=random).float()
    places = torch.randperm(columns, generator=random)
    x = torch.cat((half, -half), 1)[:, places].bfloat16()
    prepared = cpu.prepare(packed)
    expected = as_intel_documents(x, torch.ones(70, columns), prepared.segment).bfloat16()
    assert not torch.equal(multiply(x, prepared, "avx512"), expected)
    for rows in (1, 2, 3, 4, 5, 16, 17, 40):
        assert same(multiply(x[:rows], prepared, "amx_emulated"), expected[:rows]), rows


@tiled
@pytest.mark.parametrize("rows", [1, 4, 5, 33])
def test_amx_takes_zero_for_what_is_below_the_normal_numbers(rows):
    ones = replace(weight("int", 4, 64, 32, 32), codes=torch.full((64, 16), 0x99, dtype=torch.uint8))
    prepared = cpu.prepare(replace(ones, scales=torch.full((64, 1), 2.0**100).bfloat16()))
    x = torch.zeros(rows, 32, dtype=torch.bfloat16)
    x[:, 0] = 2.0**-127  # coming in
    assert bool((multiply(x, prepared, "amx_emulated") == 0).all())
    x[:, 0], x[:, 2] = 1.5 * 2.0**-126, -(2.0**-126)  # going out
    assert bool((multiply(x, prepared, "amx_emulated") == 0).all())
    x[:, 2] = 2.0**-126
    assert bool((multiply(x, prepared, "amx_emulated") == 2.5 * 2.0**-26).all())


@compiled
def test_why_amx_does_not_serve_is_said(monkeypatch):
    library = load()
    assert isinstance(library, Library)
    monkeypatch.setattr(cpu, "load", lambda: replace(library, without="amx: its products are not those"))
    assert cpu.available().endswith("; not amx: its products are not those)")


@compiled
@pytest.mark.parametrize(("rows", "columns", "count"), [(1, 1, 1), (65, 33, 7), (130, 4099, 40), (64, 256, 200)])
def test_int8_products_are_the_integers_own(rows, columns, count):
    packed = weight("int", 8, rows, columns, 0, scales=torch.float32)
    codes, scales = int8.round_rows(inputs(packed.shape[1], torch.float32, count))
    expected, prepared = int8.matmul_int8_torch(codes, scales, packed), int8.prepare_int8(packed)
    for path in INT8_PATHS:
        found = int8.matmul_int8(codes, scales, prepared, threads=2, path=path)
        assert same(found, expected), path
        assert same(int8.matmul_int8(codes[-1:], scales[-1:], prepared, path=path), found[-1:])


@compiled
def test_int8_sums_at_the_end_of_their_range():
    columns = int8.DEEPEST
    packed = replace(weight("int", 8, 1, columns, 0), codes=torch.zeros(1, columns, dtype=torch.uint8))  # all -128
    codes, one = torch.full((1, columns), -128, dtype=torch.int8), torch.ones(1)
    expected = torch.tensor([[float(128 * 128 * columns)]]) * packed.scales.float()
    for path in INT8_PATHS:
        assert torch.equal(int8.matmul_int8(codes, one, int8.prepare_int8(packed), path=path), expected)


@compiled
def test_other_weights_have_no_int8_products():
    for packed in (weight("int", 8, 8, 64, 32), weight("int", 4, 8, 64, 0), weight("int", 8, 8, 64, 0, offsets=True)):
        with pytest.raises(cpu.Unsupported, match="symmetric int8"):
            int8.prepare_int8(packed)


@compiled
@pytest.mark.parametrize(
    ("chosen", "because"), [("torch", "torch twin: QUALGATE_CPU_PATH=torch"), ("sse9", "QUALGATE_CPU_PATH=sse9")]
)
def test_the_torch_twin_can_be_chosen_and_says_so(monkeypatch, chosen, because):
    monkeypatch.setenv("QUALGATE_CPU_PATH", chosen)
    monkeypatch.setattr(cpu, "load", load.__wrapped__)
    assert because in cpu.available()
    assert not cpu.paths()


@compiled
def test_what_benchmarks_hold_the_kernels_against_does_the_work_it_says():
    numbers = torch.randint(-(2**62), 2**62, (3 * 2**17,))  # 3 MiB: several stretches
    expected = 0
    for number in numbers.tolist():
        expected ^= number % 2**64
    assert read(numbers, 1) == read(numbers, 2) == expected
    assert fuse(1, 1) in (4 * 12, 8 * 12, 16 * 12)
    assert fuse(1000, 3) == 3000 * fuse(1, 1)
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="fuse"):
            fuse(*wrong)
