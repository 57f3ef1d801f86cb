"""Keys and values in every format: what is kept of a number, by an oracle of exact fractions; and what attention makes
of it, which has the bits of float32 over the same numbers."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels.cpu import paged as in_c
from qualgate_kernels.kept import FORMS, bytes_of_position
from qualgate_kernels.paged import Blocks, Places, Seen, attend_torch, keep_torch, new_blocks, numbers_of
from tests.kernels.test_paged import PATHS, ROWS, SEEN, Sequences, attended, needs_c, oracle
from tests.tables import each_row

DIM = 16
NARROW = [form for form in FORMS if form != "float32"]
NAN_HALF = 0x7FC0


def bits(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def half(code: int) -> float:
    """The bfloat16 of 16 bits."""
    return struct.unpack("<f", struct.pack("<I", code << 16))[0]


def nearest(x: Fraction, points: dict[int, Fraction]) -> int:
    """The code of the nearest point; of two, the even code."""
    return min(points, key=lambda code: (abs(points[code] - x), code % 2))


def bfloat16(x: float) -> int:
    if x != x:
        return NAN_HALF
    below, sign = bits(x) >> 16 & 0x7FFF, bits(x) >> 31 << 15
    if below >= 0x7F80:
        return sign | below
    points = {below: Fraction(half(below))}
    points[below + 1] = Fraction(2) ** 128 if below == 0x7F7F else Fraction(half(below + 1))
    return sign | nearest(abs(Fraction(x)), points)


def upwards(x: float) -> int:
    """The least bfloat16 that is x or more, for x of 0 or more: 0x7F80, infinity, behind the largest."""
    return next(code for code in (bits(x) >> 16, (bits(x) >> 16) + 1) if half(code) >= x)


def downwards(x: float) -> int:
    if x >= 0:
        return 0 if x == 0 else bits(x) >> 16
    return 0x8000 | upwards(-x)


E4M3 = {
    exponent << 3 | mantissa: Fraction(mantissa + 8 * (exponent > 0), 8) * Fraction(2) ** (max(exponent, 1) - 7)
    for exponent in range(16)
    for mantissa in range(8)
    if (exponent, mantissa) != (15, 7)
}


def fp8(x: float, scale: float) -> int:
    if x != x:
        return 0x7F
    with np.errstate(over="ignore", under="ignore"):
        quotient = float(np.float32(x) / np.float32(scale))
    size = Fraction(448) if abs(quotient) > 448 else abs(Fraction(quotient))
    return nearest(size, E4M3) | bits(x) >> 31 << 7


def rounded(x: np.float32, scale: np.float32) -> int:
    return round(float(x / scale))  # Python rounds halves to even


def int8(row: list[float]) -> tuple[list[int], list[int]]:
    if not all(np.isfinite(row)):
        return [0] * len(row), [NAN_HALF]
    with np.errstate(over="ignore", under="ignore"):
        code = upwards(float(np.float32(max(abs(x) for x in row)) / np.float32(127)))
        scale = np.float32(half(code))
        if not np.isfinite(np.float32(127) * scale):
            return [0] * len(row), [NAN_HALF]
        return [0 if scale == 0 else max(-127, min(127, rounded(np.float32(x), scale))) for x in row], [code]


def int4(row: list[float]) -> tuple[list[int], list[int]]:
    if not all(np.isfinite(row)):
        return [0] * len(row), [NAN_HALF, 0]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low = downwards(min(row))
        least = np.float32(half(low))
        step = (np.float32(max(row)) - least) / np.float32(15)
        code = upwards(float(step))
        scale = np.float32(half(code))
        if not np.isfinite(least + np.float32(15) * scale):
            return [0] * len(row), [NAN_HALF, 0]
        codes = [0 if scale == 0 else max(0, min(15, rounded(np.float32(x) - least, scale))) for x in row]
        return codes, [code, low]


def as_kept(form: str, row: list[float], scale: float) -> tuple[list[int], list[int]]:
    """Codes and scales of a row; of float32 and bfloat16 the bits."""
    if form in ("int8", "int4"):
        return (int8 if form == "int8" else int4)(row)
    one = {"float32": bits, "bfloat16": bfloat16, "fp8": lambda x: fp8(x, scale)}[form]
    return [one(x) for x in row], []


def found(form: str, line: torch.Tensor, scales: torch.Tensor | None) -> tuple[list[int], list[int]]:
    """Codes and scales that lie in a line of elements, and beside it."""
    raw = line.contiguous()
    if form == "int4":
        codes = [code & 15 for code in raw.tolist()] + [code >> 4 for code in raw.tolist()]
    elif form in ("float32", "bfloat16"):
        codes = raw.numpy().view(np.uint32).tolist() if form == "float32" else halves(raw)
    else:
        codes = raw.tolist()
    return codes, [] if scales is None else halves(scales.contiguous().view(-1))


def halves(x: torch.Tensor) -> list[int]:
    return [code & 0xFFFF for code in x.view(torch.int16).tolist()]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit; all NaN alike."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def keeps():
    """The twin, and C where it is."""
    yield keep_torch
    if PATHS:
        yield lambda blocks, places, key, value: in_c.keep(blocks, places.slots, key, value, 1)


def places_at(position: int) -> Places:
    table, sequence = torch.tensor([[1]], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    return Places(table=table, sequence=sequence, position=torch.tensor([position], dtype=torch.int32))


anything = st.floats(width=32)
usual = st.floats(-8, 8, width=32)
tiny = st.floats(-(2.0**-120), 2.0**-120, width=32)
huge = st.floats(2.0**120, 2.0**127, width=32).flatmap(lambda x: st.sampled_from([x, -x]))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.one_of(
    *(st.lists(one, min_size=DIM, max_size=DIM) for one in (anything, usual, tiny, huge, finite)),
    st.one_of(usual, finite).map(lambda x: [x] * DIM),
)
MOST = 3.4028234663852886e38
TIES = [
    0.5,
    1.5,
    -2.5,
    0.0009765625,
    0.0029296875,
    17.0,
    19.0,
    464.0,
    448.0,
    -500.0,
    1.00390625,
    127.0,
    -0.0,
    0.0,
    1e-42,
    26.0,
]


@pytest.mark.parametrize("form", FORMS)
@given(rows, rows, st.sampled_from([1.0, 0.37, 2.0**-100, 2.0**100]), st.integers(0, 15))
@example(TIES, TIES[::-1], 1.0, 3)
@example([0.0] * DIM, [-0.0] * 8 + [0.0] * 8, 1.0, 0)
@example([MOST] * DIM, [-MOST, MOST] * 8, 1.0, 15)
@example([float("inf")] + [1.0] * 15, [1.0] * 15 + [float("nan")], 1.0, 7)
@example([1e-45] * DIM, [1e-45, -1e-45] * 8, 1.0, 1)
@example([float(x) for x in range(16)], [float(x) - 7.5 for x in range(16)], 1.0, 1)
def test_what_is_kept_of_a_number_is_what_the_format_says(form, key, value, scale, position):
    scales = {"key_scale": scale, "value_scale": scale} if form == "fp8" else {}
    for keep in keeps():
        blocks = new_blocks(2, 1, DIM, form=form, **scales)
        keep(blocks, places_at(position), torch.tensor(key).view(1, 1, DIM), torch.tensor(value).view(1, 1, DIM))
        lines = (
            (key, blocks.keys[1, 0, :, position], blocks.key_scales),
            (value, blocks.values[1, 0, position], blocks.value_scales),
        )
        for row, line, beside in lines:
            codes, there = found(form, line, None if beside is None else beside[1, 0][..., position])
            assert (codes, there) == as_kept(form, row, scale), row
        for tensor in blocks.tensors.values():  # and nothing anywhere else
            assert not tensor[0].view(torch.uint8).any()


def filled(form: str, seed: int = 0, kv_heads: int = 2, dim: int = 32) -> Blocks:
    """Two blocks of any codes at all, and any scales: NaN and infinities too."""
    generator = torch.Generator().manual_seed(seed)
    scales: dict[str, Any] = {"key_scale": 0.3, "value_scale": 3.0} if form == "fp8" else {}
    blocks = new_blocks(2, kv_heads, dim, form=form, **scales)
    for tensor in blocks.tensors.values():
        raw = tensor.view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, generator=generator, dtype=torch.uint8))
    return blocks


@pytest.mark.parametrize("form", FORMS)
def test_the_numbers_of_codes_are_what_the_format_says(form):
    blocks = filled(form)
    keys, values = numbers_of(blocks, torch.tensor([1, 0]))
    for at, block in enumerate((1, 0)):
        for head, slot in ((0, 0), (0, 15), (1, 6)):
            for numbers, line, beside, scale in (
                (keys[at, head, :, slot], blocks.keys[block, head, :, slot], blocks.key_scales, blocks.key_scale),
                (values[at, head, slot], blocks.values[block, head, slot], blocks.value_scales, blocks.value_scale),
            ):
                codes, there = found(form, line, None if beside is None else beside[block, head][..., slot])
                assert same(numbers, torch.tensor(expanded(form, codes, there, scale)))


def expanded(form: str, codes: list[int], scales: list[int], scale: float) -> list[float]:
    one = {
        "float32": lambda code: struct.unpack("<f", struct.pack("<I", code))[0],
        "bfloat16": half,
        "fp8": lambda code: float(np.float32(e4m3(code)) * np.float32(scale)),
        "int8": lambda code: float(np.float32(code) * np.float32(half(scales[0]))),
        "int4": lambda code: float(np.float32(half(scales[1])) + np.float32(code) * np.float32(half(scales[0]))),
    }[form]
    with np.errstate(all="ignore"):
        return [one(code) for code in codes]


def e4m3(code: int) -> float:
    return float("nan") if code & 0x7F == 0x7F else float(E4M3[code & 0x7F]) * (-1 if code & 0x80 else 1)


def floats_of(blocks: Blocks) -> Blocks:
    """float32 blocks of the same numbers."""
    keys, values = numbers_of(blocks, torch.arange(blocks.count))
    return Blocks(keys=keys.contiguous(), values=values.contiguous())


@needs_c
@each_row("path", PATHS)
@each_row("name", SEEN)
@each_row("form", NARROW)
@each_row(("kv_heads", "dim"), [(8, 16), (4, 32), (2, 48), (1, 80), (2, 128)])
def test_attention_has_the_bits_it_has_over_float32_of_the_same_numbers(path, name, form, kv_heads, dim):
    scales: dict[str, Any] = {"key_scale": 0.11, "value_scale": 0.07} if form == "fp8" else {}
    sequences = Sequences([4, 20, 170, 34], kv_heads, dim, form=form, **scales).filled()
    lines = [*ROWS, (2, 168), (2, 169)]
    query = sequences.query(len(lines), 8)
    got = attended(query, sequences, lines, SEEN[name], path)
    assert got.isfinite().all()
    floats, places = floats_of(sequences.blocks), sequences.places(lines)
    for threads in (1, 2):
        assert torch.equal(got, in_c.attend(query, floats, places, SEEN[name], threads, path))
        assert torch.equal(got, in_c.attend(query, sequences.blocks, places, SEEN[name], threads, path))


@each_row("name", SEEN)
@each_row("form", NARROW)
def test_the_twin_sees_what_is_kept(form, name):
    sequences = Sequences([4, 20, 50, 34], 2, 48, form=form).filled(keep_torch)
    query = sequences.query(len(ROWS), 8)
    got = attend_torch(query, sequences.blocks, sequences.places(ROWS), SEEN[name])
    for number, table in enumerate(sequences.table.long()):
        keys, values = numbers_of(sequences.blocks, table)
        count = len(sequences.keys[number])
        sequences.keys[number] = keys.permute(0, 3, 1, 2).flatten(0, 1)[:count]
        sequences.values[number] = values.transpose(1, 2).flatten(0, 1)[:count]
    torch.testing.assert_close(got.double(), oracle(query, sequences, ROWS, SEEN[name]), atol=5e-6, rtol=1e-5)


@each_row("path", ["twin", *PATHS])
@each_row("form", FORMS)
@each_row("where", ["keys", "values"])
@each_row("number", [torch.nan, torch.inf])
def test_who_sees_what_is_not_finite_gets_nothing_finite(path, form, where, number):
    sequences = Sequences([40], 2, 32, form=form)
    getattr(sequences, where)[0][7, 1] = number
    sequences.filled()
    query = sequences.query(2, 4)
    got = attended(query, sequences, [(0, 6), (0, 7)], Seen(scale=0.2), path)
    assert got[0].isfinite().all()
    assert got[1, :2].isfinite().all(), "the other head"
    if form == "fp8" and number == torch.inf:
        assert got.isfinite().all(), "which saturates"
    else:
        assert not got[1, 2:].isfinite().all()


@needs_c
@pytest.mark.parametrize("form", NARROW)
def test_a_thread_that_flushes_subnormals_keeps_and_sees_the_same(form):
    key, value = torch.randn(2, 20, 2, 32, generator=torch.Generator().manual_seed(3)) * 1e-39
    query, found = torch.randn(1, 2, 32), []
    for flush in (False, True):
        sequences = Sequences([20], 2, 32, form=form)
        places = sequences.places([(0, p) for p in range(20)])
        if not torch.set_flush_denormal(flush) and flush:
            pytest.skip("this processor cannot")
        try:
            in_c.keep(sequences.blocks, places.slots, key, value, 1)
            out = in_c.attend(query, sequences.blocks, sequences.places([(0, 19)]), Seen(scale=1.0), 1)
        finally:
            torch.set_flush_denormal(False)
        found.append([*(tensor.clone().view(torch.uint8) for tensor in sequences.blocks.tensors.values()), out])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@each_row("form", FORMS)
@each_row(("kv_heads", "dim"), [(1, 16), (4, 64), (3, 80), (8, 128)])
def test_the_bytes_of_a_position_are_those_that_blocks_take(form, kv_heads, dim):
    blocks = new_blocks(5, kv_heads, dim, form=form)
    assert blocks.head_dim == dim
    assert blocks.nbytes == sum(one.nbytes for one in blocks.tensors.values())
    assert blocks.nbytes == 5 * 16 * bytes_of_position(form, kv_heads, dim)


@pytest.mark.parametrize(("form", "most"), [("fp8", 0.5), ("int8", 0.52), ("int4", 0.29)])
@pytest.mark.parametrize("dim", [64, 128])
def test_formats_take_a_part_of_bfloat16(form, most, dim):
    assert bytes_of_position(form, 4, dim) <= most * bytes_of_position("bfloat16", 4, dim)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_copied_whole_and_the_first_of_them_share_their_memory(form):
    blocks = filled(form)
    before = {name: tensor.clone().view(torch.uint8) for name, tensor in blocks.tensors.items()}
    blocks.copy(torch.tensor([0, 1]), torch.tensor([1, 0]))
    for name, tensor in blocks.first(1).tensors.items():
        assert torch.equal(tensor.view(torch.uint8), before[name][1:])
        assert tensor.data_ptr() == blocks.tensors[name].data_ptr()
        assert torch.equal(blocks.tensors[name][1:].view(torch.uint8), before[name][:1])
    first = blocks.first(1)
    assert (first.count, first.form, first.key_scale, first.value_scale) == (
        1, form, blocks.key_scale, blocks.value_scale,
    )  # fmt: skip


def test_blocks_whose_tensors_do_not_fit_are_refused():
    int8, int4, plain = (new_blocks(2, 2, 32, form=form) for form in ("int8", "int4", "float32"))
    for blocks, changes, said in (
        (plain, {"form": "fp4"}, "form: expected one of"),
        (plain, {"form": None}, "form: expected one of"),
        (plain, {"form": "bfloat16"}, "keys of bfloat16 torch.bfloat16"),
        (plain, {"keys": plain.keys[0]}, "4 dimensions"),
        (plain, {"values": plain.values.transpose(2, 3)}, "expected values of float32"),
        (plain, {"values": plain.values[:1]}, "expected values of float32"),
        (plain, {"keys": plain.keys[:, :, ::2]}, "expected keys of float32"),
        (plain, {"key_scales": int8.key_scales}, "expected keys, values of float32, got keys, values, key_scales"),
        (int8, {"key_scales": None}, "expected keys, values, key_scales, value_scales of int8"),
        (int8, {"key_scales": int4.key_scales}, "expected key_scales of int8"),
        (int8, {"value_scales": torch.zeros(2, 2, 16)}, "expected value_scales of int8"),
        (int8, {"form": "int4"}, "of int4"),
        (int4, {"form": "int8"}, "of int8"),
        (int8, {"key_scale": 2.0}, "key_scale: expected 1.0"),
        (plain, {"values": plain.values.to("meta")}, "values: expected a tensor on cpu"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(blocks, **changes)
    scale: Any
    for scale in (0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e40, 1, None):
        with pytest.raises(ValueError, match="key_scale: expected"):
            new_blocks(1, 1, 16, form="fp8", key_scale=scale)
        with pytest.raises(ValueError, match="value_scale: expected"):
            new_blocks(1, 1, 16, form="fp8", value_scale=scale)
    with pytest.raises(ValueError, match="form: expected one of"):
        bytes_of_position("int2", 1, 16)
    for form in FORMS:
        with pytest.raises(ValueError, match="head_dim: expected a multiple of 16"):
            new_blocks(1, 1, 24, form=form)


@needs_c
def test_c_takes_no_blocks_that_are_elsewhere():
    there, query = new_blocks(2, 1, 16, form="int8", device="meta"), torch.zeros(1, 1, 16)
    with pytest.raises(ValueError, match="on the CPU, got meta"):
        in_c.attend(query, there, places_at(0), Seen(scale=1.0), 1)
    with pytest.raises(ValueError, match="on the CPU, got meta"):
        in_c.keep(there, places_at(0).slots, query, query, 1)
