"""A call of the model on a padded batch: what it gives of states and logits, and what it leaves behind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.padded.forward import open_decoder, pad, split
from tests.engine.engines import load

TEXTS = [[3, 5, 7, 11, 13, 17], [2, 4], [9] * 9]


@pytest.fixture
def model(saved):
    return load(saved())


# ---------------------------------------------------------------------------------------- the head, whole or not


def test_a_broken_model_is_no_other_model(model):
    model.model.norm.weight.data[3] = float("nan")
    with open_decoder(model) as decoder:
        assert decoder.head.whole


def test_a_lean_step_gives_the_same_states_and_asks_the_head_for_nothing(model):
    asked: list[torch.Size] = []
    with open_decoder(model) as decoder:
        hook = model.lm_head.register_forward_hook(lambda _, inputs, __: asked.append(inputs[0].shape))
        ids, mask = torch.tensor([TEXTS[0]]), torch.ones(1, 6, dtype=torch.bool)
        whole, lean = (decoder.step(ids, mask, None, keep=5, lean=lean) for lean in (False, True))
        hook.remove()
    assert torch.equal(whole.states, lean.states)
    assert torch.equal(decoder.head.logits(lean.states), whole.logits)
    assert lean.logits.numel() == 0
    assert [shape.numel() for shape in asked] == [5 * 64, 0]


# ------------------------------------------------------------------------------------------- padding and steps


def test_nothing_of_it_stays_on_the_model(model):
    with open_decoder(model, "float16") as decoder:
        assert decoder.overflows is not None
        assert model.lm_head._forward_pre_hooks
        assert torch.is_inference_mode_enabled()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not torch.is_inference_mode_enabled()


def test_a_step_that_fails_leaves_a_decoder_that_steps(model):
    with open_decoder(model) as decoder:
        expected = decoder.forward(*pad(TEXTS, decoder.device), None, keep=1)
        with pytest.raises(IndexError):
            decoder.step(torch.tensor([[10**6]]), torch.ones(1, 1, dtype=torch.bool), None, keep=1, lean=True)
        assert torch.equal(decoder.head.logits(expected.states), expected.logits)
        assert torch.equal(decoder.forward(*pad(TEXTS, decoder.device), None, keep=1).logits, expected.logits)


# ----------------------------------------------------------------------------------------------- pad and split


def test_rows_are_padded_on_the_left():
    ids, lengths = pad([[1, 2, 3], [4]], torch.device("cpu"))
    assert ids.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert lengths.tolist() == [3, 1]


@given(widths=st.lists(st.integers(1, 40), max_size=30), budget=st.integers(1, 100))
def test_parts_hold_every_row_once_the_longest_first_within_what_they_may(widths, budget):
    parts = list(split(widths, budget))
    assert sorted(row for part in parts for row in part) == list(range(len(widths)))
    order = [widths[row] for part in parts for row in part]
    assert order == sorted(order, reverse=True)
    assert all(len(part) == 1 or len(part) * widths[part[0]] <= budget for part in parts)
    assert all((len(part) + 1) * widths[part[0]] > budget for part in parts[:-1])  # none could have taken one more
