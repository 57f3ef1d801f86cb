"""Models by their own modules on packed rows: transformers' eager logits, and where rows' bits are their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from qualgate.engine import attention
from qualgate.engine.attention import KeysValues, attending, recycled
from qualgate.engine.batch import batch
from qualgate.engine.decoder import ModelDecoder, open_model
from qualgate.engine.dense import lay_out
from qualgate.engine.head import OutputHead
from qualgate.engine.request import Request
from qualgate.engine.row_check import apart, eager, read, same_bits, whole
from qualgate.engine.schedule import Part, Stream
from qualgate.errors import NotInThisVersion
from qualgate_kernels.cpu import paged
from tests.depth import with_proofs
from tests.engine.tiny_architectures import VOCABULARY, another, tiny

pytestmark = pytest.mark.skipif(bool(paged.missing()), reason=paged.missing())
NEAR = 1e-5  # of the logits' spread: float32 leaves some 1e-6
BOTH = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
STABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "a soft cap and a window": ("gemma2", {"head_dim": 16, "attn_logit_softcapping": 3.0, **BOTH}),
    "norms of queries and keys, two rotations": ("gemma3_text", {"head_dim": 16, **BOTH}),
    "sinks, experts turned and biased": ("gpt_oss", {"head_dim": 16, **LOCAL, **BOTH}),
    "a residual beside itself, part of a head turned": ("phi", {}),
    "learned positions": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "Conv1D, tied": (
        "gpt2",
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "tie_word_embeddings": True},
    ),
    "heads of 20 numbers": ("stablelm", {"hidden_size": 96, "head_dim": 24, "intermediate_size": 96}),
    "pairs of neighbours turned, scaled logits": ("cohere", {"logit_scale": 0.3}),
    "multipliers": ("granite", {"attention_multiplier": 0.3, "logits_scaling": 2.0, "residual_multiplier": 0.5}),
    "queries, keys and values in one": ("gpt_neox", {}),
    "experts": ("qwen3_moe", {"head_dim": 16, **EXPERTS}),
}
UNSTABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "a gate of one number a row, whose sigmoid torch vectorizes over rows": (
        "qwen2_moe", {"shared_expert_intermediate_size": 32, **EXPERTS}
    ),
    "experts that torch multiplies in batches": (
        "llama4_text", {"head_dim": 16, "intermediate_size_mlp": 96, **LOCAL}
    ),
}  # fmt: skip


PROOFS = {"heads of 20 numbers", "learned positions", "experts that torch multiplies in batches",
          "norms of queries and keys, two rotations"}  # fmt: skip
TEXTS = [
    torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(1)).tolist() for length in (40, 23)
]
CUTS = (
    [[17, 5], [1, 1], [1, 9], [20, 1], [1, 7]],
    [[1, 1]] * 23 + [[1, 0]] * 17,
    [[0, 23], [39, 0], [1, 0]],
    [[3, 4], [33, 19], [4, 0]],
)


@contextmanager
def opened(model: Any) -> Iterator[tuple[ModelDecoder, OutputHead]]:
    assert lay_out(model) == ""
    head = OutputHead(model)
    with open_model(model, head) as decoder:
        yield decoder, head


@pytest.mark.parametrize("name", with_proofs([*STABLE, *UNSTABLE], PROOFS))
def test_packed_rows_give_eagers_logits_and_where_rows_are_stable_the_same_bits_however_texts_are_cut(name):
    arch, more = (STABLE | UNSTABLE)[name]
    model = tiny(arch, **more)
    expected = eager(another(model), TEXTS)
    with opened(model) as (decoder, head):
        at_once = read(decoder, head, TEXTS, whole(TEXTS))
        assert all(apart(*pair) < NEAR for pair in zip(at_once, expected, strict=True))
        for threads, cuts in enumerate(CUTS, 1):
            found = read(decoder, head, TEXTS, cuts, threads=threads)
            assert all(apart(*pair) < NEAR for pair in zip(found, expected, strict=True)), cuts
            assert name in UNSTABLE or all(map(same_bits, found, at_once)), cuts


def test_how_each_layer_attends_is_noted():
    model, states = (
        tiny("gemma2", head_dim=16, attn_logit_softcapping=3.0, query_pre_attn_scalar=4, **BOTH),
        KeysValues(),
    )
    with opened(model) as (decoder, head):
        read(decoder, head, TEXTS, whole(TEXTS), states=states)
    assert [(one.window, one.soft_cap, one.scale, one.sinks) for one in (states.seen[0], states.seen[1])] == [
        (9, 3.0, 0.5, None),
        (0, 3.0, 0.5, None),
    ]
    model, states = tiny("gpt_oss", head_dim=16, **LOCAL, **BOTH), KeysValues()
    with opened(model) as (decoder, head):
        read(decoder, head, TEXTS, whole(TEXTS), states=states)
    for at, layer in enumerate(model.model.layers):
        assert torch.equal(states.seen[at].sinks, layer.self_attn.sinks)


def test_a_model_is_left_as_it_was_and_its_head_unwatched():
    model = tiny("llama")
    expected, before = eager(model, TEXTS), model.config._attn_implementation
    assert lay_out(model) == ""
    head = OutputHead(model)
    with pytest.raises(KeyError), open_model(model, head, "float16"):
        raise KeyError
    assert model.config._attn_implementation == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(apart(*pair) < NEAR for pair in zip(eager(model, TEXTS), expected, strict=True))


def test_only_what_is_wanted_enters_the_head():
    model = tiny("llama")
    with opened(model) as (decoder, head):
        expected = read(decoder, head, TEXTS, whole(TEXTS))[0]
        asked = []
        head.module.register_forward_hook(lambda _, inputs, out: asked.append(inputs[0].numel()))
        stream = Stream(0, Request(prompt=tuple(TEXTS[0]), max_new_tokens=1), TEXTS[0], blocks=[1, 0, 2])
        states = decoder.forward(batch([Part(stream, 0, TEXTS[0], 2)], 3), KeysValues(), 1)
        assert asked == [0]
        assert same_bits(head.logits(states), expected[-2:])


def part_of(rows: int) -> Part:
    stream = Stream(0, Request(prompt=(1,) * rows, max_new_tokens=1), [1] * rows, blocks=[0])
    return Part(stream, 0, [1] * rows, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"attention_mask": torch.zeros(1, 1, 4, 4)},
        {"position_bias": torch.zeros(1, 2, 4, 4)},
        {"value": torch.zeros(1, 2, 4, 8)},
    ],
)
def test_what_the_kernel_does_not_do_is_refused(change):
    arguments = {name: torch.zeros(1, 2, 4, 16) for name in ("query", "key", "value")} | {"attention_mask": None}
    module = torch.nn.Identity()
    module.layer_idx = 0
    with attending(batch([part_of(4)], 1), KeysValues(), 1):
        attention.attend(module, **arguments)
        with pytest.raises(NotInThisVersion, match="attention with"):
            attention.attend(module, **(arguments | change))


def test_outside_of_a_pass_no_layer_attends():
    states = torch.zeros(1, 2, 4, 16)
    with pytest.raises(LookupError):
        attention.attend(torch.nn.Identity(), states, states, states, None)


def test_memory_is_taken_again_and_what_lies_in_it_is_not_read():
    model = tiny("llama")
    with opened(model) as (decoder, head):
        expected = read(decoder, head, TEXTS, whole(TEXTS))
        with recycled("float32") as states:
            read(decoder, head, TEXTS, whole(TEXTS), states=states)
            first = states.layers[0].keys.data_ptr()
            for layer in states.memory.values():
                layer.keys.fill_(torch.nan)
                layer.values.fill_(torch.inf)
        with recycled("float32") as states:
            found = read(decoder, head, TEXTS, whole(TEXTS), states=states)
            assert states.layers[0].keys.data_ptr() == first
    assert all(map(same_bits, found, expected))


def test_memory_for_more_blocks_or_of_another_shape_takes_the_place_of_what_there_was():
    with recycled("float32") as states:
        small = states.of(0, 2, 1, 16)
        assert states.of(0, 2, 1, 16) is small
        states.of(1, 2, 1, 16)
    with recycled("float32") as states:
        assert states.size == 2 * 2 * small.keys.nbytes
        assert states.of(0, 1, 1, 16).count == 1
        assert states.size == 2 * 2 * small.keys.nbytes  # what there is, is not made smaller
    with recycled("float32") as states:
        assert states.of(0, 3, 1, 16).count == 3
        assert set(states.memory) == {0}
    with recycled("float32") as states:
        assert states.of(0, 1, 2, 16).kv_heads == 2
    with recycled("float32") as first, recycled("float32") as second:
        assert first.of(0, 1, 2, 16).keys.data_ptr() != second.of(0, 1, 2, 16).keys.data_ptr()
