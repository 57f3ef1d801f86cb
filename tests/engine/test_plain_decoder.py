"""The fast path: transformers' own logits, and every row's bits however its text is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qualgate.engine import plain_decoder
from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.decoder import ModelDecoder, open_model
from qualgate.engine.dense import lay_out
from qualgate.engine.head import OutputHead
from qualgate.engine.plain_decoder import FastDecoder, Unfit
from qualgate.engine.request import Request
from qualgate.engine.rope import fix_rope
from qualgate.engine.row_check import apart, eager, read, same_bits, whole
from qualgate.engine.schedule import Part, Stream
from qualgate.records import QuantizeRecipe
from qualgate_kernels.cpu import decode
from qualgate_kernels.paged import Seen
from tests.depth import examples, with_proofs
from tests.engine.tiny_architectures import VOCABULARY, another, fused, quantized, tiny

pytestmark = pytest.mark.skipif(bool(decode.missing()), reason=decode.missing())
NEAR = 1e-5  # of the logits' spread: float32 leaves some 1e-6
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [4.0] * 4, "short_factor": [1.0] * 4,
        "original_max_position_embeddings": 24, "partial_rotary_factor": 0.5}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 24}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, biases everywhere": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, tied, heads of another width, as many of keys": (
        "llama", {"tie_word_embeddings": True, "head_dim": 48, "num_key_value_heads": 4}
    ),
    "llama 3's positions": ("llama", {"rope_parameters": LLAMA3}),
    "mistral, a window shorter than the text": ("mistral", {"sliding_window": 9}),
    "qwen2": ("qwen2", {}),
    "qwen2, a window in one layer": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "num_hidden_layers": 3}
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3, yarn's positions": ("qwen3", {"head_dim": 32, "rope_parameters": YARN}),
    "phi3, half of a head turned": (
        "phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    ),
    "phi3, longrope": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 24}),
}  # fmt: skip
FORMATS = {
    "int4": QuantizeRecipe(method="int4", group_size=32),
    "int4, zero points": QuantizeRecipe(method="int4", group_size=16, symmetric=False),
    "int8": QuantizeRecipe(method="int8", group_size=0),
    "mxfp4": QuantizeRecipe(method="mxfp4", group_size=32),
    "W8A8": QuantizeRecipe(method="int8", group_size=0, activations="int8"),
}


PROOFS = {"llama", "llama 3's positions", "qwen2", "qwen3", "phi3, longrope"}
TEXTS = [
    torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(1)).tolist() for length in (40, 23)
]


@dataclass(frozen=True)
class Opened:
    """Both decoders of one model, and what transformers' eager code gives of TEXTS."""

    model: Any
    head: OutputHead
    by_modules: ModelDecoder
    fast: FastDecoder
    eager: list[torch.Tensor]

    def read(self, cuts: Any, what: Any = TEXTS, **how: Any) -> list[torch.Tensor]:
        return read(self.fast, self.head, what, cuts, **how)


@contextmanager
def opened(model: Any, stored: str = "float32") -> Iterator[Opened]:
    theirs = eager(model, TEXTS)
    assert lay_out(model) == ""
    head, states = OutputHead(model), KeysValues()
    with open_model(model, head, stored) as by_modules:
        read(by_modules, head, TEXTS[1:], whole(TEXTS[1:]), states=states)  # says how each layer attends
        yield Opened(model, head, by_modules, FastDecoder(model, states.seen, stored), theirs)


def made(name: str) -> Any:
    arch, more = MODELS[name]
    model = tiny(arch, **more)
    fix_rope(model, "long")
    return model


@pytest.fixture(scope="module", params=with_proofs(MODELS, PROOFS))
def each(request) -> Iterator[Opened]:
    with opened(made(request.param)) as found:
        yield found


def test_it_gives_transformers_own_logits_and_those_of_the_models_modules(each):
    fast = each.read(whole(TEXTS))
    modules = read(each.by_modules, each.head, TEXTS, whole(TEXTS))
    for ours, theirs, eagers in zip(fast, modules, each.eager, strict=True):
        assert apart(ours, eagers) < NEAR
        assert apart(ours, theirs) < NEAR


def any_cuts(seed: int) -> list[list[int]]:
    """Passes of so many tokens of each text, until both are read."""
    left, passes, draw = [len(text) for text in TEXTS], [], random.Random(seed)
    while any(left):
        chunk = [min(one, draw.choice([0, 1, 1, 2, 5, 17, 40])) for one in left]
        if any(chunk):
            passes.append(chunk)
            left = [one - taken for one, taken in zip(left, chunk, strict=True)]
    return passes


def test_a_row_has_the_same_bits_however_texts_are_cut(each):
    expected = each.read(whole(TEXTS))

    @examples(30)
    @given(st.integers(0, 2**20), st.integers(1, 3))
    def holds(seed, threads):
        assert all(map(same_bits, each.read(any_cuts(seed), threads=threads), expected))

    holds()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("arch", ["qwen2", pytest.param("phi3, half of a head turned", marks=pytest.mark.proof)])
def test_quantized_layers_give_what_their_numbers_do_and_keep_their_bits(form, arch):
    model = quantized(made(arch), FORMATS[form])
    with opened(fused(another(model))) as found, torch.inference_mode():
        ours = found.read(whole(TEXTS))
        for one, theirs in zip(ours, eager(model, TEXTS), strict=True):  # by the torch twin
            assert apart(one, theirs) < (0.1 if form == "W8A8" else NEAR)  # one code's last bit moves others
        for passes in ([[17, 5], [1, 1], [1, 9], [20, 1], [1, 7]], [[1, 1]] * 23 + [[1, 0]] * 17):
            assert all(map(same_bits, found.read(passes, threads=2), ours))


@pytest.mark.parametrize(
    "floats", with_proofs(["q_proj", "v_proj", "gate_proj", "up_proj", "o_proj"], {"q_proj", "up_proj"})
)
def test_layers_that_read_one_input_may_be_packed_in_part(floats):
    model = quantized(made("qwen2"), FORMATS["int8"], which=lambda name: not name.endswith(floats))
    with opened(fused(another(model))) as found, torch.inference_mode():
        expected = eager(model, TEXTS)
        assert all(apart(*pair) < NEAR for pair in zip(found.read(whole(TEXTS)), expected, strict=True))


def test_angles_are_made_as_texts_grow_and_those_that_were_stay(monkeypatch):
    with opened(made("phi3, longrope")) as found, torch.inference_mode():
        expected = found.read(whole(TEXTS))
        monkeypatch.setattr(plain_decoder, "POSITIONS", 8)
        again = FastDecoder(found.model, {at: Seen(scale=16**-0.5) for at in range(2)})
        assert all(map(same_bits, read(again, found.head, TEXTS, [[5, 0], [1, 9], [3, 0], [31, 14]]), expected))


def test_logits_are_wanted_of_some_rows_and_keys_are_kept_of_all():
    with opened(made("qwen3")) as found, torch.inference_mode():
        expected = found.read(whole(TEXTS))[0]
        stream = Stream(0, Request(prompt=tuple(TEXTS[0]), max_new_tokens=1), TEXTS[0], blocks=[2, 0, 1])
        states, got = KeysValues(), []
        for first, count, wants in ((0, 13, 0), (13, 20, 3), (33, 7, 7)):
            part = Part(stream, first, TEXTS[0][first : first + count], wants)
            got.append(found.head.logits(found.fast.forward(batch([part], 3), states, 1)))
        assert same_bits(torch.cat(got), expected[30:])


def scaled(model: Any, factors: dict[str, float]) -> Any:
    """Times a power of two in parameters whose names end so."""
    for name, parameter in model.named_parameters():
        for end, factor in factors.items():
            if name.endswith(end):
                parameter.mul_(factor)
    return model


LOUD: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "the residual stream": (
        "llama",
        {"embed_tokens.weight": 2.0**18, "o_proj.weight": 2.0**18, "down_proj.weight": 2.0**18},
        {"what enters model.layers.0.input_layernorm", "model.layers.1.mlp.down_proj", "what enters model.norm"},
    ),
    "queries, keys and values": (
        "qwen2",
        {"q_proj.weight": 2.0**17, "k_proj.bias": 2.0**18, "v_proj.weight": 2.0**17},
        {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "keys of layer 1", "values of layer 0",
         "what enters model.layers.0.self_attn.o_proj", "model.layers.0.self_attn.o_proj"},
    ),
    "the feed-forward, fused": (
        "phi3, half of a head turned",
        {"gate_up_proj.weight": 2.0**14},
        {"model.layers.0.mlp.gate_up_proj", "what enters model.layers.1.mlp.down_proj"},
    ),
    "norms": (
        "llama",
        {"input_layernorm.weight": 2.0**15, "model.norm.weight": 2.0**15, "lm_head.weight": 2.0**-18},
        {"model.layers.1.input_layernorm", "model.norm"},
    ),
    "queries' and keys' norms": (
        "qwen3",
        {"q_norm.weight": 2.0**15, "k_norm.weight": 2.0**15},
        {"model.layers.0.self_attn.q_norm", "model.layers.1.self_attn.k_norm", "keys of layer 0"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOUD)
def test_what_float16_would_not_hold_is_counted_as_by_the_models_modules(name):
    arch, factors, must = LOUD[name]
    with opened(scaled(made(arch), factors), "float16") as found, torch.inference_mode():
        assert found.by_modules.overflows is not None
        found.by_modules.overflows._seen.clear()  # what the text before it left
        read(found.by_modules, found.head, TEXTS, whole(TEXTS))
        hooks = {said: count for _, said, count in found.by_modules.overflow}
        found.read(whole(TEXTS))
        ours = {said: count for _, said, count in found.fast.overflow}
        assert must <= ours.keys()
        assert ours == {said: count for said, count in hooks.items() if said in ours}
        for said in hooks.keys() - ours.keys():  # what was counted once more, when another module took it
            assert said.startswith("what enters")
            assert said.endswith(("q_norm", "k_norm", "k_proj", "v_proj", "lm_head"))
        places = [place for place, _, _ in found.fast.overflow]
        assert places == sorted(places)


def unequal(model: Any) -> None:
    model.model.layers[1].input_layernorm.variance_epsilon = 1e-3


UNFIT: dict[str, tuple[str, dict[str, Any], Any]] = {
    "activation is gelu": ("llama", {"hidden_act": "gelu"}, None),
    "head_dim of 24": ("llama", {"hidden_size": 96, "head_dim": 24}, None),
    "width of 72": ("llama", {"hidden_size": 72, "head_dim": 16}, None),
    "inner width of 100": ("qwen2", {"intermediate_size": 100}, None),
    "an eps each": ("llama", {}, unequal),
    "layers hold input_layernorm, mlp, more": (
        "llama", {}, lambda model: model.model.layers[1].register_module("more", nn.Linear(2, 2))
    ),
    "were fused with others": (
        "llama", {},
        lambda model: fused(quantized(model, FORMATS["int8"], which=lambda name: not name.endswith("k_proj"))),
    ),
    "QuantizedLinear that no kernel in C": ("llama", {}, lambda model: quantized(model, FORMATS["int4"])),
}  # fmt: skip


@pytest.mark.parametrize("said", UNFIT)
def test_another_model_is_unfit_and_it_is_said_why(said):
    arch, more, change = UNFIT[said]
    model = tiny(arch, **more)
    if change is not None:
        change(model)
    assert lay_out(model) == ""
    with pytest.raises(Unfit, match=said):
        FastDecoder(model, {at: Seen(scale=1.0) for at in range(2)})


def test_linear_layers_of_torch_are_unfit():
    with pytest.raises(Unfit, match="a Linear that no kernel in C multiplies"):
        FastDecoder(tiny("llama"), {at: Seen(scale=1.0) for at in range(2)})
