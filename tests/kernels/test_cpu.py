"""The C kernels against a float64 product of the torch twin's weight, and one row against any number of rows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu import int8
from qualgate_kernels.cpu.library import Library, fuse, load, read
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes

SOURCES = Path(cpu.__file__).parent / "c"
ROWS = 512
compiled = pytest.mark.skipif(not cpu.paths(), reason=cpu.available())
PATHS = cpu.paths() + (("amx_emulated",) if "avx512" in cpu.paths() else ())
INT8_PATHS = (*getattr(load(), "int8_paths", ()), *(("amx_emulated",) if "avx512" in cpu.paths() else ()))
tiled = pytest.mark.skipif("amx_emulated" not in PATHS, reason="the emulation of AMX needs AVX-512 around it")


def multiply(x: torch.Tensor, prepared: cpu.Prepared, path: str, threads: int = 2) -> torch.Tensor:
    """`cpu.matmul`, which has no emulation."""
    library = load()
    assert isinstance(library, Library)
    return library.matmul(x, prepared, threads, path)


def weight(code: str, bits: int, rows: int, columns: int, group_size: int, **how) -> PackedWeight:
    """A random weight. how: zero_points, offsets, act_order, tensor_scale, divides; scales: their dtype; block_rows."""
    random = torch.Generator().manual_seed(bits * columns + rows)
    codes = torch.randint(0, 2**bits, (rows, columns), generator=random, dtype=torch.int16).to(torch.uint8)
    if code in ("e4m3", "e5m2"):  # finite ones
        codes[(codes & 0x7F) >= (0x7F if code == "e4m3" else 0x7C)] = 0
    block_rows = how.get("block_rows", 1)
    shape = (-(-rows // block_rows) if block_rows else 1, -(-columns // group_size) if group_size else 1)
    dtype = how.get("scales", torch.bfloat16)
    if dtype == torch.uint8:
        scales = torch.randint(118, 130, shape, generator=random, dtype=torch.uint8)
    else:
        scales = (torch.rand(shape, generator=random) + 0.05).to(dtype)
    zero_points = torch.randint(0, min(2**bits, 255) + 1, shape, generator=random, dtype=torch.int16)
    return PackedWeight(
        code=code,  # pyright: ignore[reportArgumentType]
        bits=bits,
        shape=(rows, columns),
        codes=pack_codes(codes, bits),
        scales=scales,
        group_size=group_size,
        block_rows=block_rows,
        zero_points=zero_points if how.get("zero_points") else None,
        offsets=torch.randn(shape, generator=random) if how.get("offsets") else None,
        tensor_scale=torch.tensor(0.0371) if how.get("tensor_scale") else None,
        tensor_divides=how.get("divides", False),
        g_idx=(torch.randperm(columns, generator=random) // group_size).int() if how.get("act_order") else None,
    )


FORMATS = {
    **{
        f"int{bits} {name}": weight("int", bits, 67, columns, group_size, **how)
        for bits in (2, 3, 4, 5, 6, 8)
        for name, columns, group_size, how in (
            ("grouped", 320, 64, {}),
            ("zero points", 192, 32, {"zero_points": True, "scales": torch.float16}),
            ("offsets", 160, 32, {"offsets": True, "scales": torch.float32}),
        )
    },
    "int4 smallest group": weight("int", 4, 3, 24, 8),
    "int4 one weight": weight("int", 4, 1, 1, 0),
    "int4 per row, odd": weight("int", 4, 65, 333, 0, zero_points=True),
    "int3 per tensor": weight("int", 3, 70, 300, 0, block_rows=0),
    "int8 per row": weight("int", 8, 66, 401, 0, scales=torch.float32),
    "int4 act-order": weight("int", 4, 70, 256, 64, act_order=True, zero_points=True),
    "int2 act-order": weight("int", 2, 64, 128, 32, act_order=True),
    "mxfp4": weight("e2m1", 4, 67, 224, 32, scales=torch.uint8),
    "nvfp4": weight("e2m1", 4, 67, 208, 16, scales=torch.float8_e4m3fn, tensor_scale=True, divides=True),
    "mxfp8": weight("e4m3", 8, 67, 96, 32, scales=torch.uint8),
    "mxfp8 e5m2": weight("e5m2", 8, 67, 96, 32, scales=torch.uint8),
    "fp8 e4m3 128x128": weight("e4m3", 8, 200, 300, 128, block_rows=128, scales=torch.float32),
    "fp8 e5m2 128x128": weight("e5m2", 8, 130, 200, 128, block_rows=128, scales=torch.float32),
    "fp8 e4m3 per row": weight("e4m3", 8, 66, 130, 0, scales=torch.float16),
}
every_format = pytest.mark.parametrize("packed", FORMATS.values(), ids=list(FORMATS))
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def inputs(packed: PackedWeight, dtype: torch.dtype, rows: int = ROWS) -> torch.Tensor:
    return torch.randn(rows, packed.shape[1], generator=torch.Generator().manual_seed(7)).to(dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    integer = torch.int32 if one.dtype == torch.float32 else torch.int16
    return torch.equal(one.view(integer), other.view(integer))


def test_where_there_is_a_compiler_the_kernels_are_built():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert "scalar" in cpu.paths(), f"{cpu.available()}; run: python setup.py build_ext --inplace"
    assert cpu.available().startswith(cpu.paths()[-1])


@compiled
@every_format
@both_dtypes
def test_every_path_is_as_near_as_the_length_of_its_sums_allows(packed, dtype):
    """Terms are exact. A sum of n float32 numbers errs by at most about n * 2**-24 of the sum of their magnitudes; here
    n is a segment (128 at most), the segments, and the roundings of scales and of the weight the twin gives. A result
    in bfloat16 is rounded once more, by 2**-9 of it."""
    x = inputs(packed, dtype, 70)
    exact = x.double() @ dequantize_torch(packed).double().T
    scales = (
        packed.scales if packed.scales.dtype == torch.uint8 else packed.scales.float().abs().to(packed.scales.dtype)
    )
    no_offsets = dequantize_torch(replace(packed, scales=scales, offsets=None)).double().abs()
    terms = no_offsets if packed.offsets is None else dequantize_torch(replace(packed, offsets=packed.offsets.abs()))
    magnitude = x.double().abs() @ torch.maximum(terms.double().abs(), no_offsets).T
    prepared = cpu.prepare(packed)
    steps = prepared.segment + 2 * prepared.segments + 4
    allowed = steps * 2**-24 * magnitude + (2**-8 * exact.abs() if dtype == torch.bfloat16 else 0)
    for path in PATHS:
        found = multiply(x, prepared, path)
        assert found.dtype == dtype
        assert bool(((found.double() - exact).abs() <= allowed).all()), path


@compiled
@every_format
@both_dtypes
def test_a_rows_bits_do_not_depend_on_its_company_or_the_threads(packed, dtype):
    x, prepared = inputs(packed, dtype), cpu.prepare(packed)
    for path in PATHS:
        if path == "amx_emulated" and dtype == torch.float32:
            continue  # avx512 once more
        together = multiply(x, prepared, path, threads=1)
        assert same(multiply(x, prepared, path), together), path
        for rows in range(1, 65):
            first = 7 * rows % (ROWS - rows)
            alone = multiply(x[first : first + rows], prepared, path, threads=1 + rows % 2)
            assert same(alone, together[first : first + rows]), (path, rows)


@compiled
@pytest.mark.parametrize(("code", "bits"), [("e2m1", 4), ("int", 4), ("int", 8)])
def test_rows_that_share_a_stretch_of_codes_are_the_same_as_rows_of_a_panel(code, bits):
    packed = weight(code, bits, 130, 1120, 32)  # 35 segments: several stretches, the last one shorter
    prepared = cpu.prepare(packed)
    for path, dtype in ((cpu.path(), torch.float32), (PATHS[-1], torch.bfloat16)):
        x = inputs(packed, dtype, 64)
        together = multiply(x, prepared, path, threads=1)
        for rows in (1, 2, 3, 5, 8, 9, 12, 13, 17, 32, 33):
            assert same(multiply(x[-rows:], prepared, path), together[-rows:]), (path, rows)


@compiled
def test_a_wide_layer_is_the_same_on_any_number_of_threads():
    packed = weight("int", 4, 1000, 512, 128)
    prepared = cpu.prepare(packed)
    for path, dtype in ((cpu.path(), torch.float32), (PATHS[-1], torch.bfloat16)):
        x = inputs(packed, dtype, 200)
        expected = multiply(x, prepared, path, threads=1)
        assert all(same(multiply(x, prepared, path, threads), expected) for threads in (2, 3, 5, 64))


@compiled
@pytest.mark.skipif("avx512" not in cpu.paths(), reason="needs AVX-512")
@every_format
def test_float32_products_are_the_same_on_avx2_and_avx512(packed):
    x, prepared = inputs(packed, torch.float32, 20), cpu.prepare(packed)
    assert same(cpu.matmul(x, prepared, path="avx2"), cpu.matmul(x, prepared, path="avx512"))


@compiled
def test_a_thread_that_flushes_subnormals_gets_the_same_bits():
    packed = weight("int", 4, 64, 64, 32)
    x, prepared = inputs(packed, torch.float32, 40) * 1e-38, cpu.prepare(packed)
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
@every_format
def test_the_layout_gives_the_weight_back_to_the_bit(packed):
    found = cpu.restore(cpu.prepare(packed))
    assert (found.code, found.bits, found.shape, found.format) == (
        packed.code,
        packed.bits,
        packed.shape,
        packed.format,
    )
    assert found.tensors.keys() == packed.tensors.keys()
    for name, tensor in packed.tensors.items():
        assert torch.equal(found.tensors[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), (
            name
        )


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
@pytest.mark.parametrize(
    ("x", "found"),
    [
        (torch.zeros(2, 64, dtype=torch.float16), "float16"),
        (torch.zeros(2, 63), r"\[2, 63\]"),
        (torch.zeros(0, 64), r"\[0, 64\]"),
        (torch.zeros(64), r"\[64\]"),
        (torch.zeros(64, 2).T, "strides"),
        (torch.zeros(2, 64, device="meta"), "meta"),
    ],
)
def test_other_inputs_are_refused_with_what_was_expected(x, found):
    with pytest.raises(ValueError, match=found):
        cpu.matmul(x, cpu.prepare(weight("int", 4, 8, 64, 32)))


@compiled
def test_a_path_or_thread_count_that_is_not_there_is_refused():
    x, prepared = torch.zeros(1, 64), cpu.prepare(weight("int", 4, 8, 64, 32))
    with pytest.raises(ValueError, match="scalar"):
        cpu.matmul(x, prepared, path="sse9")
    with pytest.raises(ValueError, match="scalar"):
        cpu.matmul(x, prepared, path="amx_emulated")
    with pytest.raises(ValueError, match="threads"):
        cpu.matmul(x, prepared, threads=0)


@compiled
@pytest.mark.parametrize(
    "broken",
    [
        {"codes": torch.zeros(64, dtype=torch.uint8)},
        {"scales": torch.zeros(1)},
        {"segment": 96},
        {"segments": 5},
        {"per_group": 2},
        {"gather": torch.full((96,), 96, dtype=torch.int32)},
    ],
)
def test_c_checks_every_size_itself(broken):
    prepared = cpu.prepare(weight("int", 4, 8, 96, 32))
    with pytest.raises(RuntimeError, match="do not fit"):
        cpu.matmul(torch.zeros(1, 96), replace(prepared, **broken))


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
def test_there_is_one_nan_whatever_the_number_of_rows():
    packed = weight("int", 4, 70, 64, 32)
    x, prepared = inputs(packed, torch.bfloat16, 40), cpu.prepare(packed)
    x[:, 3], x[1::2, 40], x[::3, 9] = float("inf"), float("-inf"), float("nan")
    for path in PATHS:
        together = multiply(x, prepared, path)
        assert bool(together.isnan().any())
        for rows in (1, 2, 4, 5, 20):
            assert same(multiply(x[:rows], prepared, path), together[:rows]), path


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
    codes, scales = int8.round_rows(inputs(packed, torch.float32, count))
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


def test_the_torch_twin_can_be_chosen_and_says_so():
    code = (
        "import torch; from qualgate_kernels import cpu; from qualgate_kernels.packed import PackedWeight;"
        "print(cpu.available(), cpu.paths())"
    )
    for chosen, said in (("torch", "torch twin: QUALGATE_CPU_PATH=torch ()"), ("sse9", "QUALGATE_CPU_PATH=sse9")):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"QUALGATE_CPU_PATH": chosen, "PYTHONPATH": str(SOURCES.parents[2])},
        )  # fmt: skip
        assert said in done.stdout or "not compiled" in done.stdout


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


@pytest.mark.proof
@pytest.mark.parametrize(
    ("unwatched", "draws"),  # the AVX-512 file takes as long to compile for the sanitizers as all the others do twice
    [(("avx512.c",), 3), pytest.param((), 60, marks=pytest.mark.proof)],
)
def test_c_is_clean_under_address_and_undefined_behaviour_sanitizers(unwatched, draws, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    plain = ["-std=gnu11", "-Wno-psabi", "-ffp-contract=off", "-pthread"]
    flags = [*plain, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    probe = subprocess.run([compiler, *flags, str(empty), "-o", str(tmp_path / "empty")], capture_output=True)
    if probe.returncode:
        pytest.skip("the compiler has no sanitizers")
    objects = [str(tmp_path / f"{name}.o") for name in unwatched]
    for name, compiled_to in zip(unwatched, objects, strict=True):
        subprocess.run([compiler, *plain, "-O0", "-c", str(SOURCES / name), "-o", compiled_to], check=True)
    watched = sorted(str(path) for path in SOURCES.glob("*.c") if path.name not in unwatched)
    sources = [*watched, *objects, str(Path(__file__).with_name("sanitize.c"))]
    program = str(tmp_path / "sanitize")
    subprocess.run([compiler, *flags, f"-I{SOURCES}", *sources, "-o", program, "-lm"], check=True)
    done = subprocess.run([program, "2026", str(draws)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{draws} draws")
