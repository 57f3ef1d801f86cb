"""A pass as tensors: each row with its token, where it stands, and whether its logits are wanted."""

from __future__ import annotations

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.batch import batch
from qualgate.engine.request import Request
from qualgate.engine.schedule import Part, Stream
from qualgate_kernels.slots import SLOTS


def drawn(seed: int) -> list[Part]:
    """Parts of some streams, each with blocks of its own for all it reads."""
    draw = random.Random(seed)
    free, parts = draw.sample(range(100), 100), []
    for index in range(draw.randint(1, 5)):
        first, count = draw.choice([0, 3, SLOTS - 1, SLOTS, 40]), draw.choice([1, 2, SLOTS, 37])
        text = [draw.randrange(256) for _ in range(first + count)]
        blocks = [free.pop() for _ in range(-(-len(text) // SLOTS) + draw.randint(0, 2))]
        stream = Stream(index, Request(prompt=tuple(text), max_new_tokens=1), text, blocks=blocks)
        parts.append(Part(stream, first, text[first:], draw.randint(0, count)))
    return parts


@given(st.integers(0, 2**20))
def test_rows_lie_side_by_side_in_the_order_of_their_parts(seed):
    parts = drawn(seed)
    found = batch(parts, 100)
    rows = [(part, at) for part in parts for at in range(part.first, part.first + len(part.tokens))]
    assert found.blocks == 100
    assert found.token_ids.tolist() == [part.stream.text[at] for part, at in rows]
    assert found.positions.tolist() == found.places.position.tolist() == [at for _, at in rows]
    assert [parts[one] for one in found.places.sequence.tolist()] == [part for part, _ in rows]
    assert found.slots.tolist() == [part.stream.blocks[at // SLOTS] * SLOTS + at % SLOTS for part, at in rows]
    assert torch.equal(found.slots, found.places.slots)
    wanted = [part.first + len(part.tokens) - at <= part.wants for part, at in rows]
    assert found.wanted.tolist() == [row for row, asked in enumerate(wanted) if asked]


@given(st.integers(0, 2**20))
def test_tensors_are_what_the_kernels_take(seed):
    found = batch(drawn(seed), 100)
    for tensor in (found.places.table, found.places.sequence, found.places.position):
        assert tensor.dtype == torch.int32
        assert tensor.is_contiguous()
    assert {one.dtype for one in (found.token_ids, found.slots, found.wanted)} == {torch.int64}
