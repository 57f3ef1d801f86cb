"""The layer in C gives what torch gives that trained it, and a row's bits are its own."""

from __future__ import annotations

import pytest
import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.draft_heads.layer import POSITIONS, HeadLayer, angles, check_tensors, head_tensors, layer_tensors
from qualgate.engine.draft_heads.network import Examples, HeadNetwork, ParallelNetwork
from qualgate.engine.draft_heads.proposer import _Part
from qualgate.engine.draft_heads.rows import Row
from qualgate.errors import UsageError
from tests.engine.draft_heads.heads import random_tensors, tiny_shape


def network(shape) -> HeadNetwork:
    found = HeadNetwork(shape, torch.Generator().manual_seed(3), (2.0, 0.5, torch.full((shape.width,), 0.7)))
    with torch.no_grad():
        for one in found.parameters():
            one.mul_(3)
    return found


def part(row: Row, first: int, count: int, wants: int) -> _Part:
    return _Part(row, first, [0] * count, wants, torch.empty(0))


def test_a_step_after_the_text_is_what_training_unrolled():
    shape, length, steps = tiny_shape(), 37, 4
    trained = network(shape)
    embedded, states = torch.randn(1, length + steps, shape.width), torch.randn(1, length + steps, shape.width)
    with torch.no_grad():
        anchor = torch.tensor([[length - 1]])
        expected = trained(Examples(embedded=embedded, states=states, anchors=anchor), steps)
    layer, blocks = HeadLayer(trained.tensors(), shape), KeysValues()
    row = Row(0, (), blocks=[2, 0, 1])
    passed = batch([part(row, 0, length, 1)], 3)
    state = layer.forward(layer.joined(embedded[0, :length], states[0, :length]), passed, blocks, 1)
    for step in range(steps):
        assert torch.allclose(state, expected[step][0], atol=2e-4, rtol=1e-3)
        passed = batch([part(row, length + step, 1, 1)], 3)
        state = layer.forward(layer.joined(embedded[0, length + step][None], state), passed, blocks, 1)


def test_what_is_read_behind_a_text_in_the_place_of_outputs_is_what_training_read():
    shape, length, tokens = tiny_shape(), 21, 4
    scales = (2.0, 0.5, torch.full((shape.width,), 0.7))
    trained = ParallelNetwork(shape, torch.Generator().manual_seed(3), scales, tokens)
    embedded, states = torch.randn(1, length + tokens, shape.width), torch.randn(1, length + tokens, shape.width)
    with torch.no_grad():
        examples = Examples(embedded=embedded, states=states, anchors=torch.tensor([[length - 1]]))
        expected = torch.stack(trained(examples, tokens))[:, 0, 0]
    tensors = trained.tensors()
    check_tensors(tensors, head_tensors("parallel", tokens, shape), "here")
    layer, row = HeadLayer(tensors, shape), Row(0, (), blocks=[1, 0])
    x = torch.cat([layer.joined(embedded[0, :length], states[0, :length]), tensors["masks"]])
    found = layer.forward(x, batch([part(row, 0, length + tokens - 1, tokens)], 2), KeysValues(), 1)
    assert torch.allclose(found, expected, atol=2e-4, rtol=1e-3)


def test_positions_beyond_the_first_table_are_turned_too():
    shape = tiny_shape()
    layer, row = HeadLayer(random_tensors(layer_tensors(shape)), shape), Row(0, (), blocks=list(range(65)))
    far = layer.forward(torch.randn(1, shape.width), batch([part(row, POSITIONS + 3, 1, 1)], 65), KeysValues(), 1)
    assert far.isfinite().all()
    cosines, sines = angles(shape, 2)
    assert cosines[0].tolist() == [1.0] * 8
    assert sines[1, 0].item() == pytest.approx(0.841471, abs=1e-6)


def test_tensors_of_another_head_are_named():
    wanted = layer_tensors(tiny_shape())
    tensors = random_tensors(wanted)
    check_tensors(tensors, wanted, "here")
    for name, changed, said in (
        ("fc.weight", None, "fc.weight is missing, expected 64 x 128"),
        ("norm.weight", torch.ones(3), "norm.weight holds 3 numbers, expected 64"),
        ("norm.weight", torch.full((64,), torch.nan), "NaN or infinities"),
        ("more.weight", torch.ones(2), "expected no such tensor"),
    ):
        broken = {key: one for key, one in {**tensors, name: changed}.items() if one is not None}
        with pytest.raises(UsageError, match=said):
            check_tensors(broken, wanted, "here")
