"""A model that would say other tokens in padded batches than its own is refused before it says any."""

from __future__ import annotations

import pytest

from qualgate.engine.padded.engine import open_padded
from qualgate.engine.padded.self_check import check_runs_right
from qualgate.engine.request import Request
from qualgate.errors import NotInThisVersion, UsageError
from tests.command_line import qualgate
from tests.engine.decoders import ALIBI, EXPERTS, MLA, NAMED_OTHERWISE, NO_DECODERS
from tests.engine.jobs import loaded
from tests.engine.tiny_architectures import tiny
from tests.gated_model import make_workspace
from tests.tiny_models import save_byte_tokenizer

DECODERS = {
    **ALIBI, "cohere": {}, "deepseek_v3": MLA, "gemma3_text": {"head_dim": 8}, "gpt2": NAMED_OTHERWISE,
    "gptj": NAMED_OTHERWISE | {"rotary_dim": 4}, "mixtral": EXPERTS, "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen3_moe": EXPERTS | {"head_dim": 8}, "stablelm": {},
}  # fmt: skip


@pytest.mark.parametrize("arch", DECODERS)
def test_a_decoder_is_let_through(arch):
    assert check_runs_right(tiny(arch, **DECODERS[arch])) > 0


def test_what_a_position_leaves_in_the_cache_is_counted(llama):
    assert check_runs_right(llama) == 2 * 2 * 2 * 16  # layers, keys and values, heads, numbers of each
    latent = MLA["kv_lora_rank"] + MLA["qk_rope_head_dim"]
    assert check_runs_right(tiny("deepseek_v3", **MLA)) == 2 * latent


@pytest.mark.parametrize("arch", NO_DECODERS)
def test_what_reads_ahead_or_ignores_its_cache_is_refused_by_name(arch, tmp_path):
    model = tiny(arch, **NO_DECODERS[arch])
    model.save_pretrained(tmp_path)
    save_byte_tokenizer(tmp_path)
    with pytest.raises(NotInThisVersion, match=rf"{type(model).__name__} \({arch}\) (gives other logits|holds 0 of 8)"):
        check_runs_right(model)
    with pytest.raises(UsageError, match=f"{arch}.*is an encoder|{arch}.*(gives other logits|holds 0 of 8)"):
        loaded(tmp_path, tmp_path)


def test_a_run_of_one_says_so_and_ends_as_a_mistake_of_the_users(tmp_path):
    make_workspace(tmp_path)
    folder = tmp_path / "model"
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        (folder / name).unlink()
    tiny("xlm", **NO_DECODERS["xlm"]).save_pretrained(folder)
    done = qualgate("run", "gate.yaml", cwd=tmp_path)
    assert done.returncode == 64, done.stderr
    assert "(xlm) holds 0 of" in " ".join(done.stderr.split())


# ------------------------------------------------------------------------------- each way by itself


@pytest.fixture
def llama():
    return tiny("llama")


def wrapped(model, change):
    """`model`, whose forward is called with what `change` makes of its arguments."""
    forward = model.forward

    def other(input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids,
                 "past_key_values": past_key_values, "use_cache": use_cache}  # fmt: skip
        return forward(**change(given))

    model.forward = other
    return model


def forgets_positions(given):
    return given | {"position_ids": None}


def sees_padding(given):
    return given | {"attention_mask": None}


def forgets_the_cache(given):
    return given | {"past_key_values": None, "attention_mask": None}


WAYS = {
    forgets_positions: "gives other logits padded beside another row than",
    sees_padding: "gives other logits padded beside another row than",
    forgets_the_cache: "holds 0 of 8 slots that were read",
}


@pytest.mark.parametrize("change", WAYS)
def test_each_fault_is_refused_by_the_way_that_shows_it(change):
    absolute = tiny("gpt2", **NAMED_OTHERWISE)  # rotary positions may all be shifted, and nothing changes
    with pytest.raises(NotInThisVersion, match=WAYS[change]):
        check_runs_right(wrapped(absolute, change))


def test_another_arithmetic_than_the_eager_one_is_refused(llama):
    attention, eager = llama.model.layers[0].self_attn, llama.model.layers[0].self_attn.forward
    attention.forward = lambda *a, **k: (
        eager(*a, **k) if llama.config._attn_implementation == "eager" else (eager(*a, **k)[0] * 1.001, None)
    )
    with pytest.raises(NotInThisVersion, match="by transformers' eager code"):
        check_runs_right(llama)


def test_the_attention_chosen_before_is_chosen_again(llama):
    before = llama.config._attn_implementation
    check_runs_right(llama)
    assert llama.config._attn_implementation == before != "eager"


def test_logits_that_are_not_finite_or_all_alike_are_the_runs_to_tell(llama):
    for number in (1.0, float("nan")):
        llama.lm_head.weight.fill_(number)
        check_runs_right(llama)


def test_a_layer_that_does_not_hold_what_was_read_stops_the_prefill(llama):
    with open_padded(llama) as engine:
        forward = llama.model.layers[1].self_attn.forward
        llama.model.layers[1].self_attn.forward = lambda *a, **k: forward(*a, **k | {"past_key_values": None})
        with pytest.raises(NotInThisVersion, match=r"Layer 1 of LlamaForCausalLM \(llama\) holds 0 of 3 slots"):
            engine.run([Request(prompt=(1, 2, 3), max_new_tokens=4)], None, lambda event: None)
