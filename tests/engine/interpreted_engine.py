"""The packed engine on the kernels of GPUs, through Triton's interpreter, beside the CPU's: the same tokens, logits as
near as rounding lets them be, and rows whose bits are their own. `test_engine_gpu.py` runs it in a process of its own,
`tests/kernels/test_interpreted.py` with the kernels.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from triton.runtime import interpreter

from qualgate.engine import norms, rotary, row_check
from qualgate.engine.attention import KeysValues
from qualgate.engine.choice import Choice, choose_engine, open_decoder, open_engine, rounding
from qualgate.engine.dense import DenseLinear, lay_out
from qualgate.engine.kernels import choose_kernels
from qualgate.engine.request import Request, Spoken
from qualgate.records import Prompt, UnitKey
from qualgate_kernels import availability
from qualgate_kernels.dense import HeldDense
from qualgate_kernels.rotary import misfit
from tests.benchmarks.speculating import Level, answered, drafted
from tests.engine.jobs import INT4, loaded
from tests.engine.tiny_architectures import quantized, tiny
from tests.kernels.interpreted_paged import RowByRow
from tests.tiny_models import save_tiny_model

CPU = torch.device("cpu")
ONE = {"num_hidden_layers": 1}
WINDOW = {"sliding_window": 16}


@pytest.fixture(autouse=True, scope="module")
def row_by_row():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "np", RowByRow())
        yield


@pytest.fixture
def gpu(monkeypatch):
    """Calling it, what is laid out from then on is a GPU's."""
    return lambda: monkeypatch.setattr(availability, "on_triton", lambda device: True)


@pytest.fixture
def quick(monkeypatch):
    """Fewer ways to cut two shorter texts: the interpreter takes a second for what a GPU does at once."""
    monkeypatch.setattr(row_check, "TOKENS", (17, 3))
    monkeypatch.setattr(row_check, "CUTS", (((15, 1), (1, 1), (0, 1), (1, 0)),))


def answers(model, choice):
    told = {}

    def hear(event):
        if isinstance(event, Spoken):
            for request, token in zip(event.requests, event.tokens, strict=True):
                told.setdefault(request, []).append(token)

    requests = [Request(prompt=tuple(range(3, length)), max_new_tokens=2) for length in (6, 20)]
    with open_engine(model, choice) as engine:
        engine.run(requests, None, hear)
    assert [len(told[request]) for request in range(2)] == [2, 2]
    return told


def held_by_its_kernels(model):
    kinds = {type(module) for module in model.modules()}
    dense = [module.prepared for module in model.modules() if isinstance(module, DenseLinear)]
    return norms.RowNorm in kinds and all(isinstance(one, HeldDense) for one in dense)


@pytest.mark.proof
@pytest.mark.parametrize(("arch", "more"), [("llama", {}), ("qwen3", {"head_dim": 16}), ("gemma2", WINDOW)])
def test_on_a_gpus_kernels_a_model_says_what_it_says_on_a_cpu(arch, more, quick, gpu):
    expected = answers(model := tiny(arch, **ONE, **more), choose_engine(model))
    assert not held_by_its_kernels(model)
    gpu()
    found = choose_engine(model := tiny(arch, **ONE, **more))  # which tries its rows' bits, too
    assert (found.kind, found.because) == ("packed", "on a GPU a model's own modules make its passes")
    assert held_by_its_kernels(model) is (arch != "gemma2")
    assert answers(model, found) == expected


@pytest.mark.proof
def test_as_served_too(quick, gpu):
    """By its own modules in bfloat16, on either side."""

    def served():
        model = tiny("llama", **ONE)
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16().float()
        found = rounding(model, replace(choose_engine(model), kind="packed"), "bfloat16")
        return answers(model, found), held_by_its_kernels(model)

    expected, _ = served()
    gpu()
    assert served() == (expected, True)


@pytest.mark.proof
def test_drafts_are_verified_on_them_and_change_no_answer(tmp_path, quick, gpu):
    """By a self-draft in the target's own blocks, in which n-grams draft for it."""
    model = save_tiny_model(tmp_path / "model", layers=1)
    gpu()
    target, draft = loaded(model, tmp_path), loaded(model, tmp_path, "int4", INT4)
    assert (target.choice.kind, draft.kernel) == ("packed", "triton")
    asked = [Prompt(key=UnitKey("a", "s", str(at)), case_hash="", token_ids=(5, 6, 7, 5, 6, 7)[at:], max_new_tokens=6)
             for at in range(2)]  # fmt: skip
    expected = answered(target, asked, batch=2)
    told = answered(drafted(target, Level(by=draft, tokens=3), Level(by="ngram", tokens=2)), asked, batch=2)
    assert told.tokens == expected.tokens
    assert len(told.passes) < len(expected.passes)  # some of them said more than one token


@pytest.mark.parametrize(
    ("arch", "ours"),
    [("llama", True), ("cohere", False), *(pytest.param(one, True, marks=pytest.mark.proof) for one in
     ("qwen3", "gemma2", "gpt_neox"))],
)  # fmt: skip
def test_heads_are_turned_by_our_kernel_where_a_models_function_gives_its_bits(arch, ours, gpu):
    """cohere turns pairs of neighbours."""
    model = tiny(arch, **ONE)
    code = sys.modules[type(model).__module__]
    before = code.apply_rotary_pos_emb
    with rotary.turned_by_ours(model, CPU):
        assert code.apply_rotary_pos_emb is before  # on a CPU
    gpu()
    with rotary.turned_by_ours(model, CPU):
        assert isinstance(code.apply_rotary_pos_emb, rotary.Turning) == ours
        with rotary.turned_by_ours(tiny(arch, **ONE), CPU):  # a draft, which is closed before its target
            pass
        assert isinstance(code.apply_rotary_pos_emb, rotary.Turning) == ours
    assert code.apply_rotary_pos_emb is before


@pytest.mark.proof
@pytest.mark.parametrize("arch", ["llama", "gpt_neox"])
def test_turned_by_our_kernel_a_model_has_the_bits_of_its_own_code(arch, gpu, monkeypatch):
    """gpt_neox turns a part of each head, which is left to its own code."""
    model, what, asked = tiny(arch, **ONE), [[5, 9, 200]], []
    assert lay_out(model) == ""
    gpu()
    monkeypatch.setattr(rotary, "misfit", lambda *heads: asked.append(misfit(*heads)) or asked[-1])
    found = logits_of(model, Choice(kind="packed"), what)
    assert (asked[-1] == "") == (arch == "llama")
    monkeypatch.setattr(rotary, "_is_one", lambda *function: False)
    expected = logits_of(model, Choice(kind="packed"), what)
    assert row_check.same_bits(found[0], expected[0])


def logits_of(model, choice, what):
    with open_decoder(model, choice) as (decoder, head):
        states = KeysValues(choice.cache_form)
        return row_check.read(decoder, head, what, row_check.whole(what), states=states)


def test_packed_weights_and_quantized_keys_and_values_are_read_by_its_kernels(gpu):
    """And a row that is read alone has its bits. The CPU's logits lie near: it rounds keys and values of other last
    bits."""
    what = [[5, 9, 200, 17, 3, 4]]
    model = quantized(tiny("llama", **ONE), INT4)
    choose_kernels(model, "fused")
    choice = replace(choose_engine(model), cache_form="int8")
    expected = logits_of(model, choice, what)
    gpu()
    model = quantized(tiny("llama", **ONE), INT4)
    assert choose_kernels(model, "fused") == "triton"
    assert lay_out(model) == ""
    norms.lay_out(model)
    choice = replace(choice, kind="packed")
    found = logits_of(model, choice, what)
    assert row_check.far_from(found, expected) < 0.01
    with open_decoder(model, choice) as (decoder, head):
        again = row_check.read(decoder, head, what, [[5], [1]], states=KeysValues("int8"))
    assert row_check.same_bits(again[0], found[0])


def test_without_packed_passes_a_models_own_norms_are_put_back_and_one_that_does_more_stays(gpu):
    gpu()
    model = tiny("llama", **ONE)
    before = {name: type(module) for name, module in model.named_modules()}
    norms.lay_out(model)
    assert type(model.model.norm) is norms.RowNorm
    norms.take_back(model)
    assert {name: type(module) for name, module in model.named_modules()} == before
    norms.lay_out(model := tiny("gemma2", **ONE))  # which adds 1 to its weight
    assert norms.RowNorm not in {type(module) for module in model.modules()}
