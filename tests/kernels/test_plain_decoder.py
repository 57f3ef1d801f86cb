"""A pass through a plain decoder in C: against float64, and each row's bits, whatever rides along."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels import cpu
from qualgate_kernels.cpu import decode as in_c
from qualgate_kernels.cpu.decode import STORED, Decode
from qualgate_kernels.dense import prepare_dense
from qualgate_kernels.kept import FORMS as KEPT
from qualgate_kernels.paged import Blocks, Seen, keep_torch, new_blocks
from qualgate_kernels.plain_decoder import Products, decode_torch
from qualgate_kernels.slots import SLOTS
from tests.kernels.plain_decoders import FORMS, POSITIONS, W8A8, Drawn, Shape, Texts, allowed, computed, drawn, shapes
from tests.tables import each_row

pytestmark = pytest.mark.skipif(bool(in_c.missing()), reason=in_c.missing())
PATHS = [path for path in ("scalar", "avx2", "avx512") if path in cpu.paths()]
LENGTHS = [37, 5, 22]
WIDE = Shape(width=160, dim=32, rotary=16, inner=192, norms=True, biases=True, window=9, sinks=True)  # threads share it
EVERYTHING = Shape(group=3, layers=3, biases=True, norms=True, window=5, sinks=True, soft_cap=2.0, form="bfloat16")


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """NaN for NaN too."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


@given(shapes(FORMS), st.integers(1, POSITIONS))
@example(Shape(), 1)
@example(EVERYTHING, 40)
@example(WIDE, POSITIONS)
@example(Shape(rotary=0, stacked=True, form="mxfp4", inner=64, width=32), 20)
def test_every_path_and_the_twin_are_as_near_to_float64_as_float32_gets(shape, length):
    made = drawn(shape)
    texts = Texts(made, [length])
    states = computed(made, texts.x[0])
    bound = allowed(made, texts.x[0], states)
    for path in PATHS:
        assert float((texts.whole(path=path)[0] - states).abs().max()) <= bound, path
    places = texts.places(texts.rows)
    twin = decode_torch(made.decoder, texts.x[0], places, texts.blocks, torch.arange(length))
    assert float((twin - states).abs().max()) <= bound


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [Shape(form=W8A8), replace(EVERYTHING, form=W8A8, stacked=True)])
def test_a_pass_of_rounded_inputs_is_the_twins_but_for_codes_that_are_the_next(path, shape):
    made = drawn(shape)
    texts, twin = Texts(made, [37]), Texts(made, [37])
    expected = decode_torch(made.decoder, twin.x[0], twin.places(twin.rows), twin.blocks, torch.arange(37))
    far = (texts.whole(path=path)[0] - expected).abs()
    assert float(far.max()) < 0.05
    assert float(far.median()) < 1e-5


def any_pass(draw: random.Random, at: list[int], lengths: list[int]) -> list[tuple[int, int]]:
    """Some next rows of some sequences, in any order but each sequence's own."""
    turns = [number for number, length in enumerate(lengths) for _ in range(draw.choice([0, 1, 1, 7, length]))]
    draw.shuffle(turns)
    rows = []
    for number in turns:
        if at[number] < lengths[number]:
            rows.append((number, at[number]))
            at[number] += 1
    return rows


def cut(texts: Texts, seed: int, **how) -> list[dict[int, torch.Tensor]]:
    """All rows in passes of any kind, on any number of threads, any of them wanted: what came of each sequence's."""
    draw, lengths = random.Random(seed), [len(x) for x in texts.x]
    found: list[dict[int, torch.Tensor]] = [{} for _ in lengths]
    at = [0] * len(lengths)
    while at != lengths:
        if rows := any_pass(draw, at, lengths):
            share = draw.choice([0, 0.3, 1])
            wanted = [index for index in range(len(rows)) if draw.random() < share]
            states = texts.passed(rows, wanted, threads=draw.choice([1, 2, 3]), **how)
            for index, state in zip(wanted, states, strict=True):
                found[rows[index][0]][rows[index][1]] = state
    return found


@given(shapes((*FORMS, W8A8)), st.integers(0, 2**20), st.sampled_from(list(KEPT)), st.sampled_from(list(STORED)))
@example(WIDE, 0, "float32", "float32")
@example(WIDE, 2, "int8", "bfloat16")
@example(replace(WIDE, form=W8A8, stacked=True), 1, "fp8", "float16")
@example(EVERYTHING, 2, "int4", "float32")
def test_however_texts_are_cut_and_mixed_every_row_has_the_bits_it_has_alone(shape, seed, kept, stored):
    made, how = drawn(shape), {"path": PATHS[seed % len(PATHS)], "stored": stored}
    whole = Texts(made, LENGTHS, seed, kept).whole(**how)
    found = cut(Texts(made, LENGTHS, seed, kept), seed, **how)
    assert all(same(state, whole[number][at]) for number, rows in enumerate(found) for at, state in rows.items())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [replace(WIDE, window=0, layers=1), Shape(stacked=True, rotary=8, layers=1)])
def test_a_pass_stores_what_the_twin_stores_but_for_numbers_halfway_between_two(path, stored, shape):
    made, dtype = drawn(shape), getattr(torch, stored)
    tables = {name: getattr(made.decoder, name).to(dtype).float() for name in ("cosines", "sines")}
    made = replace(made, decoder=replace(made.decoder, **tables))
    texts, twin = Texts(made, [37]), Texts(made, [37])
    found = texts.passed(texts.rows, path=path, stored=stored)
    expected = decode_torch(made.decoder, twin.x[0], twin.places(twin.rows), twin.blocks, torch.arange(37), stored)
    assert torch.equal(found, found.to(dtype).float())
    plain = decode_torch(made.decoder, twin.x[0], twin.places(twin.rows), twin.blocks, torch.arange(37))
    assert (found - expected).square().mean() < 0.3 * (plain - expected).square().mean()
    for ours, theirs in zip(texts.blocks, twin.blocks, strict=True):
        assert torch.equal(ours.keys, ours.keys.to(dtype).float())
        assert torch.equal(ours.values, ours.values.to(dtype).float())
        assert float((ours.values - theirs.values).abs().max()) < 0.1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kept", [form for form in KEPT if form != "float32"])
def test_keys_and_values_are_kept_in_the_blocks_format_and_seen_as_they_are_kept(path, kept):
    made = drawn(replace(WIDE, layers=1, window=0))
    plain, narrow, twin = (Texts(made, LENGTHS, 0, form) for form in ("float32", kept, kept))
    exact, states = plain.passed(plain.rows, path=path), narrow.passed(narrow.rows, path=path)
    places = plain.places(plain.rows)
    block, slot = places.slots // SLOTS, places.slots % SLOTS
    there = plain.blocks[0]
    keep_torch(twin.blocks[0], places, there.keys[block, :, :, slot], there.values[block, :, slot])
    for name, tensor in narrow.blocks[0].tensors.items():
        assert torch.equal(tensor, twin.blocks[0].tensors[name]), name
    expected = decode_torch(made.decoder, torch.cat(twin.x), places, twin.blocks, torch.arange(len(states)))
    assert float((states - expected).abs().max()) < 2e-3  # a code of the twin's may be the next
    assert float((states - exact).abs().max()) > 2e-3
    assert len(states) == sum(LENGTHS)


@each_row("path", PATHS)
@each_row("form", ["bfloat16", "int4 g16", W8A8])
@each_row("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_in_its_own_sequence_and_behind_its_row(path, form, number):
    made = drawn(replace(WIDE, form=form, window=0))
    clean, spoilt = Texts(made, LENGTHS), Texts(made, LENGTHS)
    spoilt.x[0][20, 3] = number
    rows = [(at % 3, at // 3) for at in range(3 * 37) if at // 3 < LENGTHS[at % 3]]
    before, after = clean.passed(rows, path=path), spoilt.passed(rows, path=path, threads=2)
    told = torch.tensor([row == 0 and at >= 20 for row, at in rows])
    assert same(before[~told], after[~told])
    assert not after[told].isfinite().any()


@pytest.mark.parametrize("path", PATHS)
def test_a_number_whose_square_is_beyond_float32_makes_its_rows_norm_zero_as_in_the_twin(path):
    made = drawn(replace(WIDE, biases=False))
    texts = Texts(made, [9])
    texts.x[0][4, 3] = 3e38
    twin = decode_torch(made.decoder, texts.x[0], texts.places(texts.rows), texts.blocks, torch.arange(9))
    assert not twin[4].any()
    assert torch.equal(texts.passed(texts.rows, path=path)[4], twin[4])


def test_a_thread_that_flushes_subnormals_gets_the_same_bits():
    for form in ("float32", W8A8):
        made = drawn(replace(WIDE, form=form, biases=False))
        texts = Texts(made, LENGTHS)
        texts.x = [x * 1e-39 for x in texts.x]
        made.decoder.layers[0].attention_norm.mul_(1e-3)
        expected = texts.passed(texts.rows)
        assert bool((expected != 0).any())
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot")
        try:
            found = texts.passed(texts.rows)
        finally:
            torch.set_flush_denormal(False)
        assert same(found, expected), form


def fault(texts: Texts, match: str, **changes) -> None:
    """A pass with `changes` of its arguments is refused, by Python before C reads them or by C."""
    places = texts.places(texts.rows[:6])
    arguments = {"x": texts.embedded(texts.rows[:6]), "places": places, "slots": places.slots}
    with pytest.raises((RuntimeError, ValueError), match=match):
        texts.decode(**(arguments | {"wanted": torch.arange(6), "threads": 1} | changes))


def test_passes_that_cannot_be_and_tensors_that_do_not_fit_are_refused():
    texts = Texts(drawn(Shape()), [POSITIONS + 20, 7])
    places, x = texts.places(texts.rows[:6]), texts.embedded(texts.rows[:6])
    far = torch.tensor([0, 1, 2, 3, 4, POSITIONS], dtype=torch.int32)
    for wanted in ([1, 0], [0, 0], [5, 6], [-1]):
        fault(texts, "out of range", wanted=torch.tensor(wanted))
    for changes in (
        {"position": far},
        {"position": -far},
        {"position": places.position.flip(0).contiguous()},
        {"sequence": places.sequence + 2},
        {"table": places.table + 100},
    ):
        fault(texts, "out of range", places=replace(places, **changes))
    for slots in (places.slots - 16 * 1000, places.slots + 16 * 1000):
        fault(texts, "out of range", slots=slots)
    fault(texts, "out of range", threads=0)
    fault(texts, "out of range", limit=1.0)
    fault(texts, "lacks the instructions", path="amx_emulated")
    for bad in (x.double(), x[:, :47], torch.zeros(6, 96)[:, ::2], x[0]):
        fault(texts, "expected torch.float32", x=bad)
    fault(texts, "expected torch.int64", wanted=torch.arange(6).int())
    fault(texts, "expected torch.int64", slots=places.slots[:5])
    fault(texts, "expected torch.int32", places=replace(places, table=places.table.long()))
    fault(texts, "expected torch.int32", places=replace(places, position=places.position[:5]))
    fault(texts, "expected torch.int64", limit=1.0, beyond=torch.zeros(3, dtype=torch.int64))


def dense(weight: torch.Tensor) -> Products:
    found = prepare_dense(weight)
    assert not isinstance(found, str)
    return Products(weights=(found,), biases=(None,))


def joined(weight: torch.Tensor, *rows: int) -> Products:
    """Cut into parts of so many rows."""
    parts = [dense(part) for part in weight.split(rows)]
    return Products(weights=tuple(part.weights[0] for part in parts), biases=(None,) * len(parts))


def with_first(made: Drawn, **changes) -> Drawn:
    """Its first layer changed."""
    first, *others = made.decoder.layers
    return replace(made, decoder=replace(made.decoder, layers=(replace(first, **changes), *others)))


def refused(made: Drawn, match: str, blocks: list[Blocks] | None = None, **changes) -> None:
    """The decoder with `changes` is refused before a pass or by it."""
    texts = Texts(made, [6])
    places = texts.places(texts.rows)

    def once() -> None:
        decode = Decode(replace(made.decoder, **changes), texts.blocks if blocks is None else blocks)
        decode(texts.x[0], places, places.slots, torch.arange(6), 1)

    with pytest.raises((ValueError, RuntimeError), match=match):
        once()


WEIGHT = torch.randn(160, 48, generator=torch.Generator().manual_seed(0))


def test_decoders_that_the_kernel_does_not_take_are_refused():
    for sizes, match in (
        ({"width": 40}, "width of 40"),
        ({"dim": 24, "rotary": 8}, "head_dim of 24"),
        ({"inner": 72}, "inner width of 72"),
    ):
        other = drawn(Shape(**sizes)).decoder
        assert match in in_c.unfit(other)
        with pytest.raises(ValueError, match=match):
            Decode(other, [])
    made, more = drawn(Shape()), torch.zeros(POSITIONS, 16)
    refused(made, "out of range", heads=3)
    refused(made, "out of range", heads=6)
    refused(made, "out of range", kv_heads=1, blocks=[new_blocks(6, 1, 16)] * 2)
    refused(made, "out of range", cosines=more, sines=more)  # more is turned than there is
    refused(made, "expected torch.float32", cosines=more)
    refused(made, "expected torch.float32", norm=made.decoder.norm.double())


def test_layers_that_do_not_fit_their_decoder_are_refused():
    made, square = drawn(Shape()), torch.ones(48, 64)  # 4 heads of queries, 2 of keys and 2 of values, of 16; 80 gates
    for changes in (
        {"attention_norm": torch.ones(47)},
        {"query_norm": torch.ones(17)},
        {"seen": Seen(scale=1.0, sinks=torch.ones(5))},
        {"out": replace(dense(square), biases=(torch.ones(47),))},
    ):
        refused(with_first(made, **changes), "expected torch.float32")
    parts_of_heads = ((32, 96), (64, 16, 48), (16, 48, 64), (48, 80), (64, 64, 32))
    for changes in (
        {"seen": Seen(scale=1.0, window=-1)},
        {"down": dense(square)},
        {"out": joined(square, 32, 16)},
        *({"heads": joined(WEIGHT[: sum(parts)], *parts)} for parts in parts_of_heads),
        *({"gates": joined(WEIGHT[: sum(parts)], *parts)} for parts in ((64, 96), (80, 48, 32), (48, 48))),
    ):
        refused(with_first(made, **changes), "out of range")


def test_however_layers_that_read_one_input_are_joined_they_give_the_same_bits():
    made = drawn(Shape())
    found = [
        Texts(with_first(made, heads=joined(WEIGHT[:128], *heads), gates=joined(WEIGHT, *gates)), LENGTHS).whole()[0]
        for heads, gates in (((64, 32, 32), (80, 80)), ((128,), (160,)), ((96, 32), (80, 80)), ((64, 64), (160,)))
    ]
    assert all(same(one, found[0]) for one in found)


def test_blocks_of_other_layers_are_refused():
    made = drawn(Shape())
    for blocks in (
        [new_blocks(6, 2, 16)],
        [new_blocks(6, 2, 16), new_blocks(6, 1, 16)],
        [new_blocks(6, 2, 16), new_blocks(6, 2, 32)],
        [new_blocks(6, 2, 16), new_blocks(5, 2, 16)],
        [new_blocks(6, 2, 16), new_blocks(6, 2, 16, form="int8")],
    ):
        refused(made, "blocks: expected 2 layers", blocks=blocks)
    elsewhere = new_blocks(6, 2, 16, device="meta")
    refused(made, "blocks: expected them on the CPU", blocks=[elsewhere, elsewhere])


def test_without_the_library_it_is_said_why(monkeypatch):
    monkeypatch.setattr(in_c, "_entry", lambda: "not compiled")
    assert in_c.missing() == in_c.unfit(drawn(Shape()).decoder) == "not compiled"
