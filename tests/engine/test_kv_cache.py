"""Keys and values held in fewer bits: every row sees them so, and no bit of an answer depends on what rides along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

from qualgate.engine.attention import recycled
from qualgate.engine.choice import Choice
from qualgate.engine.job import run_job
from qualgate.errors import NotInThisVersion
from qualgate.records import CACHE_TOKEN
from qualgate.records.arms import Kept
from qualgate_kernels.slots import SLOTS
from tests.engine.jobs import INT4, SELF_DRAFT, job, loaded, the_same_however_asked, the_same_whoever_drafts

FEWER_BITS = [kept for kept in get_args(Kept) if kept != "float32"]


@pytest.mark.parametrize("kept", FEWER_BITS)
@pytest.mark.parametrize("recipe", [pytest.param(None, marks=pytest.mark.proof), INT4], ids=["full precision", "int4"])
def test_an_answer_has_the_same_bits_drafted_from_the_baselines_and_plainly_and_alone(arms, kept, recipe, tmp_path):
    the_same_however_asked(arms(), arms("variant", recipe, kv_cache=kept), tmp_path / "job-0.safetensors")


@pytest.mark.proof
@pytest.mark.parametrize("kept", FEWER_BITS)
def test_no_bit_of_an_answer_depends_on_who_drafts(arms, kept):
    for tokens in (5, 0):  # 0: as many as pay
        drafted = arms("variant", kv_cache=kept, speculation=replace(SELF_DRAFT, tokens=tokens))
        the_same_whoever_drafts(arms("variant", kv_cache=kept), drafted)


class RoundedCache(DynamicCache):
    """transformers' own, which holds and hands out what `rounded` makes of each key and value."""

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.cache_form = kept

    def update(self, key_states, value_states, layer_idx, *more: Any, **named: Any):
        keys, values = (rounded(self.cache_form, one.double()).float() for one in (key_states, value_states))
        return super().update(keys, values, layer_idx, *more, **named)


def rounded(kept: str, x: torch.Tensor) -> torch.Tensor:
    """float64 [..., head_dim], from the definitions: scales are the next bfloat16 that reaches all."""
    if kept == "float32":
        return x
    if kept == "bf16":
        return x.bfloat16().double()
    if kept == "fp8":
        return x.clamp(-448, 448).to(torch.float8_e4m3fn).double()
    if kept == "int8":
        scale = reaching(x.abs().amax(-1, keepdim=True) / 127)
        return (x / scale).round() * scale
    least = -reaching(-x.amin(-1, keepdim=True))
    scale = reaching((x.amax(-1, keepdim=True) - least) / 15)
    return least + ((x - least) / scale).round() * scale


def reaching(x: torch.Tensor) -> torch.Tensor:
    """The least bfloat16 that is not under x, by trying the two at it."""
    near = x.bfloat16()
    return torch.where(near.double() >= x, near, near.nextafter(torch.full_like(near, torch.inf))).double()


@pytest.mark.parametrize("kept", FEWER_BITS)
def test_prompts_and_answers_see_keys_and_values_as_they_are_held(saved, arms_of, kept):
    """A number on the border of two codes may fall to the other side in float32, so log-probs are near, not equal."""
    arm = arms_of("plain")("variant", kv_cache=kept)
    theirs = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16).float().eval()
    theirs.set_attn_implementation("eager")
    work, off = job(arm, "", count=6), {"float32": 0.0, kept: 0.0}
    for prompt, told in zip(work.prompts, run_job(arm, work).completions, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *told.token_ids]])
        for held in off:
            with torch.inference_mode():
                logits = theirs(tokens, past_key_values=RoundedCache(held), use_cache=True).logits[0].double()
            expected = logits[len(prompt.token_ids) - 1 : -1].log_softmax(-1)
            expected = expected[range(len(told.token_ids)), torch.tensor(told.token_ids)]
            off[held] += float((expected - torch.tensor(told.logprobs)).abs().sum())
    assert off[kept] < off["float32"] / 100


def test_what_a_token_takes_is_counted_by_the_format(arms):
    found = {kept: arms("variant", kv_cache=kept).footprint.facts[CACHE_TOKEN] for kept in FEWER_BITS}
    assert found["bf16"] == arms("variant").footprint.facts[CACHE_TOKEN], "a server's cache is in the weights' dtype"
    assert found["fp8"] == found["bf16"] / 2
    assert found["bf16"] / 2 < found["int8"] < 0.6 * found["bf16"], "with a scale of each small head"
    assert found["int4"] < found["fp8"]


@pytest.mark.parametrize("kept", get_args(Kept))
def test_blocks_take_the_memory_that_is_counted(arms, kept):
    arm = arms("variant", kv_cache=kept)
    run_job(arm, job(arm, "", count=4))
    with recycled(arm.choice.cache_form, arm.choice.scales) as states:
        blocks = [states.memory[layer] for layer in arm.choice.seen]
    measured = sum(tensor.element_size() * tensor.numel() for one in blocks for tensor in one.tensors.values())
    assert measured == sum({one.count for one in blocks}) * SLOTS * arm.choice.position_bytes
    if kept != "float32":  # there a server's cache is counted, in the dtype of its weights
        assert arm.choice.position_bytes == arm.footprint.facts[CACHE_TOKEN]


def test_how_they_are_held_is_a_part_of_an_arm_and_what_is_held_in_float32_is_what_it_was(arms):
    plain, arm = arms("variant"), arms("variant", kv_cache="int8")
    assert plain.identity.content["kv_cache"] == ""
    assert arm.identity.content == plain.identity.content | {"kv_cache": "int8"}
    assert arm.spec.weights_label == "bfloat16, KV int8"


def test_padded_batches_hold_them_in_float32_alone(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("qualgate.engine.choice.choose_engine", lambda model: Choice(kind="padded", because="so it is"))
    with pytest.raises(
        NotInThisVersion, match=r"padded batches here \(so it is\).*Write `kv_cache: float32` in place of int8"
    ):
        loaded(saved(), tmp_path, kv_cache="int8")
