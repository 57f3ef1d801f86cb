"""Edits that change nothing that any server computes or shows, each with where that can be seen.

"run" was tried; the rest is from the sources, or as known, see `edits.VERSIONS`.
"""

from __future__ import annotations

from typing import Any

NEUTRAL: dict[str, dict[str, str]] = {  # file → keys that may have any value
    "config.json": {
        "transformers_version": "transformers: configuration_utils, written at save, read for no model",
        "initializer_range": "transformers: modeling_llama, of weights that are not in the file",
        "attention_dropout": "transformers: modeling_llama, `0.0 if not self.training`; vLLM, SGLang: no dropout",
        "use_cache": "transformers: whether keys are kept, never what is computed; vLLM, SGLang: not read",
        "pretraining_tp": "transformers 5: configuration_llama, read by nothing",
        "pad_token_id": "transformers: padding_idx of embeddings, whose row is in the file; batches are masked",
        "bos_token_id": "transformers: generate() without a prompt alone; prompts here are never empty",
        "quantization": "MLX's own key: transformers, vLLM, SGLang and llama.cpp read quantization_config",
        "dtype": "what weights are cast to; each arm's `dtype` says that here",
    },
    "generation_config.json": {
        "transformers_version": "transformers: generation/configuration_utils, for warnings",
        "pad_token_id": "transformers: fills what is behind an answer's end",
        "bos_token_id": "transformers: generate() without a prompt alone",
    },
    "tokenizer_config.json": {
        "pad_token": "fills batches, which are masked",
        "padding_side": "fills batches, which are masked",
        "backend": "run: written at save; the class is by tokenizer_class",
        "bos_token": "run: added by tokenizer.json's own post-processor alone, unless add_bos_token says so",
        "model_max_length": "run: a warning; vLLM: config/model.py reads it for pooling models alone; SGLang: not read",
        "clean_up_tokenization_spaces": "run: ignored for BPE tokenizers, with a warning",
    },
    "quantization_config": {
        "version": "compressed-tensors: the library's version, read by nothing (AWQ's `version` is no such key)",
        "global_compression_ratio": "compressed-tensors: quant_config.py, for people",
        "observer": "compressed-tensors: how scales were found",
        "observer_kwargs": "compressed-tensors: how scales were found",
        "meta": "gptqmodel: who quantized, and how",
        "damp_percent": "gptqmodel: how codes were found",
        "quantizer": "gptqmodel: who quantized",
        "producer": "ModelOpt: who quantized",
        "name": "ModelOpt: who quantized",
        "bnb_4bit_compute_dtype": "bitsandbytes: of products; each arm's arithmetic says that here",
        "bnb_4bit_use_double_quant": "bitsandbytes: of weights yet to be quantized; others' state says it",
        "untie_embedding_weights": "torchao: of a model that ties them",
        "bnb_4bit_quant_storage": "bitsandbytes: of weights yet to be quantized and of sharded training",
        "load_in_4bit": "transformers: quantizers/auto.py, what is not 8 bits is 4; vLLM: bitsandbytes.py, the same",
        "_load_in_4bit": "transformers: BitsAndBytesConfig, an argument that it does not know: `load_in_4bit` counts",
        "_load_in_8bit": "the same",
        "llm_int8_enable_fp32_cpu_offload": "bitsandbytes: where layers lie",
        "llm_int8_threshold": "bitsandbytes: of 8 bits alone",
        "llm_int8_has_fp16_weight": "bitsandbytes: of 8 bits alone",
    },
    "quantize_config.json": dict.fromkeys(
        ("meta", "quantizer", "damp_percent"), "gptqmodel: how codes were found, and who did"
    ),
    "hf_quant_config.json": dict.fromkeys(("producer", "name", "version"), "ModelOpt: who quantized"),
}
BESIDE = ("quantize_config.json", "hf_quant_config.json")  # SGLang, vLLM, transformers: config.json's own is read
# of quantization_config: what a missing key is taken for, by every server that does not refuse the folder then
DEFAULTS: dict[str, dict[str, Any]] = {
    "ct": {"strategy": "group", "num_bits": 8, "type": "int", "symmetric": True, "dynamic": False},
    "gptq": {"desc_act": False, "sym": True, "lm_head": False, "method": "gptq", "pack_dtype": "int32",
             "checkpoint_format": "gptq", "format": "gptq"},
    "awq": {"bits": 4, "zero_point": True, "version": "gemm", "modules_to_not_convert": ["lm_head"]},
    "fp8": {"activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]},
    "torchao": {"modules_to_not_convert": ["lm_head"], "include_input_output_embeddings": False,
                "untie_embedding_weights": False},
    "bnb": {"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": False, "load_in_8bit": False},
}  # fmt: skip
# A GPTQ layer's g_idx without act-order is what every server makes of a layer that has none: column // group_size.
CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")  # run: one class under two names in transformers 5
FILES = {  # files that no server opens beside safetensors and tokenizer.json
    "README.md", "LICENSE", ".gitattributes", "training_args.bin", "recipe.yaml", "preprocessor_config.json",
    "vocab.json", "merges.txt", "added_tokens.json", "tokenizer.model",
    "params.json",  # vLLM: transformers_utils/config.py, with consolidated.safetensors alone
}  # fmt: skip

# Files that no server loads weights from beside model.safetensors, or with which it stops: a user is to hear of them.
UNUSED = ("original/model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")


def is_neutral(format: str, key: str, place: tuple[str, ...], value: Any) -> bool:
    """Whether an edit, told by its words `key`, is of a key or file that no server reads, or takes out what is meant
    without it too. value: of the key before the edit."""
    if not place:
        return key.removeprefix("file ") in FILES or (format.startswith("gptq") and ".g_idx remove " in key)
    file, *path = place
    if path == ["quantization_config"]:
        # vLLM: transformers_utils/config.py takes hf_quant_config.json then
        return format.startswith("modelopt") and (" remove " in key or " rename " in key or key.endswith(" null"))
    if (file, path) == ("config.json", ["eos_token_id"]):  # generation_config.json has it
        return " remove " in key or " rename " in key or key.endswith(" null")
    if path[-2:] == ["config_groups", "group_0"] and " rename " in key:
        return True  # compressed-tensors: groups may have any names
    if path[-2:] == ["group_0", "format"] and (" remove " in key or key.endswith(" null")):
        return True  # compressed-tensors: a group without one has the whole's
    if format == "awq" and path[-1] == "zero_point" and " negate " in key:
        return True  # every zero point of the sound folder is 8, which a symmetric layer has
    if path == ["tokenizer_class"]:
        return any(f'"{name}"' in key for name in CLASSES)
    if path[:1] == ["quantization_config"]:
        file, path = "quantization_config", path[1:]
    if file == "quantization_config" and path[-1:] == ["version"] and format == "awq":
        return " remove " in key and value == "gemm"
    known = any(part in NEUTRAL.get(file, {}) for part in path)
    if file == "quantization_config":
        removed, renamed = " remove " in key or key.endswith(" null"), " rename " in key
        if any(part in NEUTRAL[file] for part in path[:-1]) or key.endswith(
            ('actorder swap "weight"', "actorder swap static")
        ):
            return True
        default = DEFAULTS.get(format.partition("-")[0].partition("_")[0], {}).get(path[-1]) if path else None
        off = value in (None, {}, [], False)
        if off and (renamed or (not path[-1].endswith("_activations") and key.endswith((" {}", " null")))):
            return True  # nothing is said before and after, or an unknown key without a value: nothing reads it
        return (known and not renamed) or (removed and (value in (None, {}, []) or value == default))
    return known or (file in BESIDE and (" remove " in key or " rename " in key or key.endswith((" null", " {}"))))
