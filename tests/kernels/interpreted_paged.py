"""Paged attention in Triton, through its interpreter, against float64 over the whole sequence; and each row's bits.

bfloat16 products are wrong in the interpreter: there the three terms of a float32 are multiplied as float32, which
gives each product its exact value, as tensor cores do. `test_interpreted.py` runs this file in its own
process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

from qualgate_kernels import availability, dispatch
from qualgate_kernels.packs import Packs, prepare
from qualgate_kernels.paged import Seen, keep_torch, numbers_of
from qualgate_kernels.paged_gpu import attend_paged_triton, keep_paged_triton
from qualgate_kernels.slots import SLOTS
from tests.kernels.one_shape import one_shape
from tests.kernels.test_paged import ROWS, SEEN, Sequences, oracle

FORMS = ("float32", "bfloat16")
EITHER = one_shape("bfloat16", "float32")
LENGTHS = [4, 20, 50, 34]


class RowByRow:
    """numpy, but a product's row has the bits that it has alone, as on a GPU: with some processors' libraries it has
    not."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def matmul(left: Any, right: Any, dtype: Any) -> Any:
        return np.add.reduce(left.astype(dtype)[:, :, None] * right.astype(dtype)[None], axis=1)


@pytest.fixture(autouse=True, scope="module")
def row_by_row():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "np", RowByRow())
        yield


def close(found, query, sequences, rows, seen):
    torch.testing.assert_close(found.double(), oracle(query, sequences, rows, seen), atol=5e-6, rtol=1e-5)


def same(one, other):
    """To the bit, NaN too."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def seen_of(name, heads):
    sinks = None if SEEN[name].sinks is None else torch.linspace(-3, 2, heads)
    return replace(SEEN[name], sinks=sinks)


SHAPES = [
    (1, 3, 96, "window"),
    (2, 10, 64, "plain"),
    (1, 7, 80, "all"),
    (2, 2, 128, "soft cap"),
    (1, 40, 16, "sinks"),
    (1, 5, 176, "a window of one"),
    (1, 1, 256, "all"),
]


@pytest.mark.parametrize("form", EITHER)
@pytest.mark.parametrize(("kv_heads", "heads", "dim", "name"), one_shape(*SHAPES))
def test_a_row_sees_its_sequence_up_to_itself(kv_heads, heads, dim, name, form):
    sequences = Sequences(LENGTHS, kv_heads, dim, form=form).filled(keep_paged_triton)
    query, seen = sequences.query(len(ROWS), heads), seen_of(name, heads)
    found = attend_paged_triton(query, sequences.blocks, sequences.places(ROWS), seen)
    close(found, query, sequences, ROWS, seen)


@pytest.mark.parametrize("form", EITHER)
@pytest.mark.parametrize("window", one_shape(250, 0, 1, 300))
def test_spans_side_by_side_have_the_bits_of_spans_in_a_row(window, form):
    """Positions of one to three spans; rows of a pack that begin in the one span or in the other."""
    rows = [(0, p) for p in (0, 255, 256, 300, 511, 512, 513, 555, 556, 699)] + [(1, 30), (0, 557)]
    sequences = Sequences([700, 40], 1, 32, form=form).filled()
    query, seen = sequences.query(len(rows), 3), Seen(scale=0.2, window=window, sinks=torch.ones(3))
    places = sequences.places(rows)
    whole = attend_paged_triton(query, sequences.blocks, places, seen, split=False)
    close(whole, query, sequences, rows, seen)
    assert same(attend_paged_triton(query, sequences.blocks, places, seen, split=True), whole)
    for index in (1, 2, 7, 9):
        alone = attend_paged_triton(
            query[index : index + 1].contiguous(), sequences.blocks, sequences.places(rows[index : index + 1]), seen,
            split=bool(index % 2),
        )  # fmt: skip
        assert same(alone[0], whole[index]), index


@pytest.mark.parametrize("form", EITHER)
def test_kept_keys_and_values_lie_where_the_twin_lays_them(form):
    one, two = (Sequences([20, 7], 3, 48, 5, form) for _ in range(2))
    key, value = torch.randn(2, 20, 3, 48, generator=one.generator)
    ties = torch.tensor([0x3F808000, 0x3F818000, 0x3F80FFFF, 0x7F7FFFFF, 0x3FFF8000, 0x00818000], dtype=torch.int32)
    key[3, 1, :6] = ties.view(torch.float32)  # ties down and up, above, to infinity, into the exponent, tiny
    for keep, sequences in ((keep_torch, one), (keep_paged_triton, two)):
        keep(sequences.blocks, sequences.places([(0, p) for p in range(20)]), key, value)
        keep(sequences.blocks, sequences.places([(1, 6)]), key.transpose(0, 1)[0, :1].expand(1, 3, 48), value[:1])
    assert torch.equal(one.blocks.keys, two.blocks.keys)
    assert torch.equal(one.blocks.values, two.blocks.values)


@pytest.mark.parametrize("form", EITHER)
def test_what_a_row_does_not_see_has_no_say_were_it_not_finite(form):
    """Behind it in its own pack, before its window, in other blocks: beside rows that do see it."""
    sequences = Sequences([40, 40], 1, 32, form=form).filled(keep_paged_triton)
    rows, seen = [(0, p) for p in range(20, 26)], Seen(scale=0.2, window=20)
    query = sequences.query(len(rows), 2)
    before = attend_paged_triton(query, sequences.blocks, sequences.places(rows), seen)
    bad = [(0, p) for p in (0, 1, 2, 23, *range(26, 40))] + [(1, p) for p in range(40)]
    key = torch.full((len(bad), 1, 32), torch.inf)
    value = torch.randn(len(bad), 1, 32)
    value[:, 0, 7] = torch.tensor([torch.nan, torch.inf, -torch.inf])[torch.arange(len(bad)) % 3]
    keep_paged_triton(sequences.blocks, sequences.places(bad), torch.where(torch.arange(32) < 9, key, 0.0), value)
    after = attend_paged_triton(query, sequences.blocks, sequences.places(rows), seen)
    sees = torch.tensor([p - 19 <= 2 or p >= 23 for _, p in rows])
    assert sees.tolist() == [True, True, False, True, True, True]
    assert same(after[~sees], before[~sees])
    assert after[sees].isnan().all()
    for index, row in enumerate(rows):
        alone = query[index : index + 1].contiguous()
        assert same(attend_paged_triton(alone, sequences.blocks, sequences.places([row]), seen)[0], after[index])


@pytest.mark.parametrize(("positions", "window"), one_shape(([130, 190], 2), (range(150, 160), 25)))
def test_the_table_is_not_followed_where_no_row_sees_anything(positions, window):
    """A sequence's blocks before its window may have gone to others, those behind it are not there yet."""
    sequences = Sequences([300], 1, 16).filled()
    rows, seen = [(0, p) for p in positions], Seen(scale=0.2, window=window)
    query = sequences.query(len(rows), 2)
    looked_at = {at // SLOTS for p in positions for at in range(p - window + 1, p + 1)}
    for block in set(range(sequences.table.shape[1])) - looked_at:
        sequences.table[0, block] = (-1) ** block * 2**30
    for split in (False, True):
        found = attend_paged_triton(query, sequences.blocks, sequences.places(rows), seen, split=split)
        close(found, query, sequences, rows, seen)


@pytest.mark.proof
@pytest.mark.parametrize(("name", "split"), [("plain", False), ("all", True)])
def test_of_packs_without_rows_nothing_comes_and_the_others_have_their_bits(name, split):
    """A pass of fewer rows than its packs were made for."""
    sequences = Sequences(LENGTHS, 2, 32).filled()
    query, seen = sequences.query(len(ROWS), 6), seen_of(name, 6)
    places = prepare(sequences.places(ROWS), sequences.blocks.count, torch.device("cpu"))
    expected = attend_paged_triton(query, sequences.blocks, places, seen)
    packs = places.packs_of(3, seen.window)
    filled = torch.cat([packs.numbers, torch.zeros(3, 4, dtype=torch.int32)])
    places.packs[3, seen.window] = Packs(filled, packs.spans + 2)
    assert same(attend_paged_triton(query, sequences.blocks, places, seen, split=split), expected)


def held(form, dim=48, **scales):
    """Sequences whose `keys` and `values` are what blocks of the form keep of them."""
    sequences = Sequences(LENGTHS, 2, dim, form=form, **scales).filled(keep_paged_triton)
    keys, values = numbers_of(sequences.blocks, sequences.table.flatten().long())
    keys, values = keys.permute(0, 3, 1, 2), values.transpose(1, 2)  # [blocks, SLOTS, kv_heads, dim]
    for kept, numbers in ((sequences.keys, keys), (sequences.values, values)):
        numbers = numbers.reshape(len(LENGTHS), -1, 2, dim)
        kept[:] = [numbers[at, :length] for at, length in enumerate(LENGTHS)]
    return sequences


@pytest.mark.parametrize(("name", "dim"), one_shape(("all", 48), ("plain", 192)))
@pytest.mark.parametrize("form", one_shape("int8", "fp8", "int4"))
def test_codes_are_read_as_the_numbers_that_they_stand_for(form, name, dim):
    sequences = held(form, dim, **({"key_scale": 0.25, "value_scale": 0.0078125} if form == "fp8" else {}))
    query, seen = sequences.query(len(ROWS), 6), seen_of(name, 6)
    found = attend_paged_triton(query, sequences.blocks, sequences.places(ROWS), seen)
    close(found, query, sequences, ROWS, seen)
    for index in (0, len(ROWS) - 1):
        alone = query[index : index + 1].contiguous()
        assert same(attend_paged_triton(alone, sequences.blocks, sequences.places(ROWS[index : index + 1]), seen)[0],
                    found[index])  # fmt: skip


NOT_FINITE = [
    ("float32", torch.nan), ("float32", torch.inf), ("bfloat16", torch.nan), ("fp8", torch.nan), ("int8", torch.nan),
    ("int8", torch.inf), ("int4", -torch.inf), ("int4", 3.4e38),
]  # fmt: skip


@pytest.mark.parametrize(("form", "number"), one_shape(*NOT_FINITE))
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(form, number):
    sequences = Sequences([40], 2, 32, form=form)
    for head, numbers in ((0, sequences.keys), (1, sequences.values)):
        numbers[0][7, head, 3:5] = torch.tensor([number, -number])
    sequences.filled(keep_paged_triton)
    found = attend_paged_triton(
        sequences.query(2, 4), sequences.blocks, sequences.places([(0, 6), (0, 7)]), Seen(scale=0.2)
    )
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


def test_dispatch_asks_for_it_where_it_serves(monkeypatch):
    monkeypatch.setattr(dispatch, "paged_path", lambda blocks: "triton")
    sequences = Sequences(LENGTHS, 2, 32, form="bfloat16").filled(dispatch.keep_paged)
    query, places, seen = sequences.query(len(ROWS), 8), sequences.places(ROWS), SEEN["all"]
    found = dispatch.attend_paged(query, sequences.blocks, places, seen)
    assert same(found, attend_paged_triton(query, sequences.blocks, places, seen))
    close(found, query, sequences, ROWS, seen)
    with pytest.raises(ValueError, match="query: expected"):
        dispatch.attend_paged(query[:1], sequences.blocks, places, seen)


@pytest.mark.parametrize("form", one_shape("int8", "bfloat16"))
def test_places_that_were_prepared_once_give_every_layer_its_bits(form, monkeypatch):
    monkeypatch.setattr(availability, "on_triton", lambda device: True)
    layers = [Sequences(LENGTHS, 2, 32, seed, form) for seed in (0, 0)]
    query, seen = layers[0].query(len(ROWS), 8), SEEN["all"]
    prepared = dispatch.prepare_places(layers[0].places(ROWS), layers[0].blocks.count, torch.device("cpu"))
    assert dispatch.prepare_places(prepared, layers[0].blocks.count, torch.device("cpu")) is prepared
    key, value = torch.randn(2, len(ROWS), 2, 32, generator=layers[0].generator)
    found = []
    for layer, places in zip(layers, (prepared, layers[1].places(ROWS)), strict=True):
        layer.filled()
        dispatch.keep_paged(layer.blocks, places, key, value)
        found += [dispatch.attend_paged(query, layer.blocks, places, seen) for _ in range(2)]
    assert all(same(one, found[0]) for one in found)
    assert list(prepared.packs) == [(4, seen.window)]
