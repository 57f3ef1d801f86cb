"""A model over several GPUs, which are made believe: tensors without numbers that refuse to meet on two devices."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.spread import layers_by_device, layers_of, shares, spread
from qualgate.errors import NotInThisVersion
from tests.depth import with_proofs

IDS = [[3, 5, 8, 13, 21, 34]]


def gpus(count: int) -> list[torch.device]:
    """Of a kind that torch knows and needs no driver for."""
    return [torch.device("lazy", at) for at in range(count)]


def logits(model, device="cpu"):
    with torch.inference_mode():
        return model(torch.tensor(IDS, device=device), use_cache=False).logits


@pytest.fixture(params=with_proofs(("llama", "qwen2", "gemma2", "gpt_neox"), {"qwen2", "gemma2"}))
def folder(request, saved):
    return saved(arch=request.param, layers=5, dtype="float32")


@pytest.fixture
def made_up(folder):
    yield from in_fakes(AutoConfig.from_pretrained(folder))


def in_fakes(config):
    with FakeTensorMode():
        yield AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("count", [2, 3])
def test_every_layer_meets_what_it_reads_where_it_is(made_up, count):
    spread(made_up, gpus(count))
    found = [next(layer.parameters()).device.index for layer in layers_of(made_up)]
    assert found == sorted(found)
    assert set(found) == set(range(count))
    assert {one.device for layer in layers_of(made_up) for one in layer.parameters()} == set(gpus(count))
    assert logits(made_up, "lazy:0").device == torch.device("lazy", 0)
    assert made_up.get_output_embeddings().weight.device == torch.device("lazy", 0)


def test_two_devices_do_meet_where_nothing_moves_what_a_layer_reads(made_up):
    assert layers_by_device(made_up, torch.device("cpu")) == {torch.device("cpu"): 1.0}
    spread(made_up, gpus(2))
    found = layers_by_device(made_up, torch.device("lazy", 0))
    assert list(found) == gpus(2)
    assert sum(found.values()) == pytest.approx(1)
    for layer in layers_of(made_up):
        layer._forward_pre_hooks.clear()
    with pytest.raises(RuntimeError, match="same device"):
        logits(made_up, "lazy:0")


def test_a_model_without_layers_is_where_its_head_is(folder):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, num_hidden_layers=0))
    assert layers_by_device(model, torch.device("cpu")) == {torch.device("cpu"): 1.0}


def test_an_answer_has_the_bits_that_it_has_on_one_device(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    before = logits(model)
    spread(model, [torch.device("cpu")] * 3)
    assert torch.equal(logits(model), before)
    model.config.get_text_config(decoder=True).num_hidden_layers = 77
    with pytest.raises(NotInThisVersion, match="cannot lie over several GPUs"):  # its list of layers is not found
        spread(model, gpus(2))


def test_tied_weights_stay_one(saved):
    config = AutoConfig.from_pretrained(saved(dtype="float32"), tie_word_embeddings=True)
    for model in in_fakes(config):
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        spread(model, gpus(2))
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize(
    ("first", "layers", "count", "expected"),
    [
        (0, [1] * 4, 2, [0, 0, 1, 1]),
        (2, [1] * 4, 2, [0, 1, 1, 1]),  # the embedding is there already
        (0, [1] * 6, 3, [0, 0, 1, 1, 2, 2]),
        (0, [3, 1, 1, 1], 2, [0, 1, 1, 1]),
        (0, [0, 0], 2, [0, 0]),
        (0, [5], 4, [1]),
    ],
)
def test_devices_get_about_as_many_bytes_each(first, layers, count, expected):
    assert shares(first, layers, count) == expected
