"""A model that would say other tokens here than its own is refused before it says any."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.forward import open_decoder
from qualgate.engine.generate import generate
from qualgate.engine.self_check import apart, check_runs_right
from qualgate.engine.transcript import Transcript
from qualgate.errors import NotInThisVersion, UsageError
from tests.command_line import qualgate
from tests.engine.jobs import loaded
from tests.gated_model import make_workspace
from tests.tiny_models import VOCABULARY, save_byte_tokenizer

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128}  # fmt: skip
NAMED_OTHERWISE = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
       "num_key_value_heads": 4, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
       "topk_group": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1}  # fmt: skip
DECODERS = {
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "cohere": {}, "deepseek_v3": MLA,
    "gemma3_text": {"head_dim": 8},
    "gpt2": NAMED_OTHERWISE, "gptj": NAMED_OTHERWISE | {"rotary_dim": 4}, "mixtral": {"num_local_experts": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4}, "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 8},
    "stablelm": {},
}  # fmt: skip
OTHERS = {
    "bert": {}, "roberta": {}, "electra": {}, "megatron-bert": {}, "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "openai-gpt": NAMED_OTHERWISE, "rwkv": {"attention_hidden_size": 32},
}  # fmt: skip


def made(arch: str, more: dict):
    sizes = {} if {"n_embd", "d_model", "n_layer", "emb_dim"} & more.keys() else SIZES
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(arch, vocab_size=VOCABULARY, pad_token_id=1, **{**sizes, **more})
        return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("arch", DECODERS)
def test_a_decoder_is_let_through(arch):
    check_runs_right(made(arch, DECODERS[arch]))


@pytest.mark.parametrize("arch", OTHERS)
def test_what_reads_ahead_or_ignores_its_cache_is_refused_by_name(arch, tmp_path):
    model = made(arch, OTHERS[arch])
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
    made("xlm", OTHERS["xlm"]).save_pretrained(folder)
    done = qualgate("run", "gate.yaml", cwd=tmp_path)
    assert done.returncode == 64, done.stderr
    assert "(xlm) holds 0 of" in " ".join(done.stderr.split())


# ------------------------------------------------------------------------------- each way by itself


@pytest.fixture
def llama():
    return made("llama", {})


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
    absolute = made("gpt2", NAMED_OTHERWISE)  # rotary positions may all be shifted, and nothing changes
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
    with torch.no_grad():
        llama.lm_head.weight.fill_(1.0)
        check_runs_right(llama)
        llama.lm_head.weight.fill_(float("nan"))
        check_runs_right(llama)


def test_a_layer_that_does_not_hold_what_was_read_stops_the_prefill(llama):
    with open_decoder(llama) as decoder:
        forward = llama.model.layers[1].self_attn.forward
        llama.model.layers[1].self_attn.forward = lambda *a, **k: forward(*a, **k | {"past_key_values": None})
        with pytest.raises(NotInThisVersion, match=r"Layer 1 of LlamaForCausalLM \(llama\) holds 0 of 3 slots"):
            generate(decoder, [[1, 2, 3]], Transcript([4], (), decoder.device))


def test_a_difference_is_told_in_spreads_of_the_logits():
    expected = torch.randn(12, 100, generator=torch.Generator().manual_seed(0)) * 5 + 3
    assert apart(expected, expected) == 0
    assert apart(expected + 0.05, expected) == pytest.approx(0.01, rel=0.1)
    assert apart(expected + float("nan"), expected) != apart(expected, expected)
