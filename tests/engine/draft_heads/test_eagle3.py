"""EAGLE-3 heads as others publish them: what their layer computes, and that targets say their own by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.draft_heads.eagle3 import NEVER
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head, read_head_tensors
from qualgate.engine.draft_heads.proposer import _Part
from qualgate.engine.draft_heads.rows import Row
from qualgate.engine.job import run_job
from qualgate.records import DraftSource, Sampling, Speculation
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.jobs import INT4, job, loaded
from tests.tiny_models import save_tiny_model

LAYERS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("target") / "model", layers=LAYERS)


def by_hand(tensors, shape, embedded, states):
    """The layer over a whole text in plain torch, as the authors' code has it: [rows, width], not normed."""

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + shape.eps) * tensors[f"{name}.weight"].float()

    def times(x, name):
        return functional.linear(x, tensors[f"{name}.weight"].float())

    def turned(x):
        half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        angle = torch.outer(torch.arange(len(x)), shape.theta**-half)
        cosine, sine = (torch.cat([one, one], -1)[:, None] for one in (angle.cos(), angle.sin()))
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat([-right, left], -1) * sine

    h = times(states, "fc")
    both = torch.cat([norm(embedded, "input_layernorm"), norm(h, "hidden_norm")], -1)
    query, key, value = (
        times(both, f"self_attn.{name}_proj").view(len(h), -1, shape.head_dim) for name in ("q", "k", "v")
    )
    query, key = turned(query), turned(key)
    key, value = (one.repeat_interleave(shape.heads // shape.kv_heads, 1) for one in (key, value))
    logits = torch.einsum("ahd,bhd->hab", query, key) * shape.head_dim**-0.5
    logits = logits.masked_fill(torch.ones(len(h), len(h)).triu(1).bool(), -torch.inf)
    y = h + times(torch.einsum("hab,bhd->ahd", logits.softmax(-1), value).flatten(1), "self_attn.o_proj")
    normed = norm(y, "post_attention_layernorm")
    y = y + times(functional.silu(times(normed, "mlp.gate_proj")) * times(normed, "mlp.up_proj"), "mlp.down_proj")
    return y, times(norm(y, "norm"), "lm_head")


def test_the_layer_and_its_head_compute_what_the_authors_code_does(tmp_path):
    folder = read_head_folder(save_eagle3(tmp_path / "head"))
    tensors, head = read_head_tensors(folder), load_head(folder, LAYERS)
    assert (folder.layout, head.taps, head.reads) == ("eagle3", (2, 3, 3), 192)
    assert head.layer is not None
    assert head.head is not None
    embedded, states = torch.randn(20, 64), torch.randn(20, 192)
    expected, drafted = by_hand(tensors, folder.shape, embedded, states)
    row, kept, found = Row(0, (), blocks=[1, 0]), KeysValues(), []
    for first, last in ((0, 13), (13, 14), (14, 20)):
        count = last - first
        x = head.layer.joined(embedded[first:last], head.layer.entered(states[first:last]))
        passed = batch([_Part(row, first, [0] * count, count, torch.empty(0))], 2)
        found.append(head.layer.forward(x, passed, kept, 1))
    assert torch.allclose(torch.cat(found), expected, atol=1e-4, rtol=1e-3)
    logits = head.head.logits(expected)
    assert logits.shape == (20, 260)
    ids = torch.arange(130) + tensors["d2t"]
    assert torch.allclose(logits[:, ids], drafted, atol=1e-4, rtol=1e-3)
    assert (logits == NEVER).sum(-1).tolist() == [130] * 20


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.95)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("recipe", [None, INT4], ids=["alone", "of a quantized target"])
@pytest.mark.parametrize("tokens", [0, 4])
def test_no_bit_of_an_answer_depends_on_it(model, tmp_path, recipe, sampling, tokens):
    head = save_eagle3(tmp_path / "head")
    spec = Speculation(draft=DraftSource(kind="head", head=str(head)), tokens=tokens)
    plain, drafted = (loaded(model, tmp_path, "v", recipe, **more) for more in ({}, {"speculation": spec}))
    work = job(plain, "")
    work = replace(work, prompts=tuple(replace(one, sampling=sampling) for one in work.prompts), seed=3)
    mine, theirs = run_job(drafted, work), run_job(plain, work)
    assert [(one.token_ids, one.logprobs, one.margins) for one in mine.completions] == [
        (one.token_ids, one.logprobs, one.margins) for one in theirs.completions
    ]
    assert mine.overflow == theirs.overflow
    assert not tokens or sum(one.proposed for one in mine.draft_steps) > 0
