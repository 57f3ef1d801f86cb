"""Which engine serves which model, and why it is not the one before: found out on the model itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import wraps
from typing import Any

import pytest
import torch

from qualgate.engine import choice as choices
from qualgate.engine import dense
from qualgate.engine.answers import Answers
from qualgate.engine.choice import choose_engine, open_engine
from qualgate.engine.determinism import read_batch
from qualgate.engine.job import run_job
from qualgate.engine.padded.self_check import check_runs_right
from qualgate.engine.request import Request
from qualgate.errors import NotInThisVersion
from tests.engine.jobs import job
from tests.engine.tiny_architectures import ALIBI, EXPERTS, MLA, NAMED_OTHERWISE, tiny

WINDOW = {"sliding_window": 16}
NUMBERS = 2 * 2 * 2 * 16  # of a position: layers, keys and values, heads, numbers of each
Models = dict[str, tuple[str, dict[str, Any]]]


def asked(models: dict[str, Any], proofs: Collection[str] = ()) -> list[Any]:
    return [
        pytest.param(*case, id=name, marks=pytest.mark.proof if name in proofs else ()) for name, case in models.items()
    ]


PLAIN: Models = {
    "llama": ("llama", {}), "mistral": ("mistral", WINDOW), "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen2": ("qwen2", WINDOW | {"use_sliding_window": True, "max_window_layers": 1}), "phi3": ("phi3", WINDOW),
}  # fmt: skip
WINDOWS = {"llama": [0, 0], "mistral": [16, 16], "qwen3": [0, 0], "qwen2": [0, 16], "phi3": [16, 16]}


@pytest.mark.parametrize(("arch", "more"), asked(PLAIN))
def test_plain_decoders_pass_through_c_and_never_call_their_modules(arch, more, monkeypatch):
    model = tiny(arch, **more)
    found = choose_engine(model)
    assert (found.kind, found.because, found.whole, found.numbers) == ("plain", "", True, NUMBERS)
    assert [found.seen[layer].window for layer in sorted(found.seen)] == WINDOWS[arch]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a module was called")

    for module in (type(model), type(model.model.layers[0]), type(model.model.layers[0].self_attn)):
        monkeypatch.setattr(module, "forward", refuse)
    (logits,) = read_batch(model, found, [range(50)])
    assert logits.isfinite().all()


def test_a_head_that_blocks_fill_up_counts_as_wide_as_it_is():
    assert choose_engine(tiny("qwen3", head_dim=24)).numbers == 2 * 2 * 2 * 24


PACKED: dict[str, tuple[str, dict[str, Any], str]] = {
    **{
        arch: (arch, more, f"{arch} is no plain decoder")
        for arch, more in {
            "cohere": {}, "gemma2": WINDOW | {"head_dim": 16}, "gemma3_text": WINDOW | {"head_dim": 16}, "gpt_neox": {},
            "gpt2": NAMED_OTHERWISE, "granite": {}, "mixtral": EXPERTS, "nemotron": {}, "olmo": {}, "olmo2": {},
            "stablelm": {}, "starcoder2": WINDOW,
        }.items()
    },
    "a small head": ("llama", {"head_dim": 8}, "its head_dim of 8 is no multiple of 16"),
    "another activation": ("llama", {"hidden_act": "gelu"}, "its feed-forward's activation is gelu"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "more", "because"), asked(PACKED, {"granite", "olmo", "nemotron", "starcoder2", "stablelm"})
)
def test_who_asks_for_attention_by_the_interface_is_packed(arch, more, because):
    model = tiny(arch, **more)
    attends = model.config._attn_implementation
    found = choose_engine(model)
    assert (found.kind, found.because) == ("packed", because)
    assert model.config._attn_implementation == attends
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


PADDED: dict[str, tuple[str, dict[str, Any], str]] = {
    **{f"{arch}, ALiBi": (arch, more, "layer 0 does not attend as others do") for arch, more in ALIBI.items()},
    "deepseek_v3, MLA": ("deepseek_v3", MLA, "attention with a mask, a bias or values of another width"),
    "doge, masks of its own": ("doge", {}, "attention with a mask, a bias or values of another width"),
    "llama4, chunks": (
        "llama4_text",
        {"head_dim": 16, "intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 16},
        "it has layers of chunked_attention",
    ),
    "phimoe, a window that only its mask knows": (
        "phimoe", WINDOW | EXPERTS, "layer 0 sees 16 positions and asks for all"
    ),
    "qwen2_moe, a gate of one number a row, whose sigmoid torch vectorizes over rows": (
        "qwen2_moe", EXPERTS | {"initializer_range": 0.3},
        "other bits in passes of (17, 5) tokens and more, on 1 thread",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arch", "more", "because"), asked(PADDED))
def test_what_packed_passes_do_not_serve_is_padded_and_as_it_was(arch, more, because):
    model = tiny(arch, **more)
    before, (expected, *_) = deepcopy(model), read_padded(model)
    found = choose_engine(model)
    assert (found.kind, found.because, found.seen) == ("padded", because, {})
    as_it_was(model, before)
    assert torch.equal(read_padded(model)[0], expected)


def read_padded(model: Any) -> list[torch.Tensor]:
    return read_batch(model, choices.Choice(kind="padded"), [range(20)])


def as_it_was(model: Any, before: Any) -> None:
    """The same modules with the same numbers, tied as they were."""
    modules, parameters = dict(before.named_modules()), dict(before.named_parameters(remove_duplicate=False))
    assert {name: type(one) for name, one in model.named_modules()} == {n: type(one) for n, one in modules.items()}
    now = dict(model.named_parameters(remove_duplicate=False))
    assert now.keys() == parameters.keys()
    assert all(torch.equal(one, parameters[name]) for name, one in now.items())
    assert len({id(one) for one in now.values()}) == len({id(one) for one in parameters.values()})
    assert model.config._attn_implementation == before.config._attn_implementation
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    "arch", ["mamba", *(pytest.param(one, marks=pytest.mark.proof) for one in ("falcon_h1", "minimax"))]
)
def test_recurrent_states_are_refused_by_name(arch):
    with pytest.raises(NotInThisVersion, match=f"{arch} keeps a .* state; this version runs attention layers only"):
        choose_engine(tiny(arch))


# ---------------------------------------------------------------------------------------- models made for one reason


@pytest.fixture
def llama() -> Any:
    return tiny("llama")


def changed(module: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """What it gives is given changed."""
    forward = module.forward
    module.forward = lambda x: change(forward(x))


def test_what_the_kernel_in_c_does_not_know_is_passed_through_the_models_own_modules(llama):
    changed(llama.model.layers[1].mlp, lambda y: 2 * y)
    found = choose_engine(llama)
    assert (found.kind, found.because) == ("packed", "in C it gives other logits than by its own modules")


def test_a_head_that_is_not_all_there_is_keeps_its_logits(llama):
    @wraps(forward := llama.forward)
    def doubled(**given: Any) -> Any:
        out = forward(**given)
        out.logits = 2 * out.logits
        return out

    llama.forward = doubled
    found = choose_engine(llama)
    assert (found.kind, found.because) == ("packed", "it changes its logits after the head")
    assert not found.whole
    with open_engine(llama, found) as engine:
        assert not engine.head.whole
    (ours,) = read_batch(llama, found, [range(20)])
    torch.testing.assert_close(ours, llama(input_ids=torch.arange(20)[None]).logits[0], rtol=1e-4, atol=1e-4)


def test_a_model_whose_rows_see_their_neighbours_is_refused(llama):
    changed(llama.model.layers[0].mlp, lambda y: y + 0.1 * y.mean(-2, keepdim=True))
    with pytest.raises(NotInThisVersion, match="gives other logits read in two parts"):
        choose_engine(llama)


def test_another_arithmetic_than_the_eager_one_is_refused(llama):
    attention, eager = llama.model.layers[0].self_attn, llama.model.layers[0].self_attn.forward
    attention.forward = lambda *a, **k: (
        eager(*a, **k) if llama.config._attn_implementation == "eager" else (eager(*a, **k)[0] * 1.001, None)
    )
    with pytest.raises(NotInThisVersion, match="by transformers' eager code"):
        choose_engine(llama)
    assert not any(isinstance(module, dense.DenseLinear) for module in llama.modules())


@pytest.mark.parametrize("number", [1.0, float("nan")])
def test_logits_that_are_not_finite_or_all_alike_are_the_runs_to_tell(llama, number):
    llama.lm_head.weight.fill_(number)
    found, answers = choose_engine(llama), Answers(1)
    assert found.kind == "plain"
    with open_engine(llama, found) as engine:
        engine.run([Request(prompt=(1, 2), max_new_tokens=3)], None, answers)
    assert answers.reasons == (["length"] if number == 1 else ["broken"])


def too_much() -> Exception:
    """What torch raises where the CPU's memory is short."""
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    return raised.value


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError(), too_much()], ids=type)
def test_memory_that_is_short_is_no_reason_for_another_engine_and_none_to_refuse(llama, monkeypatch, error):
    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(choices, "FastDecoder", fails)
        with pytest.raises(type(error)) as raised:
            choose_engine(llama)
        assert raised.value is error
    llama.forward = fails
    with pytest.raises(type(error)) as raised:
        check_runs_right(llama)
    assert raised.value is error


def test_another_device_than_the_cpu_is_padded(llama, monkeypatch):
    monkeypatch.setattr(choices, "check_runs_right", lambda model: 128)
    found = choose_engine(llama.to("meta"))
    assert (found.kind, found.because[:26]) == ("padded", "no packed passes on meta (")


WITHOUT_C = """
import json, sys
from pathlib import Path
from tests.engine.jobs import job, loaded
from qualgate.engine.job import run_job

arm = loaded(Path(sys.argv[1]), Path(sys.argv[2]))
said = [one.token_ids for one in run_job(arm, job(arm, "", count=4)).completions]
print(json.dumps([arm.choice.kind, arm.choice.because, said]))
"""


@pytest.mark.proof  # a process of its own
def test_without_the_kernels_in_c_answers_are_padded_and_the_same(tiny_arm, tmp_path):
    there = {**os.environ, "QUALGATE_CPU_PATH": "torch", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_C, tiny_arm.spec.model, tmp_path],
        capture_output=True, encoding="utf-8", check=True, env=there,
    )  # fmt: skip
    expected = [list(one.token_ids) for one in run_job(tiny_arm, job(tiny_arm, "", count=4)).completions]
    assert json.loads(done.stdout.splitlines()[-1]) == ["padded", "QUALGATE_CPU_PATH=torch", expected]
