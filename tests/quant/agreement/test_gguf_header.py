"""A GGUF file's header that says something else than the files beside it is refused by name."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from qualgate.errors import UsageError
from qualgate.quant.model_folder import read_model_folder
from tests.quant.agreement.folders import check

gguf_made = pytest.importorskip("tests.quant.agreement.gguf_made", reason="needs the `gguf` package")
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN_HEADER = {
    "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 256,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def llama3_factors() -> np.ndarray:
    """As llama.cpp's converter works them out, frequency by frequency."""
    found = []
    for frequency in 1 / 10000.0 ** (np.arange(0, 64, 2) / 64):
        wave = 2 * np.pi / frequency
        smooth = (256 / wave - 1) / (4 - 1)
        inside = 1 / ((1 - smooth) / 8 + smooth)
        found.append(1.0 if wave < 256 / 4 else 8.0 if wave > 256 else inside)
    return np.array(found, np.float32)


def changed(name: str, place: int, value) -> dict:
    """The folder's own list with one entry changed."""
    from qualgate import refmodel

    tokens, types = gguf_made.vocabulary(refmodel.PATH, 768)
    merges = [" ".join(pair) for pair in json.loads((refmodel.PATH / "tokenizer.json").read_text())["model"]["merges"]]
    whole = {"tokens": tokens, "token_type": types, "merges": merges}[name]
    return {f"tokenizer.ggml.{name}": [*whole[:place], value, *whole[place + 1 :]]}


# key of the header → value, None for a key that is not there; what is said of it
REFUSED = {
    "another end": ({"tokenizer.ggml.eos_token_id": 5}, "stop tokens (eos, eot, eom) is 0 and 2 and 5 in the header"),
    "another end of the same set": ({"tokenizer.ggml.eos_token_id": 0}, "eos_token_id is 0 in the header and 2 in the"),
    "another end of turn": ({"tokenizer.ggml.eot_token_id": 7}, "stop tokens (eos, eot, eom) is 0 and 2 and 7"),
    "no end, so the default": ({"tokenizer.ggml.eos_token_id": None}, "is 0 and 2 and 11 in the header and 0 and 2"),
    "a text is begun": ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is True in the header and False"),
    "a text is begun by default": ({"tokenizer.ggml.pre": "llama-bpe"}, "add_bos_token is True"),
    "a text is ended": ({"tokenizer.ggml.add_eos_token": True}, "add_eos_token is True"),
    "another template": ({"tokenizer.chat_template": TEMPLATE}, "chat_template is 62 characters"),
    "no template": ({"tokenizer.chat_template": None}, "chat_template is not there"),
    "a template more": ({"tokenizer.chat_template.tool_use": TEMPLATE}, "chat_template.tool_use is 62 characters"),
    "another token": (changed("tokens", 100, "zz"), "tokens[100] is 'zz'"),
    "a token where none is": ({"llama.vocab_size": 768, **changed("tokens", 767, "more")}, "tokens[767] is 'more'"),
    "a word as special": (changed("token_type", 100, 3), "token_type[100] is 3"),
    "a special one as a word": (changed("token_type", 1, 1), "token_type[1] is 1 in the header and special"),
    "another merge": (changed("merges", 3, "x y"), "merges[3] is 'x y'"),
    "a merge less": ({"tokenizer.ggml.merges": ["Ġ t", "Ġ r"]}, "merges is 2 merges"),
    "another split": ({"tokenizer.ggml.pre": "qwen2"}, "pre is qwen2 in the header and smollm"),
    "no split": ({"tokenizer.ggml.pre": None}, "pre is not there"),
    "pieces": ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.add_bos_token": False}, "model is llama"),
    "another base": ({"llama.rope.freq_base": 500000.0}, "freq_base is 500000.0 in the header and 10000.0"),
    "scaled": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, "linear by 2.0"),
    "scaled, by the old key": ({"llama.rope.scale_linear": 2.0}, "rope.scaling is linear by 2.0"),
    "stretched otherwise": ({"llama.rope.scaling.yarn_beta_fast": 2.0}, "yarn_beta_fast is 2.0 in the header and 32.0"),
    "stretched": (YARN_HEADER, "rope.scaling is yarn by 4.0 from 256 tokens in the header and none"),
    "louder": ({"llama.rope.scaling.attn_factor": 1.2}, "attn_factor is 1.2"),
    "fewer turned": ({"llama.rope.dimension_count": 32}, "dimension_count is 32 in the header and 64"),
    "another epsilon": ({"llama.attention.layer_norm_rms_epsilon": 1e-5}, "layer_norm_rms_epsilon is 9.9999"),
    "not causal": ({"llama.attention.causal": False}, "attention.causal is False in the header and True"),
    "a space before": ({"tokenizer.ggml.add_space_prefix": True}, "add_space_prefix is True in the header and False"),
    "a shorter context": ({"llama.context_length": 512}, "context_length is 512 in the header and 1024"),
    "a layer less": ({"llama.block_count": 5}, "block_count is 5"),
    "fewer heads": ({"llama.attention.head_count_kv": 2}, "head_count_kv is 2"),
    "heads by layer": ({"llama.attention.head_count_kv": [4, 4, 4, 4, 4, 2]}, "head_count_kv is [4, 4, 4, 4, 4, 2]"),
    "wider heads": ({"llama.attention.key_length": 128}, "key_length is 128"),
    "experts": ({"llama.expert_count": 8}, "expert_count is 8 in the header and 0"),
    "a window": ({"llama.attention.sliding_window": 256}, "sliding_window is 256"),
    "another temperature": ({"general.sampling.temp": 0.5}, "sampling.temp is 0.5 in the header and 0.75"),
    "another architecture": ({"general.architecture": "qwen2"}, "architecture is qwen2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_header_that_contradicts_the_files_beside_it_is_refused_by_name(tmp_path, name):
    edits, message = REFUSED[name]
    folder = gguf_made.with_header(gguf_made.beside(tmp_path / "model"), edits)
    (folder / "generation_config.json").write_text('{"eos_token_id": 2, "temperature": 0.75}')
    with pytest.raises(UsageError, match=re.escape(message)):
        read_model_folder(folder)


# keys that the table does not know → value, which is refused by the key's name
UNKNOWN = {
    "llama.logit_scale": 3.0, "llama.attention.scale": 3.0, "llama.pooling_type": 1, "llama.attention.clamp_kqv": 1.0,
    "llama.attention.sliding_window_pattern": [True, False], "general.type": "adapter",
    "tokenizer.ggml.add_sep_token": True,
}  # fmt: skip


@pytest.mark.parametrize("key", UNKNOWN)
def test_a_key_that_nobody_knows_is_refused_by_name_unless_it_is_allowed_or_off(tmp_path, key):
    off = {"llama.pooling_type": 0, "llama.logit_scale": 0.0, "split.count": 1, "quantize.imatrix.file": "x"}
    folder = gguf_made.with_header(gguf_made.beside(tmp_path / "model"), off | {key: UNKNOWN[key]})
    with pytest.raises(UsageError, match=rf"the header has the key '{key}'.*allow_config: \[{key}\]"):
        check(folder)
    with pytest.raises(UsageError, match="no tensor of that format"):  # the made file has a header alone
        check(folder, allow_config=(key,))


TENSOR = {"rope_freqs.weight": llama3_factors()}
SCALED = {
    "llama3": ({"rope_parameters": LLAMA3}, {}, TENSOR, ""),
    "llama3, lost": ({"rope_parameters": LLAMA3}, {}, {}, "rope_freqs.weight is no tensor"),
    "llama3, of another factor": ({"rope_parameters": LLAMA3 | {"factor": 4.0}}, {}, TENSOR, "rope_freqs.weight is"),
    "llama3, the header's alone": ({}, {}, TENSOR, "rope_freqs.weight is"),
    "yarn": ({"rope_parameters": YARN}, YARN_HEADER, {}, ""),
    "yarn, lost": ({"rope_parameters": YARN}, {}, {}, "rope.scaling is none in the header and yarn by 4.0 from 256"),
    "linear": ({"rope_parameters": LINEAR}, {"llama.rope.scaling.factor": 4.0}, {}, ""),
    "linear, by another factor": ({"rope_parameters": LINEAR}, {"llama.rope.scaling.factor": 2.0}, {}, "linear by 2.0"),
    "dynamic, as it was trained": ({"rope_parameters": DYNAMIC}, {}, {}, ""),
    "keys of their defaults": ({"head_dim": 64}, dict.fromkeys(
        ["llama.rope.freq_base", "llama.rope.dimension_count", "llama.attention.head_count_kv", "llama.vocab_size"]
    ), {}, ""),
    "keys at their defaults": ({}, {
        "llama.rope.scaling.type": "none", "llama.expert_count": 0, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.eot_token_id": 2, "llama.attention.key_length": 64,
    }, {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
def test_positions_are_compared_by_meaning(tmp_path, name):
    config, edits, tensors, message = SCALED[name]
    folder = gguf_made.with_header(gguf_made.beside(tmp_path / "model", config), edits, tensors)
    if message:
        with pytest.raises(UsageError, match=re.escape(message)):
            read_model_folder(folder)
    else:
        assert read_model_folder(folder).stops_by_server["llama.cpp"] == (0, 2)


SCORES = [-float(token) for token in range(768)]
PIECES = {
    "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": None, "tokenizer.ggml.merges": None,
    "tokenizer.ggml.scores": SCORES,
}  # fmt: skip
UNIGRAM = {"type": "Unigram", "unk_id": 0}
RUNS = {"type": "BPE", "merges": [["▁▁", "▁"], ["▁", "▁"]]}  # of spaces, whose scores are alike in Mistral's tokenizers


@pytest.mark.parametrize(
    ("edits", "tokenizer", "message"),
    [
        ({}, {}, ""),
        ({"tokenizer.ggml.add_bos_token": None}, {}, ""),  # which is what llama.cpp does by default
        ({"tokenizer.ggml.add_bos_token": False}, {}, "add_bos_token is False in the header and True"),
        ({"tokenizer.ggml.bos_token_id": 2}, {}, "bos_token_id is 2 in the header and 1"),
        ({"tokenizer.ggml.model": "gpt2"}, {}, "model is gpt2 in the header and llama"),
        ({"tokenizer.ggml.scores": SCORES[::-1]}, {}, "is -507.0 in the header and below that of token 259"),
        ({"tokenizer.ggml.scores": None}, {}, "is 0.0 in the header and below that of token 259"),
        ({}, {"model": UNIGRAM}, ""),
        ({}, {"model": RUNS}, ""),
        ({"tokenizer.ggml.scores": [*SCORES[:9], 0.5, *SCORES[10:]]}, {"model": UNIGRAM}, "scores[9] is 0.5"),
        ({"tokenizer.ggml.add_space_prefix": False}, {}, "add_space_prefix is False in the header and True"),
        ({}, {"pre_tokenizer": None}, "add_space_prefix is True in the header and False"),
        ({}, {"pre_tokenizer": None, "normalizer": {"type": "Prepend", "prepend": "▁"}}, ""),
        ({"tokenizer.ggml.remove_extra_whitespaces": True}, {}, "remove_extra_whitespaces is True"),
        (changed("token_type", 100, 3), {}, "token_type[100] is 3 in the header and no special token"),
        (changed("token_type", 100, 6), {}, "token_type[100] is 6"),
        (changed("token_type", 1, 1), {}, "token_type[1] is 1 in the header and special"),
    ],
)
def test_a_tokenizer_of_pieces_is_compared_as_llama_cpp_reads_one(tmp_path, edits, tokenizer, message):
    folder = gguf_made.beside(tmp_path / "model")
    written = json.loads((folder / "tokenizer.json").read_text())
    if "model" in tokenizer:
        vocabulary = sorted(written["model"]["vocab"].items(), key=lambda entry: entry[1])
        scored = [[text, SCORES[token]] for text, token in vocabulary]
        spaces = {text: token for text, token in vocabulary if token not in (10, 11, 12)}
        spaces |= {"▁": 10, "▁▁": 11, "▁▁▁": 12}
        tokenizer = {"model": tokenizer["model"] | {"vocab": scored if tokenizer["model"] == UNIGRAM else spaces}}
    first = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    written |= {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}, "decoder": {"type": "Metaspace"},
        "post_processor": {"type": "TemplateProcessing", "single": first, "pair": []}, **tokenizer,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(written))
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"bos_token": "<|im_start|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    gguf_made.with_header(folder, PIECES | edits)
    if not message:
        assert read_model_folder(folder).header
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        read_model_folder(folder)


def test_stop_tokens_are_the_header_s_where_the_arm_says_so_and_nothing_else_is(tmp_path):
    folder = gguf_made.with_header(gguf_made.beside(tmp_path / "a"), {"tokenizer.ggml.eos_token_id": 5})
    assert read_model_folder(folder, read_as="llama.cpp").stop_ids == (0, 2, 5)
    both = gguf_made.with_header(gguf_made.beside(tmp_path / "b"), {"llama.rope.freq_base": 5e5})
    with pytest.raises(UsageError, match="freq_base is 500000"):
        read_model_folder(both, read_as="llama.cpp")
