"""Faults of what stands beside the weights: templates (kind 4), stop tokens (6), files (7), architecture (8), sampling
defaults (9), tokenizers and places of the quantization config (10, 11)."""

from __future__ import annotations

import json
from typing import Any

import torch

from qualgate.refmodel import PATH as REFERENCE
from tests.verification.references.edited_folders.edits import (
    ANY,
    DOWN,
    EMBEDDED,
    Edit,
    Edited,
    both,
    drop,
    excluded,
    file,
    gone,
    put,
    said,
    unquantized,
    weight,
    without_file,
)
from tests.verification.references.edited_folders.made import FIRST, INDEX, ONE, SECOND, Folder, floats

ALL = ("as said",) * 4
HF = ("as said",) * 3 + ("-",)
TEMPLATE = (REFERENCE / "chat_template.jinja").read_text()
OTHER = TEMPLATE.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n\n")
NO_TOOLS = TEMPLATE[TEMPLATE.index("{%- for message in messages") :]


def _named(**more: str) -> Edit:
    """The template as a list of named ones in tokenizer_config.json."""
    rows = [{"name": "default", "template": TEMPLATE}, *({"name": k, "template": v} for k, v in more.items())]
    return both(without_file("chat_template.jinja"), put("t:chat_template", rows))


def _templates() -> list[Edited]:
    more: dict[str, Any] = {"kind": 4, "format": "ct-int8", "must": "refused", "words": ("template",), "servers": HF}
    found = {
        "another template": file("chat_template.jinja", OTHER),
        "no template": without_file("chat_template.jinja"),
        "another template in tokenizer_config alone": both(
            without_file("chat_template.jinja"), put("t:chat_template", OTHER)
        ),
        "tool_use in a list, without tools": _named(tool_use=NO_TOOLS),
        "another default in a list": both(_named(), put("t:chat_template", [{"name": "default", "template": OTHER}])),
        "additional tool_use": file("additional_chat_templates/tool_use.jinja", NO_TOOLS),
        "additional rag": file("additional_chat_templates/rag.jinja", OTHER),
        "a template in a processor's file": file("chat_template.json", json.dumps({"chat_template": OTHER})),
    }
    cases = [Edited(name=f"template: {name}", edit=edit, **more) for name, edit in found.items()]
    cases += [
        Edited(name="template: two that differ", edit=put("t:chat_template", OTHER), **more | {"must": "refused|told",
               "servers": ("chat_template.jinja", "chat_template.jinja", "chat_template.jinja", "-")}),
        Edited(name="template: generation prompt dropped", format="plain",
               edit=file("chat_template.jinja", TEMPLATE.partition("{%- if add_generation_prompt")[0]),
               **{key: value for key, value in more.items() if key != "format"}),
        Edited(name="template: list in the baseline alone", base=_named(tool_use=NO_TOOLS), edit=lambda folder: None,
               **more),
        Edited(name="template: tool_use lost", base=file("additional_chat_templates/tool_use.jinja", OTHER),
               edit=lambda folder: None, **more),
    ]  # fmt: skip
    return cases


BY_GENERATION = ("generation_config.json", "both files", "both files", "-")


def _stops() -> list[Edited]:
    """Stop tokens, after open-r1#663 and mlx-lm#1414."""
    rows: dict[str, tuple[Edit, tuple[str, ...]]] = {
        "generation_config of another token": (put("g:eos_token_id", 0), ("stop token|eos_token_id",)),
        "generation_config of one token more": (put("g:eos_token_id", [2, 0]), ("stop token|eos_token_id",)),
        "config.json of another token": (put("eos_token_id", 0), ("stop token|eos_token_id",)),
        "both of another token": (both(put("eos_token_id", 0), put("g:eos_token_id", 0)), ("stop token|eos_token_id",)),
        "no generation_config, another in config.json": (both(without_file("generation_config.json"),
                                                              put("eos_token_id", 0)), ("stop token|eos_token_id",)),
        "none": (both(drop("g:eos_token_id"), drop("eos_token_id")), ("stop token|eos_token_id",)),
        "a tokenizer that ends by another": (put("t:eos_token", "<|endoftext|>"), ("eos_token|tokenizer|stop",)),
        "no number": (put("g:eos_token_id", "2"), ("eos_token_id",)),
        "a stop string": (put("g:stop_strings", ["\n"]), ("stop_strings",)),
    }  # fmt: skip
    found = [
        Edited(name=f"stop: {name}", kind=6, format="ct-int8", edit=edit, words=words, servers=BY_GENERATION,
               must="refused|told" if name == "a stop string" else "refused") for name, (edit, words) in rows.items()
    ]  # fmt: skip
    two = put("g:eos_token_id", [2, 0])
    found += [
        Edited(name="stop: the baseline ends by one more", kind=6, format="ct-int8", base=two,
               edit=lambda folder: None, must="refused", words=("stop token|eos_token_id",), servers=BY_GENERATION),
        Edited(name="stop: union alike, generation_config not", kind=6, format="ct-int8", base=two,
               edit=put("g:eos_token_id", 0), must="refused", words=("stop token|eos_token_id",),
               servers=BY_GENERATION),
        Edited(name="stop: both arms' files differ alike", kind=6, format="ct-int8", must="told",
               base=put("g:eos_token_id", 0), edit=put("g:eos_token_id", 0), words=("end answers|stop|eos",),
               servers=BY_GENERATION),
    ]  # fmt: skip
    return found


def _roll(name: str) -> torch.Tensor:
    return floats()[name].roll(1, 0)


def _index(change) -> Edit:
    return lambda folder: change(folder.json[INDEX]["weight_map"])


NORM = "model.norm.weight"
SOME = "model.layers.0.mlp.up_proj.weight"


def _split(folder: Folder) -> None:
    """The folder's tensors over two shards with an index, the one file gone."""
    tensors = folder.weights.pop(ONE)
    names = sorted(tensors)
    for shard, held in ((FIRST, names[::2]), (SECOND, names[1::2])):
        folder.weights[shard] = {name: tensors[name] for name in held}
    weight_map = {name: shard for shard, held in folder.weights.items() for name in held}
    folder.json[INDEX] = {"metadata": {}, "weight_map": weight_map}


def _beside(scale: float) -> Edit:
    """The one file, and beside it shards of an index whose values are others."""

    def edit(folder: Folder) -> None:
        kept = dict(folder.tensors)
        _split(folder)
        for held in folder.weights.values():
            held.update({name: (scale * one.float()).to(one.dtype) for name, one in held.items() if name == NORM})
        folder.weights = {ONE: kept, **folder.weights}

    return edit


def _files() -> list[Edited]:
    one, index = ("model.safetensors", "the index's shards", "the index's shards", "-"), ("model.safetensors",)
    twice = ("by the index", "the last read", "the last read", "-")
    rows = [
        ("model.safetensors beside an index of others", "plain", _beside(3.0), "refused", index, one),
        ("model.safetensors beside an index of others, int8", "ct-int8", _beside(3.0), "refused", index, one),
        ("a stale index of shards that are gone", "plain",
         lambda folder: folder.json.update({INDEX: {"metadata": {}, "weight_map": {NORM: FIRST}}}), "refused|told",
         ("index", FIRST), ("model.safetensors", "no file", "no file", "-")),
        ("a tensor in two shards", "sharded", weight(NORM, _roll(NORM), FIRST), "refused", (NORM, FIRST, SECOND),
         twice),
        ("a tensor in two shards, quantized", "ct-int4",
         both(_split, weight(NORM, _roll(NORM), FIRST), weight(NORM, floats()[NORM], SECOND)), "refused",
         (NORM, FIRST, SECOND), twice),
        ("an extra file with a tensor again", "sharded", weight(NORM, _roll(NORM), "model-00003-of-00002.safetensors"),
         "refused|told", ("model-00003-of-00002",), ("not read", "not read: not in the index", "not read", "-")),
        ("an extra file beside the one", "plain", weight(NORM, _roll(NORM), "extra.safetensors"), "refused",
         ("extra.safetensors",), ("not read", "read: every file", "read: every file", "-")),
        ("an old copy beside the one", "ct-int8", weight(NORM, _roll(NORM), "model.old.safetensors"), "refused",
         ("model.old.safetensors",), ("not read", "read: every file", "read: every file", "-")),
        ("another consolidated.safetensors", "plain", weight(NORM, _roll(NORM), "consolidated.safetensors"),
         "refused|told", ("consolidated",), ("not read", "read: by its glob", "read: by its glob", "-")),
        ("other weights under original/", "plain", weight(NORM, _roll(NORM), "original/model.safetensors"), "told",
         ("original",), ("not read",) * 3 + ("-",)),
        ("pytorch_model.bin beside", "plain", file("pytorch_model.bin", b"PK\x03\x04"), "told", ("pytorch_model.bin",),
         ("not read",) * 3 + ("-",)),
        ("an entry of a shard that is not there", "sharded",
         _index(lambda said: said.update({NORM: "model-00009-of-00009.safetensors"})), "refused", ("00009",),
         ("no file", "no file", "no file", "-")),
        ("an entry in the other shard", "sharded", _index(lambda said: said.update({NORM: FIRST})), ANY,
         (NORM,), ("as stored",) * 3 + ("-",)),
        ("a tensor that the index leaves out", "sharded", _index(lambda said: said.pop(NORM)), ANY,
         (NORM,), ("read", "read", "read", "-")),
        ("an entry of no tensor", "sharded", _index(lambda said: said.update({"model.norm.bias": SECOND})), "refused",
         ("model.norm.bias",), ("not read", "not read", "not read", "-")),
        ("a tensor gone from its shard", "sharded", gone(NORM), "refused", (NORM,), ("anew", "error", "error", "-")),
        ("an adapter in the model's folder", "plain", both(
            file("adapter_config.json", json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
                                                    "target_modules": ["q_proj"]})),
            weight("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", torch.ones(4, 64),
                   "adapter_model.safetensors")), "refused|told", ("adapter",),
         ("applied where PEFT is", "KeyError", "KeyError", "-")),
        ("params.json of another layout", "plain", both(file("params.json", "{}"), weight(
            "norm.weight", _roll(NORM), "consolidated.safetensors")), "refused|told", ("consolidated|params.json",),
         ("not read", "read first", "not read", "-")),
        ("a GGUF beside the safetensors", "plain", file("model.gguf", b"GGUF"), "refused|told", ("model.gguf",),
         ("not read", "not read", "not read", "read alone")),
        ("a layer too many", "plain", weight("model.layers.2.input_layernorm.weight", floats()[NORM]), "refused",
         ("layers.2|num_hidden_layers",), ("not read", "KeyError", "KeyError", "-")),
        ("a bias that the model lacks", "plain", weight(f"{DOWN}.bias", torch.ones(64)), "refused",
         (f"{DOWN}.bias|mlp_bias",), ("not read", "KeyError", "KeyError", "-")),
        ("embeddings of fewer rows", "plain", weight(EMBEDDED, floats()[EMBEDDED][:760].clone()), "refused",
         ("embed_tokens|vocab_size",), ("shape error", "shape error", "shape error", "-")),
    ]  # fmt: skip
    return [
        Edited(name=f"files: {name}", kind=7, format=format, edit=edit, must=must, words=words, servers=servers)
        for name, format, edit, must, words, servers in rows
    ]


ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}  # fmt: skip


def _architecture() -> list[Edited]:
    rows: list[tuple[str, Edit, str]] = [
        ("rope base", put("rope_parameters.rope_theta", 500000.0), "rope_theta"),
        ("rope base, old key", both(drop("rope_parameters"), put("rope_theta", 1e6)), "rope_theta"),
        ("rope llama3", put("rope_parameters", {**ROPE, **LLAMA3}), "rope"),
        ("rope linear", put("rope_parameters", {**ROPE, "rope_type": "linear", "factor": 4.0}), "rope"),
        ("rope yarn", put("rope_parameters", {**ROPE, "rope_type": "yarn", "factor": 4.0,
                          "original_max_position_embeddings": 256}), "rope"),
        ("rope dynamic", put("rope_parameters", {**ROPE, "rope_type": "dynamic", "factor": 2.0}), "rope"),
        ("rope said twice", put("rope_theta", 1e6), "rope_theta"),
        ("rope scaling beside parameters", put("rope_scaling", {"type": "linear", "factor": 4.0}), "rope"),
        ("rope partial", put("rope_parameters", {**ROPE, "partial_rotary_factor": 0.5}), "partial_rotary_factor"),
        ("context shorter", put("max_position_embeddings", 512), "max_position_embeddings"),
        ("context longer", put("max_position_embeddings", 4096), "max_position_embeddings"),
        ("epsilon", put("rms_norm_eps", 1e-5), "rms_norm_eps"),
        ("epsilon missing", drop("rms_norm_eps"), "accepted"),
        ("epsilon near", put("rms_norm_eps", 1.001e-6), "rms_norm_eps"),
        ("activation gelu", put("hidden_act", "gelu"), "hidden_act"),
        ("activation gelu_tanh", put("hidden_act", "gelu_pytorch_tanh"), "hidden_act"),
        ("query heads", both(put("num_attention_heads", 8), put("num_key_value_heads", 4), put("head_dim", 8)), "head"),
        ("key heads", put("num_key_value_heads", 4), "num_key_value_heads|k_proj"),
        ("key heads missing", drop("num_key_value_heads"), "num_key_value_heads|k_proj"),
        ("head size", both(put("head_dim", 32), put("num_attention_heads", 2), put("num_key_value_heads", 1)), "head"),
        ("sliding window", put("sliding_window", 32), "sliding_window"),
        ("attention bias", put("attention_bias", True), "attention_bias"),
        ("MLP bias", put("mlp_bias", True), "mlp_bias"),
        ("vocabulary smaller", put("vocab_size", 760), "vocab_size|embed_tokens"),
        ("vocabulary larger", put("vocab_size", 800), "vocab_size|embed_tokens"),
        ("layers fewer", put("num_hidden_layers", 1), "num_hidden_layers|layers.1"),
        ("layers more", put("num_hidden_layers", 3), "num_hidden_layers|layers.2"),
        ("model type mistral", both(put("model_type", "mistral"), put("architectures", ["MistralForCausalLM"])),
         "model_type"),
        ("architecture name alone", put("architectures", ["MistralForCausalLM"]), "architectures"),
        ("architecture of no text", put("architectures", ["LlamaForSequenceClassification"]), "architectures|LlamaFor"),
        ("inner size", put("intermediate_size", 256), "intermediate_size|gate_proj|mlp"),
        ("soft cap", put("final_logit_softcapping", 30.0), "final_logit_softcapping"),
        ("multiplier", put("attention_multiplier", 0.5), "attention_multiplier"),
        ("norm inside", put("swin_norm", True), "swin_norm"),
        ("own code", put("auto_map", {"AutoModelForCausalLM": "modeling.Own"}), "auto_map"),
    ]  # fmt: skip
    found = []
    for place, (name, edit, words) in enumerate(rows):
        format = ("ct-int8", "plain", "gptq", "fp8-block", "ct-int4")[place % 5]
        kind: dict[str, Any] = {"must": "accepted"} if words == "accepted" else {"must": "refused", "words": (words,)}
        found.append(Edited(name=f"config: {name}", kind=8, format=format, edit=edit, servers=HF, **kind))
    return found


def _sampling() -> list[Edited]:
    rows = {
        "temperature": 1.5, "top_p": 0.5, "top_k": 5, "min_p": 0.3, "repetition_penalty": 1.3, "max_new_tokens": 8,
        "no_repeat_ngram_size": 3, "suppress_tokens": [33], "begin_suppress_tokens": [33], "forced_bos_token_id": 33,
        "bad_words_ids": [[33]], "sequence_bias": [[[33], -5.0]], "do_sample": True,
    }  # fmt: skip
    ours = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")
    return [
        Edited(name=f"sampling: {key}", kind=9, format=("ct-int8", "plain")[place % 2], edit=put(f"g:{key}", value),
               must="refused|told", words=(key,),
               servers=("applied", *(("applied",) * 2 if key in ours else ("not read",) * 2), "-"))
        for place, (key, value) in enumerate(rows.items())
    ]  # fmt: skip


def _tokenizer(change) -> Edit:
    def edit(folder: Folder) -> None:
        held = json.loads(folder.other["tokenizer.json"])
        change(held)
        folder.other["tokenizer.json"] = json.dumps(held).encode()

    return edit


def _others() -> list[Edited]:
    rows: list[tuple[str, str, int, Edit, str, tuple[str, ...]]] = [
        ("tokenizer: normalizer", "ct-int8", 10,
         _tokenizer(lambda said: said.update(normalizer={"type": "Lowercase"})), "refused", ("tokenizer",)),
        ("tokenizer: a merge gone", "plain", 10, _tokenizer(lambda said: said["model"]["merges"].pop()), "refused",
         ("tokenizer",)),
        ("tokenizer: two tokens changed places", "gptq", 10, _tokenizer(_swap), "refused", ("tokenizer",)),
        ("tokenizer: a token more", "plain", 10, _tokenizer(lambda said: said["added_tokens"].append(
            {"id": 768, "content": "<new>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False})), "refused", ("tokenizer",)),
        ("tokenizer: begins with a token", "plain", 10, _tokenizer(lambda said: said["post_processor"]["single"].insert(
            0, {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}})), "refused", ("tokenizer",)),
        ("tokenizer: unknown class", "ct-int8", 10, put("t:tokenizer_class", "TokenizersBackendFast"), "refused|told",
         ("tokenizer_class|TokenizersBackendFast",)),
        ("tokenizer: another class", "ct-int8", 10, put("t:tokenizer_class", "LlamaTokenizerFast"), "refused",
         ("tokenizer_class|tokenizer",)),
        ("tokenizer: adds bos", "ct-int8", 10, both(put("t:add_bos_token", True), put("t:bos_token", "<|im_start|>")),
         "refused", ("tokenizer|add_bos_token",)),
        ("tokenizer: no tokenizer.json", "plain", 10, without_file("tokenizer.json"), "refused", ("tokenizer",)),
        ("tokenizer: special tokens of another file", "ct-int8", 10,
         file("special_tokens_map.json", '{"eos_token": "<|endoftext|>"}'), "refused|told",
         ("special_tokens_map|tokenizer|eos",)),
        ("tokenizer: added_tokens.json of other ids", "plain", 10, file("added_tokens.json", '{"<tools>": 5}'),
         ANY, ()),
        ("quantization under text_config", "ct-int4", 11, _moved, "refused", ("text_config",)),
        ("quantize_config.json of other bits", "gptq", 10, put("quantize_config.json:bits", 8), "refused",
         ("quantize_config.json", "bits")),
        ("quantize_config.json of another format", "gptq", 10, put("quantize_config.json:checkpoint_format", "gptq_v2"),
         "refused", ("quantize_config.json", "checkpoint_format")),
        ("quantize_config.json of another sym", "gptq", 10, put("quantize_config.json:sym", False), "refused",
         ("quantize_config.json", "sym")),
        ("quant_config.json of other groups", "awq", 10,
         file("quant_config.json", json.dumps({"quant_method": "awq", "q_group_size": 64, "w_bit": 4})), "refused|told",
         ("quant_config.json",)),
        ("hf_quant_config.json of other layers", "modelopt-nvfp4", 10,
         put("hf_quant_config.json:quantization.exclude_modules", ["lm_head", "*.q_proj"]), "refused",
         ("exclude_modules|q_proj",)),
        ("hf_quant_config.json of an fp8 cache", "modelopt-fp8", 10,
         put("hf_quant_config.json:quantization.kv_cache_quant_algo", "FP8"), "refused|told", ("kv_cache",)),
        ("quant_method of another name", "ct-int4", 10, put("q:quant_method", "auto-round"), "refused",
         ("auto-round|quant_method",)),
        ("quantization_config gone", "ct-int4", 10, drop("quantization_config"), "refused", ("quantization_config",)),
        ("quantization_config gone, fp8", "fp8-block", 10, drop("quantization_config"), "refused",
         ("quantization_config",)),
        ("quantization_config gone, int8", "ct-int8", 10, drop("quantization_config"), "refused",
         ("quantization_config",)),
        ("compression_config beside", "ct-int4", 10, put("compression_config", {"quant_method": "compressed-tensors",
         "format": "dense"}), "refused|told", ("compression_config",)),
        ("cache scales, half of them", "ct-fp8", 10, both(
            put("q:kv_cache_scheme", {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor",
                                      "dynamic": False}),
            *(weight(f"model.layers.0.self_attn.{part}_scale", torch.tensor([0.05])) for part in "kv")), "refused",
         ("k_scale|v_scale|kv_cache|layers.1|scale",)),
        ("cache scales that nothing says", "ct-fp8", 10, both(
            *(weight(f"model.layers.{layer}.self_attn.{part}_scale", torch.tensor([0.05])) for part in "kv"
              for layer in (0, 1))), "refused|told", ("k_scale|v_scale|kv_cache|scale",)),
    ]  # fmt: skip
    unread = ("compression_config beside", "cache scales that nothing says", "quant_config.json of other groups")
    cases = [
        Edited(
            name=name,
            kind=kind,
            format=format,
            edit=edit,
            must=must,
            words=words,
            servers=("not read",) * 3 + ("-",) if name in unread else HF,
        )
        for name, format, kind, edit, must, words in rows
    ]
    cases += [
        Edited(name="control: bookkeeping", kind=10, format="gptq", must="accepted", servers=HF,
               edit=said(damp_percent=0.1, static_groups=False, true_sequential=True)),
        Edited(name="control: floats listed", kind=1, format="ct-int4", must="accepted", servers=HF,
               edit=both(unquantized(DOWN), excluded(DOWN))),
        Edited(name="control: floats listed by pattern", kind=1, format="ct-fp8", must="accepted", servers=HF,
               edit=both(unquantized(DOWN), excluded(r"re:.*layers\.1\.mlp\.down_proj"))),
        Edited(name="control: floats listed, AWQ", kind=1, format="awq", must="accepted", servers=HF,
               edit=both(unquantized(DOWN, torch.float16), excluded(DOWN))),
        Edited(name="control: floats listed, NF4", kind=1, format="bnb-nf4", must="accepted", servers=HF,
               edit=both(unquantized(DOWN), excluded(DOWN))),
        Edited(name="control: floats skipped, GPTQ", kind=1, format="gptq", must="accepted", servers=HF,
               edit=both(unquantized(DOWN, torch.float16), excluded(r".*layers\.1\.mlp\.down_proj.*"))),
        Edited(name="control: the same template in a list", kind=4, format="plain", must="accepted", edit=_named(),
               servers=HF),
        Edited(name="control: stop tokens in a list", kind=6, format="plain", edit=put("g:eos_token_id", [2]),
               must="accepted", servers=HF),
        Edited(name="control: tied, the same head", kind=3, format="ct-int4", tied=True, must="accepted", servers=HF,
               edit=lambda folder: folder.tensors.update({"lm_head.weight": floats()[EMBEDDED].clone()})),
        Edited(name="control: sharded", kind=7, format="ct-int4", edit=_split, must="accepted", servers=HF),
        Edited(name="control: rope in the old key", kind=8, format="ct-int8", must="accepted", servers=HF,
               edit=both(drop("rope_parameters"), put("rope_theta", 10000.0))),
        Edited(name="control: another rope that is meant", kind=8, format="plain", must="accepted", servers=HF,
               edit=put("rms_norm_eps", 1e-5), more=", allow_config: [rms_norm_eps]"),
    ]  # fmt: skip
    return cases


def _swap(said) -> None:
    vocabulary = said["model"]["vocab"]
    one, other = list(vocabulary)[300:302]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def _moved(folder: Folder) -> None:
    moved = folder.config.pop("quantization_config")
    folder.config["text_config"] = {**folder.config, "quantization_config": moved}


CASES = (*_templates(), *_stops(), *_files(), *_architecture(), *_sampling(), *_others())
