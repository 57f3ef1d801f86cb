"""Every key of a quantization config held against those that are known: read here, or without a say in any weight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qualgate.errors import UsageError, close_names
from qualgate.quant.agreement.gguf_header import check_header_keys
from qualgate.quant.formats import Format

# Keys that decide how weights or inputs are read, and are read.
READ = {
    "gptq": (
        "bits", "group_size", "desc_act", "sym", "checkpoint_format", "format", "is_marlin_format", "dynamic",
        "lm_head", "modules_in_block_to_quantize", "meta", "pack_dtype",
    ),
    "awq": (
        "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "checkpoint_format", "format",
        "modules_to_not_convert", "lm_head", "dynamic", "pack_dtype",
    ),
    "auto-round": (
        "bits", "group_size", "sym", "data_type", "act_bits", "packing_format", "extra_config",
        "block_name_to_quantize", "to_quant_block_names",
    ),
    "compressed-tensors": (
        "config_groups", "format", "ignore", "kv_cache_scheme", "sparsity_config", "transform_config",
    ),
    "fp8": (
        "activation_scheme", "weight_block_size", "modules_to_not_convert", "ignored_layers", "scale_fmt",
        "kv_cache_scheme", "modules_to_convert", "expert_dtype",
        # GPTQModel's notes, none of which another loader reads
        "bits", "format", "checkpoint_format", "group_size", "lm_head", "weight_scale_method", "weight_scale_semantics",
    ),
    "fbgemm_fp8": ("activation_scale_ub", "modules_to_not_convert"),
    "modelopt": (
        "quant_algo", "quantization", "ignore", "exclude_modules", "kv_cache_scheme", "kv_cache_quant_algo",
        "group_size", "config_groups", "has_zero_point", "quantized_layers",
    ),
    "mxfp4": ("modules_to_not_convert",),
    "torchao": (
        "quant_type", "modules_to_not_convert", "include_input_output_embeddings", "untie_embedding_weights",
    ),
    "bitsandbytes": (
        "load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit", "bnb_4bit_quant_type",
        "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant", "llm_int8_skip_modules", "llm_int8_threshold",
        "llm_int8_has_fp16_weight",
    ),
    "gguf": (),
}  # fmt: skip
# Of how weights were made, of files, kernels or training: no server computes another number by them.
BOOKKEEPING = (
    "quant_method", "method", "quantization_status", "global_compression_ratio", "version", "run_compressed",
    "dequantize", "use_optimized_inference", "moe_sparsity_config", "damp_percent", "damp_auto_increment",
    "static_groups", "true_sequential", "model_name_or_path", "model_file_base_name", "act_group_aware", "tokenizer",
    "dataset", "block_name_to_quantize", "module_name_preceding_first_block", "batch_size", "pad_token_id",
    "use_exllama", "disable_exllama", "exllama_config", "use_cuda_fp16", "cache_block_outputs", "model_seqlen",
    "max_input_length", "backend", "mse", "quantizer", "meta", "uri", "producer", "autoround_version", "iters",
    "nsamples", "seqlen", "lr", "minmax_lr", "enable_quanted_input", "enable_minmax_tuning", "data_type",
    "scale_dtype", "gradient_accumulate_steps", "low_gpu_mem_usage", "amp", "packing_format", "do_fuse",
    "fuse_max_seq_len", "modules_to_fuse", "exllama_version", "bnb_4bit_compute_dtype",
    "llm_int8_enable_fp32_cpu_offload", "quant_type_kwargs", "fmt", "offload_to_disk", "offload_to_disk_path",
    "pack_impl", "adapter", "rotation", "hyb_act", "desc_act", "compute_dtype", "observer", "observer_kwargs",
    "zp_dtype", "sym", "is_marlin_format", "pack_dtype", "damp", "awq_gemm_checkpoint", "parallel_packing", "v2",
    "v2_alpha", "v2_memory_device", "gptaq", "gptaq_alpha", "gptaq_memory_device", "foem", "device",
    "mock_quantization", "fail_safe", "failsafe", "fallback", "process", "smoother", "moe", "gc_mode", "vram_strategy",
    "auto_forward_data_parallel", "dense_vram_strategy", "moe_vram_strategy", "hessian", "telemetry",
    "wait_for_submodule_finalizers", "compute_device_filter", "provider", "to_quant_block_names", "quant_block_list",
    "enable_norm_bias_tuning", "super_bits", "super_group_size", "act_bits", "act_group_size", "act_sym",
    "act_dynamic", "act_data_type", "enable_torch_compile", "train_bs", "not_use_best_mse", "dynamic_max_gap",
    "static_kv_dtype", "static_attention_granularity", "static_kv_granularity", "supported_types", "use_layer_wise",
    "include_embedding", "layer_modules", "weight_only",
)  # fmt: skip
# Of one entry of compressed-tensors' config_groups, and of its `weights` and `input_activations`.
_GROUP = ("targets", "weights", "input_activations", "output_activations", "format")
_NUMBERS = (
    "num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "dynamic", "actorder", "scale_dtype",
    "zp_dtype", "observer", "observer_kwargs", "is_mx",
)  # fmt: skip

# What the value of a key must be, where any other would be taken for its default.
_VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("desc_act", "sym", "lm_head", "is_marlin_format", "zero_point", "symmetric", "include_input_output_embeddings",
         "load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant", "llm_int8_has_fp16_weight"), (True, False),
    ),
    "type": ("int", "float"),
    "pack_dtype": ("int32",),
    "dynamic": (True, False, "local", dict),  # of inputs, and GPTQModel's rules
    "actorder": (True, False, "group", "dynamic", "weight", "static"),
    **dict.fromkeys(("checkpoint_format", "format", "version", "activation_scheme", "strategy", "scale_fmt"), (str,)),
    **dict.fromkeys(("sparsity_config", "transform_config", "meta"), (dict,)),
}  # fmt: skip


def check_config_keys(format: Format | None, allowed: Iterable[str] = ()) -> None:
    """Raise UsageError for a key of the quantization config that no reading is known for, unless it is empty or one of
    `allowed`."""
    if format is None:
        return
    if format.method == "gguf":
        check_header_keys(format.where, allowed)
    read_keys = READ[format.method]
    _check(format, format.settings, (*read_keys, *BOOKKEEPING, *allowed), read_keys)
    layouts = [format.settings.get(key) for key in ("checkpoint_format", "format") if format.method == "gptq"]
    if len({*layouts} - {None}) > 1 or layouts == [None, "gptq_v2"]:
        raise UsageError(
            f"{format.where}: checkpoint_format is {layouts[0] or 'missing'}, but format is {layouts[1]}: GPTQModel "
            "reads one of them, vLLM the other, and a missing one means 'gptq'. Set both to the layout of the weights."
        )
    method = format.settings.get("method")
    if isinstance(method, str) and method in READ and method != format.method:
        raise UsageError(
            f"{format.where} says method {method} and quant_method {format.method}: GPTQModel reads the first, other "
            "servers the second. Correct the one that is wrong."
        )
    groups = format.settings.get("config_groups")
    for group in groups.values() if format.method == "compressed-tensors" and isinstance(groups, dict) else ():
        if isinstance(group, dict):
            _check(format, group, (*_GROUP, *allowed), _GROUP)
            for part in (group.get("weights"), group.get("input_activations")):
                _check(format, part if isinstance(part, dict) else {}, (*_NUMBERS, *allowed), _NUMBERS)


def _check(format: Format, settings: dict[str, Any], known_keys: tuple[str, ...], read_keys: tuple[str, ...]) -> None:
    """Raise UsageError for an unknown key of `settings`, unless it is off, and for a value that a read key cannot have.

    known_keys: keys that need no notice; read_keys: those of them whose values count.
    """
    for key, value in settings.items():
        allowed = _VALUES.get(key, ()) if key in read_keys else ()
        if value is not None and allowed and not any(_is(value, choice) for choice in allowed):
            words = " or ".join(choice.__name__ if isinstance(choice, type) else repr(choice) for choice in allowed)
            raise UsageError(f"{format.where}: {key} is {value!s:.60}, expected {words}. Correct it there.")
        near = () if key in known_keys else close_names(key, known_keys)
        is_off = value in (None, "", [], {}) or (value is False and not near)  # misspelt, the right key has its default
        if key in known_keys or is_off:
            continue
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"{format.where}: the quantization config has the key {key!r:.60}, whose effect in {format.method} servers "
            f"is not known here.{hint} If it changes no weight, write `allow_config: [{key:.60}]` beside the model."
        )


def _is(value: Any, allowed: Any) -> bool:
    if isinstance(allowed, type):
        return isinstance(value, allowed)
    return type(value) is type(allowed) and value == allowed


def unused_keys(format: Format) -> tuple[str, ...]:
    """The keys of the config that no reading depends on."""
    return tuple(key for key in format.settings if key not in READ[format.method] and key != "quant_method")


def check_status(format: Format, read_as: str | None) -> None:
    """Raise UsageError where compressed-tensors' `quantization_status` is not "compressed", unless the server that
    `read_as` names never reads it.

    transformers (5.23.0, quantizer_compressed_tensors.py) then expects plain weights, and starts the packed ones anew.
    """
    status = format.settings.get("quantization_status")
    if format.method != "compressed-tensors" or status == "compressed" or read_as in ("vllm", "sglang"):
        return
    status_text = "has no `quantization_status`" if status is None else f"says quantization_status {status!r:.30}"
    raise UsageError(
        f"{format.where} {status_text}: transformers discards quantized weights unless it is 'compressed'; vLLM and "
        'SGLang ignore it. Write `"quantization_status": "compressed"` there, or `read_as: vllm` beside the model.'
    )


def check_quant_type(format: Format) -> None:
    """Raise UsageError where torchao's `quant_type` is not what transformers builds its quantizer from: a config's
    name under `_type`, its values under `_data`."""
    if format.method != "torchao" or not format.settings:  # the headers alone say it: told by the plan
        return
    kind = format.settings.get("quant_type")
    default = kind.get("default") if isinstance(kind, dict) else None
    settings = default if isinstance(default, dict) else {}
    name, complete = settings.get("_type"), isinstance(settings.get("_data"), dict) and "_version" in settings
    if not (isinstance(name, str) and name.endswith("Config") and complete):
        raise UsageError(
            f"{format.where}: quant_type is {kind!s:.80}, expected {{default: {{_type: …Config, _data, _version}}}}, "
            "from which transformers builds torchao's quantizer. Save the model again, or copy it from the original."
        )
