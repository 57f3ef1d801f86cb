"""A call of the model on a padded batch: what it gives of states and logits, and what it leaves behind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.padded.cache import new_cache
from qualgate.engine.padded.forward import open_decoder, pad, split
from tests.engine.engines import load
from tests.tiny_models import VOCABULARY, save_tiny_model

TEXTS = [[3, 5, 7, 11, 13, 17], [2, 4], [9] * 9]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def model(folder):
    return load(folder)


def made(arch: str, **more):
    """A tiny model of an architecture."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(arch, vocab_size=VOCABULARY, pad_token_id=1, **SIZES, **more)
        return AutoModelForCausalLM.from_config(config).eval()


def changed_after_the_head(model, by: float = 1.5):
    """`model`, that does something to its logits which is not in its config."""
    real = model.forward

    def forward(input_ids=None, attention_mask=None, past_key_values=None, use_cache=None, logits_to_keep=0):
        out = real(input_ids, attention_mask, past_key_values=past_key_values, use_cache=use_cache,
                   logits_to_keep=logits_to_keep)  # fmt: skip
        out.logits = out.logits * by
        return out

    model.forward = forward
    return model


# ---------------------------------------------------------------------------------------- the head, whole or not


@pytest.mark.parametrize(
    "made_so", [("gemma2", {"head_dim": 8}), ("cohere", {"logit_scale": 0.3}), ("granite", {"logits_scaling": 4.0})]
)
def test_what_a_config_says_is_done_after_the_head_is_done_again(made_so):
    arch, more = made_so
    with open_decoder(made(arch, **more)) as decoder:
        assert decoder.head.whole
        assert decoder.head.after
        step = decoder.forward(*pad(TEXTS, decoder.device), None, keep=2)
        assert torch.equal(decoder.head.logits(step.states), step.logits)
        assert step.states.shape == (3, 2, 32)


def test_a_model_that_does_more_to_its_logits_gives_them_for_states(model):
    with open_decoder(changed_after_the_head(model)) as decoder:
        assert not decoder.head.whole
        for lean in (False, True):
            mask = torch.ones(1, 6, dtype=torch.bool)
            step = decoder.step(torch.tensor(TEXTS[:1]), mask, None, keep=4, lean=lean)
            assert torch.equal(step.states, step.logits)
            assert torch.equal(decoder.head.logits(step.states), step.logits)
            assert step.logits.shape == (1, 4, VOCABULARY)


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


def test_a_row_beside_others_gives_what_it_gives_alone(model):
    with open_decoder(model) as decoder:
        alone = [decoder.forward(*pad([text], decoder.device), None, keep=1).logits[0] for text in TEXTS]
        together = decoder.forward(*pad(TEXTS, decoder.device), None, keep=1).logits
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_what_is_read_in_steps_is_what_is_read_at_once(model):
    texts = [TEXTS[0], TEXTS[2]]
    with open_decoder(model) as decoder:
        ids, lengths = pad(texts, decoder.device)
        whole = decoder.forward(ids, lengths, None, keep=3)
        cache = new_cache(decoder.config)
        decoder.forward(ids[:, :6], lengths - 3, cache, keep=1)
        steps = [decoder.forward(ids[:, at : at + 1], lengths - 8 + at, cache, keep=1) for at in (6, 7, 8)]
    for found, expected in ((step.logits[:, 0], whole.logits[:, at]) for at, step in enumerate(steps)):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert cache.get_seq_length() == 9


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
