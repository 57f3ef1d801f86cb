"""The output head: what a model makes of the states that enter it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from qualgate.engine.dense import lay_out
from qualgate.engine.head import OutputHead
from qualgate.errors import NotInThisVersion
from qualgate.records import QuantizeRecipe
from qualgate_kernels import cpu
from tests.engine.tiny_architectures import SIZES, VOCABULARY, quantized, tiny

IDS = torch.tensor([[3, 14, 15, 92, 65]])
pytestmark = pytest.mark.skipif(not cpu.path(), reason=cpu.available())
AFTER: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("llama", {}),
    "a bias": ("phi", {}),
    "times a scale": ("cohere", {"logit_scale": 0.25}),
    "divided by one": ("granite", {"logits_scaling": 4.0}),
    "a soft cap": ("gemma2", {"head_dim": 16, "final_logit_softcapping": 2.0}),
}


def asked(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What entered the head, and the model's logits."""
    entered = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    logits = model(IDS, use_cache=False).logits
    hook.remove()
    return entered[0], logits


@pytest.mark.parametrize("name", AFTER)
def test_logits_are_the_models_own_and_stay_so_when_the_head_is_laid_out(name):
    arch, more = AFTER[name]
    model = tiny(arch, **more)
    states, logits = asked(model)
    head = OutputHead(model)
    before = head.tensors
    assert torch.equal(head.logits(states), logits)
    assert (head.vocabulary, head.device.type, head.plain) == (VOCABULARY, "cpu", True)
    assert torch.equal(before["weight"], model.get_output_embeddings().weight)
    assert ("bias" in before) == (name == "a bias")
    assert lay_out(model) == ""
    head = OutputHead(model)
    torch.testing.assert_close(head.logits(states), logits, atol=1e-5, rtol=1e-5)
    assert (head.vocabulary, head.plain) == (VOCABULARY, True)
    assert head.tensors.keys() == before.keys()
    assert all(torch.equal(head.tensors[part], tensor) for part, tensor in before.items())


def test_where_the_head_is_not_all_there_is_states_are_logits():
    head = OutputHead(tiny("llama"))
    head.whole = False
    states = torch.randn(3, VOCABULARY)
    assert head.logits(states) is states


def test_a_packed_head_is_no_matrix_of_floats():
    model = tiny("llama")
    model.lm_head = quantized(torch.nn.ModuleDict({"it": model.lm_head}), QuantizeRecipe(method="int8", group_size=0))[
        "it"
    ]
    head = OutputHead(model)
    assert (head.plain, head.vocabulary, head.device.type) == (False, VOCABULARY, "cpu")
    assert head.logits(torch.randn(2, 64)).shape == (2, VOCABULARY)


def test_a_model_without_a_head_is_refused():
    body = AutoModel.from_config(AutoConfig.for_model("llama", **SIZES))
    with pytest.raises(NotInThisVersion, match="LlamaModel has no output head of its own"):
        OutputHead(body)
