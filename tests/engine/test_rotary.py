"""Which functions may be replaced, and when; `interpreted_engine.py` replaces them."""

from __future__ import annotations

import torch
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as neighbours
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as halves

from qualgate.engine import rotary
from qualgate.engine.rotary import Turning, turned_by_ours
from qualgate_kernels.rotary import turn_torch
from tests.engine.tiny_architectures import tiny

CPU = torch.device("cpu")


def heads(dtype=torch.float32):
    return [torch.randn(shape, dtype=dtype) for shape in ((1, 4, 3, 16), (1, 2, 3, 16), (1, 3, 16), (1, 3, 16))]


def test_on_a_cpu_a_model_turns_its_heads_by_its_own_code():
    model = tiny("llama", num_hidden_layers=1)
    with turned_by_ours(model, CPU):
        assert not any(isinstance(vars(code)[rotary.NAME], Turning) for code in rotary._files(model))


def test_files_are_those_of_a_models_own_modules():
    files = [code.__name__ for code in rotary._files(tiny("qwen3", num_hidden_layers=1))]
    assert files == ["transformers.models.qwen3.modeling_qwen3"]
    assert rotary._files(torch.nn.Linear(2, 2)) == []


def test_only_a_function_that_has_the_twins_bits_is_one(monkeypatch):
    monkeypatch.setattr(rotary, "misfit", lambda *heads: "as if there were no kernel")
    assert rotary._is_one(halves, CPU)
    assert not rotary._is_one(neighbours, CPU)
    assert not rotary._is_one(lambda *heads: tuple(one * (1 + 1e-7) for one in turn_torch(*heads)), CPU)
    assert not rotary._is_one(lambda *heads: (*turn_torch(*heads), None), CPU)
    assert not rotary._is_one(lambda query, key: (query, key), CPU)


def test_what_is_asked_otherwise_the_models_own_function_does():
    query, key, cosines, sines = heads()
    asked = [one.transpose(1, 2).contiguous() for one in (query, key)]
    found = Turning(halves)(*asked, cosines, sines, unsqueeze_dim=2)
    expected = halves(query, key, cosines, sines)
    assert all(torch.equal(one.transpose(1, 2), other) for one, other in zip(found, expected, strict=True))
    narrow = heads(torch.bfloat16)
    assert Turning(halves)(*narrow)[0].dtype == torch.bfloat16
