"""A model that would say other tokens in padded batches than its own is refused before it says any."""

from __future__ import annotations

import pytest

from qualgate.engine.choice import choose_engine
from qualgate.engine.padded.engine import open_padded
from qualgate.engine.padded.self_check import check_runs_right
from qualgate.engine.request import Request
from qualgate.errors import NotInThisVersion, UsageError
from tests.depth import with_proofs
from tests.engine.jobs import loaded
from tests.engine.tiny_architectures import EXPERTS, MLA, NAMED_OTHERWISE, NO_DECODERS, tiny
from tests.tiny_models import save_byte_tokenizer

DECODERS = {"gptj": NAMED_OTHERWISE | {"rotary_dim": 4}, "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
            "qwen3_moe": EXPERTS | {"head_dim": 8}}  # fmt: skip


@pytest.mark.parametrize("arch", DECODERS)
def test_a_decoder_is_let_through(arch):
    """Others that `test_choice` asks for an engine."""
    assert check_runs_right(tiny(arch, **DECODERS[arch])) > 0


def test_what_a_position_leaves_in_the_cache_is_counted(llama):
    assert check_runs_right(llama) == 2 * 2 * 2 * 16  # layers, keys and values, heads, numbers of each
    latent = MLA["kv_lora_rank"] + MLA["qk_rope_head_dim"]
    assert check_runs_right(tiny("deepseek_v3", **MLA)) == 2 * latent


@pytest.mark.parametrize("arch", with_proofs(NO_DECODERS, {"roberta", "electra", "megatron-bert", "openai-gpt"}))
def test_what_reads_ahead_or_ignores_its_cache_is_refused_by_name(arch, tmp_path):
    model = tiny(arch, **NO_DECODERS[arch])
    model.save_pretrained(tmp_path)
    save_byte_tokenizer(tmp_path)
    with pytest.raises(NotInThisVersion, match=rf"{type(model).__name__} \({arch}\) (gives other logits|holds 0 of 8)"):
        choose_engine(model)
    with pytest.raises(UsageError, match=f"{arch}.*is an encoder|{arch}.*(gives other logits|holds 0 of 8)"):
        loaded(tmp_path, tmp_path)


# ------------------------------------------------------------------------------- each way by itself


@pytest.fixture
def llama():
    return tiny("llama")


def wrapped(model, *forgotten):
    """`model`, whose forward is not given these arguments."""
    forward = model.forward

    def other(input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids,
                 "past_key_values": past_key_values, "use_cache": use_cache}  # fmt: skip
        return forward(**given | dict.fromkeys(forgotten))

    model.forward = other
    return model


@pytest.mark.parametrize(
    ("forgotten", "said"),
    [
        (["position_ids"], "gives other logits padded beside another row than"),
        (["attention_mask"], "gives other logits padded beside another row than"),
        (["past_key_values", "attention_mask"], "holds 0 of 8 slots that were read"),
    ],
)
def test_each_fault_is_refused_by_the_way_that_shows_it(forgotten, said):
    absolute = tiny("gpt2", **NAMED_OTHERWISE)  # rotary positions may all be shifted, and nothing changes
    with pytest.raises(NotInThisVersion, match=said):
        check_runs_right(wrapped(absolute, *forgotten))


def test_a_layer_that_does_not_hold_what_was_read_stops_the_prefill(llama):
    with open_padded(llama) as engine:
        forward = llama.model.layers[1].self_attn.forward
        llama.model.layers[1].self_attn.forward = lambda *a, **k: forward(*a, **k | {"past_key_values": None})
        with pytest.raises(NotInThisVersion, match=r"Layer 1 of LlamaForCausalLM \(llama\) holds 0 of 3 slots"):
            engine.run([Request(prompt=(1, 2, 3), max_new_tokens=4)], None, lambda event: None)
