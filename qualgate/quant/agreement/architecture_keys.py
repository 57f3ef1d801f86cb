"""A variant's architecture against its baseline's, key by key, as transformers' own config class reads both.

No quantizer changes a rope base, a norm's epsilon or a number of heads, and short cases cannot show what a changed one
does to long ones. So what differs is refused, unless the arm says that it is meant. Keys are compared by what they
mean: after the class's defaults, numbers as float32 holds them, switches left out that are off where no key says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from qualgate.errors import UsageError, one_line
from qualgate.quant.agreement.rope import as_float32, settings_by_layer, shown
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.tokenizer_files import known_tokens

# What says nothing of a forward pass: notes, training, outputs, and what other checks compare by the tensors, the
# tokenizer or generation_config.json.
_NO_PART = re.compile(
    r"_(name_or_path|commit_hash|from_model_config|flash_attn_2_enabled|(attn|experts)_implementation\w*)$"
    r"|unsloth_(fixed|version)$|transformers(_version|\.js_config)$|(torch_)?dtype$|(quantization|compression)_config$"
    r"|quantization$|use_cache$|use_bfloat16$|return_dict$|is_llama_config$|(cache|attn|experts)_implementation$"
    r"|output_(hidden_states|attentions|scores|logits|router_logits|past)$|initializer_(range|factor|cutoff_factor)$"
    r"|id2label$|label2id$|problem_type$|num_labels$|gradient_checkpointing(_kwargs)?$|pretraining_tp$"
    r"|finetuning_task$|tokenizer_class$|(name_or_path|model_name|base_model)$|auto_map$|torchscript$"
    r"|(bos|eos|pad|sep|unk|decoder_start)_token_id$|tie_word_embeddings$|is_(encoder_)?decoder$"
    r"|chunk_size_feed_forward$|pruned_heads$|tf_legacy_loss$|num_nextn_predict_layers$"
    r"|mtp_(num(_hidden)?_layers|use_dedicated_embeddings|loss_scaling_factor)$"
    r"|(vision|audio|speech|video|text)_config$|architectures$|.*(_loss_coef|dropout|_pdrop|_token_index)$"
    r"|(max|min)_(length|new_tokens)$|do_sample$|early_stopping$|num_beams$|num_beam_groups$|num_return_sequences$"
    r"|temperature$|top_[kp]$|typical_p$|(repetition|length|diversity)_penalty$|.*no_repeat_ngram_size$"
    r"|bad_words_ids$|remove_invalid_values$|(suppress|begin_suppress)_tokens$|forced_((bos|eos)_token_id|decoder_ids)$"
    r"|exponential_decay_length_penalty$|prefix$|task_specific_params$"
)
_ON_BY_DEFAULT = ("is_causal",)  # keys of no class, which transformers and vLLM take for true where they are absent
_SAME = {"swish": "silu"}  # two names of one activation
_OF_WINDOWS = ("sliding_window", "use_sliding_window", "max_window_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key; "nothing" where a config does not have it."""

    key: str  # "rms_norm_eps", "rope_parameters.rope_theta"
    ours: str
    theirs: str  # the baseline's

    @property
    def said(self) -> str:
        """Text for people: "rms_norm_eps 1e-05 against 1e-06"."""
        return f"{self.key} {self.ours} against {self.theirs}"

    def named_in(self, keys: Iterable[str]) -> bool:
        """Whether one of them is its key, or the last part of it."""
        return bool({self.key, self.key.rpartition(".")[2]} & set(keys))


def architecture_differences(variant: ModelFolder, baseline: ModelFolder) -> tuple[Difference, ...]:
    """Return the differing keys in order. Raises UsageError for a config that transformers cannot read."""
    if _said(variant.files.config) == _said(baseline.files.config):
        return ()
    variant_config, baseline_config = (_meaning(folder.files) for folder in (variant, baseline))
    size = max(known_tokens(folder.files) for folder in (variant, baseline))
    if size and all(config.get("vocab_size", 0) >= size for config in (variant_config, baseline_config)):
        variant_config["vocab_size"] = baseline_config["vocab_size"] = (
            size  # rows beyond are padding, which no token reaches
        )
    return tuple(
        Difference(key=key, ours=shown(variant_config.get(key)), theirs=shown(baseline_config.get(key)))
        for key in sorted(variant_config.keys() | baseline_config.keys())
        if variant_config.get(key) != baseline_config.get(key)
    )


def _said(config: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a config's text that can affect a forward pass."""
    relevant = {key: value for key, value in config.items() if not _NO_PART.match(key)}
    return {**relevant, "text_config": config.get("text_config"), "architectures": config.get("architectures")}


def _meaning(files: ModelFiles) -> dict[str, Any]:
    """Return every key that affects a forward pass, normalized; keys that are off are left out."""
    from transformers import CONFIG_MAPPING

    try:
        full_config = CONFIG_MAPPING[str(files.config.get("model_type"))].from_dict(dict(files.config))
        text = full_config.get_text_config(decoder=True)
        config, default = text.to_dict(), type(text)().to_dict()
    except Exception as error:  # whatever a config can make a class's constructor do
        raise UsageError(f"{files.path / 'config.json'}: transformers cannot read it: {one_line(error)}") from error
    rope = config.pop("rope_parameters", None) or {}
    meaning = {key: as_float32(value) for key, value in config.items() if not _NO_PART.match(key)}
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    if type(heads) is int and heads > 0 and type(width) is int:
        meaning["head_dim"] = config.get("head_dim") or width // heads
        meaning["num_key_value_heads"] = config.get("num_key_value_heads") or heads
    for key in _without_part(config, default):
        meaning.pop(key, None)
    if isinstance(meaning.get("hidden_act"), str):
        meaning["hidden_act"] = _SAME.get(meaning["hidden_act"], meaning["hidden_act"])
    meaning |= {f"rope_parameters.{key}": value for key, value in settings_by_layer(rope, config).items()}
    meaning.pop("partial_rotary_factor", None)  # which is among them now
    nested = files.config.get("text_config")
    for prefix, source in (("", files.config), ("text_config.", nested if isinstance(nested, dict) else {})):
        named = source.get("architectures")  # in its order: vLLM takes the first that it knows
        meaning[f"{prefix}architectures"] = ", ".join(map(str, named)) if isinstance(named, list) and named else named
    return {key: value for key, value in meaning.items() if not _says_nothing(key, value, default)}


def _without_part(config: dict[str, Any], default: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of `config` that its class, with the values `default`, does not read beside its other keys."""
    layer_types = config.get("layer_types")
    layer_types = list(layer_types) if isinstance(layer_types, list | tuple) else []
    if all(layer_type == "full_attention" for layer_type in layer_types):
        yield "layer_types"
        windows_off = config.get("use_sliding_window") is False and "use_sliding_window" in default
        yield from _OF_WINDOWS if windows_off or (layer_types and "layer_types" in default) else ()
    for key in ("sliding_window_pattern", "_sliding_window_pattern") if "layer_types" in default else ():
        pattern = config.get(key)
        if pattern == default.get(key) or layer_types == _by_pattern(pattern, len(layer_types)):
            yield key
    if "hidden_act" not in default and default.get("hidden_activation") and config.get("hidden_activation"):
        yield "hidden_act"


def _by_pattern(every: Any, layers: int) -> list[str]:
    """Return the kinds of layers of which each `every`-th sees the whole text."""
    if type(every) is not int or every < 1:
        return []
    return ["sliding_attention" if layer % every else "full_attention" for layer in range(1, layers + 1)]


def _says_nothing(key: str, value: Any, default: dict[str, Any]) -> bool:
    """Return whether a key of this value, and none at all, are the same to a class with the values `default`."""
    if key in _ON_BY_DEFAULT and key not in default:
        return value is None or value is True
    return _is_off(value) and _is_off(default.get(key))


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ([], {})
