"""A GGUF file's header against the configs and the tokenizer beside it.

llama.cpp serves by the header alone. This engine builds the model from config.json and reads with tokenizer.json, so
whatever has a counterpart there must say the same. Defaults are llama.cpp's (master, commit 00ad355: `load_hparams` of
src/llama-model.cpp, `load` of src/llama-vocab.cpp).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qualgate.errors import UsageError
from qualgate.quant.agreement import stop_tokens
from qualgate.quant.agreement.gguf_tokens import Contradiction, tokenizer_differences
from qualgate.quant.gguf_file import GGUFFile, open_gguf
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.shards import Shards
from qualgate.records.arms import ReadAs
from qualgate.text.numbers import counted

_ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3")  # named alike in both; llama has other model types, too
_MOST_SHOWN = 4
_WIDEST = 2**16  # numbers of a head
_CONFIG = "config.json"
_SAMPLING = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty",
}  # fmt: skip


def checked_header(files: ModelFiles, shards: Shards, server: ReadAs | None) -> dict[str, Any] | None:
    """Return the fields of the folder's GGUF file; None if it has no tokens, so that llama.cpp makes none from it.

    Raises UsageError where a field differs from the files beside it. Stop tokens may differ where `server`, the arm's
    `read_as`, is llama.cpp: then those of the header count.
    """
    file = open_gguf(shards.files[0])
    differences = [
        difference
        for difference in _differences(files, file)
        if server != "llama.cpp" or not difference.judged_by_header
    ]
    if differences:
        more = f" and {len(differences) - _MOST_SHOWN} more" if len(differences) > _MOST_SHOWN else ""
        listed = "; ".join(
            f"{difference.key} is {difference.header} in the header and {difference.beside} in {difference.file}"
            for difference in differences[:_MOST_SHOWN]
        )
        way_on = (
            "say `read_as: llama.cpp`, and answers end as the header says"
            if all(difference.judged_by_header for difference in differences)
            else "convert the model again"
        )
        raise UsageError(
            f"{file.path} contradicts the files beside it in {counted(len(differences), 'place')}: {listed}{more}. "
            "llama.cpp reads the header, but qualgate reads the files beside it, so it would judge what no server "
            f"serves. Replace them with the files of the model that this one was converted from, or {way_on}."
        )
    return file.fields if file.array("tokenizer.ggml.tokens") else None


def _differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Yield each field of the header that contradicts config.json, generation_config.json or the tokenizer's files."""
    kind = files.config.get("model_type")
    if kind != file.architecture and kind in _ARCHITECTURES and file.architecture in _ARCHITECTURES:
        yield Contradiction("general.architecture", file.architecture, f"model_type {kind}", _CONFIG)
    header, config = _Header(file), _Config(files)
    for counterpart in _COUNTERPARTS:
        header_value = header.get(counterpart.key)
        if header_value is None and counterpart.default is not None:
            header_value = counterpart.default(header)
        config_value = counterpart.read(config) if header_value is not None else None
        if header_value is not None and config_value is not None and not _same(header_value, config_value):
            yield Contradiction(f"{file.architecture}.{counterpart.key}", header_value, config_value, _CONFIG)
    yield from _rope_differences(header, config)
    for key, name in _SAMPLING.items():
        header_value, config_value = (
            file.fields.get(f"general.sampling.{key}"),
            files.json("generation_config.json").get(name),
        )
        if header_value is not None and config_value is not None and not _same(header_value, config_value):
            yield Contradiction(f"general.sampling.{key}", header_value, config_value, "generation_config.json")
    if file.array("tokenizer.ggml.tokens"):
        yield from tokenizer_differences(files, file)
        header_value = stop_tokens.readings(files, file.fields)["llama.cpp"]
        config_value = stop_tokens.readings(files)["llama.cpp"]
        if header_value != config_value:
            texts = [" and ".join(map(str, ids)) or "none" for ids in (header_value, config_value)]
            key, files_named = "the set of stop tokens (eos, eot, eom)", "the tokenizer's files"
            yield Contradiction(key, texts[0], texts[1], files_named, judged_by_header=True)
            return
        eos, known = file.fields.get("tokenizer.ggml.eos_token_id"), stop_tokens.stop_ids(files)
        if eos is not None and known and eos not in known:  # llama.cpp's templates write it
            texts = " or ".join(map(str, known))
            yield Contradiction("tokenizer.ggml.eos_token_id", eos, texts, "the folder's files", judged_by_header=True)


class _Header:
    """Keys of the file's architecture."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file

    def get(self, key: str) -> Any:
        """Return a field; of a list the number that all layers share, else the list. None where it is not there."""
        name = f"{self.file.architecture}.{key}"
        numbers = self.file.array(name)
        if numbers is not None:
            return numbers[0] if numbers and len(set(numbers)) == 1 else numbers
        return self.file.fields.get(name)

    def head_width(self) -> int | None:
        """llama.cpp's where no key names it."""
        width, heads = self.get("embedding_length"), self.get("attention.head_count")
        return width // heads if type(width) is int and type(heads) is int and heads > 0 else None

    def factors(self, name: str) -> list[float] | None:
        """A tensor of float32 numbers, None where it is not there."""
        tensor = self.file.tensors.get(f"{name}.weight")
        return np.frombuffer(tensor.data.tobytes(), np.float32).tolist() if tensor and tensor.type == "F32" else None


class _Config:
    """config.json, with the defaults of the architecture."""

    def __init__(self, files: ModelFiles) -> None:
        self._settings: dict[str, Any] = files.config.get("text_config") or files.config
        self._kind = str(files.config.get("model_type"))

    def get(self, *names: str) -> Any:
        """Return the first of `names` that is set, else transformers' default of the first; None without a default."""
        for name in names:
            if self._settings.get(name) is not None:
                return self._settings[name]
        from transformers import CONFIG_MAPPING

        config = CONFIG_MAPPING[self._kind]() if self._kind in CONFIG_MAPPING else None
        return getattr(config, names[0], None)

    def stated(self, *names: str) -> Any:
        """The same without defaults."""
        return next((self._settings[name] for name in names if self._settings.get(name) is not None), None)

    def head_width(self) -> int | None:
        """Numbers of one head."""
        width, heads, stated = self.get("hidden_size"), self.get("num_attention_heads"), self.stated("head_dim")
        if stated is not None:
            return stated
        return width // heads if type(width) is int and type(heads) is int and heads > 0 else None

    @property
    def rope(self) -> dict[str, Any]:
        """The rope settings, scaling included."""
        settings = self.stated("rope_parameters", "rope_scaling")
        return settings if isinstance(settings, dict) else {}

    @property
    def rope_kind(self) -> str:
        """Kind of rope scaling; "none" if llama.cpp's converter writes none."""
        kind = str(self.rope.get("rope_type", self.rope.get("type", "default")))
        return {"default": "none", "dynamic": "none", "su": "longrope"}.get(kind, kind)

    def rotated(self) -> int | None:
        """Numbers of a head that positions turn."""
        width, share = self.head_width(), self.rope.get("partial_rotary_factor", self.stated("partial_rotary_factor"))
        return int(width * share) if type(width) is int and isinstance(share, float) else width

    def base(self) -> Any:
        """Base of the rope frequencies."""
        return self.rope.get("rope_theta", self.stated("rope_theta")) or 10000.0

    def original_context(self) -> Any:
        """Tokens that the model was first made for."""
        length = self.rope.get("original_max_position_embeddings", self.stated("original_max_position_embeddings"))
        return length or self.get("max_position_embeddings")


@dataclass(frozen=True, slots=True)
class _Counterpart:
    key: str  # behind the architecture's name
    read: Callable[[_Config], Any]
    default: Callable[[_Header], Any] | None = None  # llama.cpp's; None: it refuses the file, or asks nothing of it


def _experts(config: _Config) -> Any:
    return config.stated("num_local_experts", "num_experts", "n_routed_experts") or 0


def _window(config: _Config) -> Any:
    return 0 if config.stated("use_sliding_window") is False else config.stated("sliding_window") or 0


_COUNTERPARTS = (
    _Counterpart("attention.causal", lambda config: config.stated("is_causal") is not False, lambda header: True),
    _Counterpart("context_length", lambda config: config.get("max_position_embeddings")),
    _Counterpart("embedding_length", lambda config: config.get("hidden_size")),
    _Counterpart("block_count", lambda config: config.get("num_hidden_layers")),
    _Counterpart("feed_forward_length", lambda config: config.get("intermediate_size")),
    _Counterpart("attention.head_count", lambda config: config.get("num_attention_heads")),
    _Counterpart(
        "attention.head_count_kv",
        lambda config: config.stated("num_key_value_heads") or config.get("num_attention_heads"),
        lambda header: header.get("attention.head_count"),
    ),
    _Counterpart("attention.key_length", _Config.head_width, _Header.head_width),
    _Counterpart("attention.value_length", _Config.head_width, _Header.head_width),
    _Counterpart(
        "rope.dimension_count",
        _Config.rotated,
        lambda header: header.get("attention.key_length") or header.head_width(),
    ),
    _Counterpart("rope.freq_base", _Config.base, lambda header: 10000.0),
    _Counterpart("attention.layer_norm_rms_epsilon", lambda config: config.get("rms_norm_eps")),
    _Counterpart("vocab_size", lambda config: config.get("vocab_size")),
    _Counterpart("attention.sliding_window", _window),
    _Counterpart("expert_count", _experts, lambda header: 0),
    _Counterpart(
        "expert_used_count",
        lambda config: config.get("num_experts_per_tok") if _experts(config) else 0,
        lambda header: 0,
    ),
    _Counterpart("rope.scaling.yarn_beta_fast", lambda config: config.rope.get("beta_fast") or 32.0),
    _Counterpart("rope.scaling.yarn_beta_slow", lambda config: config.rope.get("beta_slow") or 1.0),
    _Counterpart("rope.scaling.yarn_ext_factor", lambda config: 1.0 if config.rope_kind == "yarn" else 0.0),
)
# Further keys of a header that are compared, here or in gguf_tokens.py, or that llama.cpp computes nothing by.
_KNOWN_KEYS = re.compile(
    r"ARCHITECTURE\.(rope\.scaling\.(type|factor|attn_factor|original_context_length|finetuned)|rope\.scale_linear|"
    r"tensor_data_layout)|tokenizer\.(chat_template(s|\..*)?|huggingface\.json|ggml\.(model|pre|tokens|token_type|"
    r"token_type_count|merges|scores|add_(bos|eos)_token|add_space_prefix|remove_extra_whitespaces|\w+_token_id))|"
    r"split\.(no|count|tensors\.count)"  # `open_gguf` checks these
)
_KNOWN_VALUES = {"general.type": ("model",)}
_READ_BY_LLAMA_CPP = ("ARCHITECTURE", "tokenizer", "split", "adapter")  # what keys that it computes by start with


def check_header_keys(path: Path, allowed: Iterable[str]) -> None:
    """Raise UsageError for a key of a GGUF file's header that no meaning is known for, unless it is off (0, false,
    empty) or one of `allowed`."""
    file = open_gguf(path)
    compared = {f"ARCHITECTURE.{counterpart.key}" for counterpart in _COUNTERPARTS}
    for key in (*file.fields, *file.arrays):
        name = key.replace(f"{file.architecture}.", "ARCHITECTURE.", 1) if key.startswith(file.architecture) else key
        value = file.fields.get(key, "a list")
        known = value in _KNOWN_VALUES[name] if name in _KNOWN_VALUES else (
            name.partition(".")[0] not in _READ_BY_LLAMA_CPP or name in compared or _KNOWN_KEYS.fullmatch(name)
        )  # fmt: skip
        if value and not known and key not in allowed:
            raise UsageError(
                f"{path}: the header has the key {key!r:.60} ({value!s:.40}), whose effect in llama.cpp is not known "
                f"here. If it changes no answer, write `allow_config: [{key:.60}]` beside the model; else convert the "
                "model again."
            )


def _rope_differences(header: _Header, config: _Config) -> Iterator[Contradiction]:
    """Yield differences in how positions are scaled: the kind of scaling, its attention factor, its factors by
    frequency."""
    header_scaling, config_scaling = _scaling_of_header(header), _scaling_of_config(config)
    if header_scaling != config_scaling:
        yield Contradiction("rope.scaling", header_scaling, config_scaling, _CONFIG)
    factor = header.get("rope.scaling.attn_factor")
    expected = _attention_factor(config)
    if not _same(1.0 if factor is None else factor, expected, 1e-5):
        yield Contradiction("rope.scaling.attn_factor", factor, expected, _CONFIG)
    for name, expected_factors in _wanted_factors(config).items():
        factors = header.factors(name)
        if (factors is not None or expected_factors is not None) and not _alike(factors, expected_factors):
            texts = ["no tensor" if values is None else str(values[-3:]) for values in (factors, expected_factors)]
            yield Contradiction(f"{name}.weight", texts[0], f"{texts[1]:.60}", f"rope_scaling of {_CONFIG}")


def _scaling_of_header(header: _Header) -> str:
    kind = header.get("rope.scaling.type") or "linear"
    factor = header.get("rope.scaling.factor") or header.get("rope.scale_linear") or 1.0
    if kind in ("none", "longrope") or (kind == "linear" and factor == 1):
        return "none"
    original = header.get("rope.scaling.original_context_length") or header.get("context_length")
    return _scaling(str(kind), factor, original)


def _scaling_of_config(config: _Config) -> str:
    kind = config.rope_kind
    if kind in ("none", "llama3", "longrope") or (kind == "linear" and config.rope.get("factor") == 1):
        return "none"
    return _scaling(kind, config.rope.get("factor"), config.original_context())


def _scaling(kind: str, factor: Any, original: Any) -> str:
    exact = _single(factor) if isinstance(factor, int | float) else factor
    return f"{kind} by {exact}" + (f" from {original} tokens" if kind == "yarn" else "")


def _attention_factor(config: _Config) -> float:
    """Return the factor by which llama.cpp multiplies attention beyond the one that it derives itself; 1.0 for none."""
    rope, longest, original = config.rope, config.get("max_position_embeddings"), config.original_context()
    stated, factor = rope.get("attention_factor"), rope.get("factor")
    if (
        config.rope_kind == "yarn"
        and isinstance(stated, int | float)
        and isinstance(factor, int | float)
        and factor > 1
    ):
        return stated / (0.1 * math.log(factor) + 1)
    if config.rope_kind != "longrope":
        return 1.0
    if isinstance(stated, int | float):
        return float(stated)
    derivable = type(longest) is int and type(original) is int and longest > original > 1
    return math.sqrt(1 + math.log(longest / original) / math.log(original)) if derivable else 1.0


def _wanted_factors(config: _Config) -> dict[str, list[float] | None]:
    """Return, by tensor, what each frequency is divided by; None for a tensor that should not be there."""
    rope, kind = config.rope, config.rope_kind
    sets = {name: rope.get(f"{name}_factor") if kind == "longrope" else None for name in ("long", "short")}
    by_tensor = {
        f"rope_factors_{name}": factors if isinstance(factors, list) else None for name, factors in sets.items()
    }
    return {"rope_freqs": _llama3_factors(config) if kind == "llama3" else None, **by_tensor}


def _llama3_factors(config: _Config) -> list[float] | None:
    """Return transformers' factors, as in modeling_rope_utils.py: _compute_llama3_parameters."""
    names = ("factor", "low_freq_factor", "high_freq_factor")
    width, numbers = config.rotated(), [*map(config.rope.get, names), config.base(), config.original_context()]
    if not all(isinstance(number, int | float) and 0 < _single(number) < math.inf for number in numbers):
        return None
    if width is None or width > _WIDEST:
        return None
    factor, low, high, base, original = map(float, numbers)  # pyrefly: ignore[bad-argument-type]
    waves = 2 * np.pi * base ** (np.arange(0, width, 2) / width)
    smooth = np.clip((original / waves - low) / (high - low), 0, 1) if high != low else (waves < original / low) * 1.0
    return (1 / ((1 - smooth) / factor + smooth)).tolist()


def _same(header_value: Any, config_value: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values agree: numbers as float32, within a relative `tolerance`; others exactly."""
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (header_value, config_value)
    ):
        return header_value == config_value
    return math.isclose(_single(header_value), _single(config_value), rel_tol=tolerance)


def _single(number: float) -> float:
    """Round a number to float32."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.inf


def _alike(factors: list[float] | None, expected_factors: list[Any] | None) -> bool:
    """Return whether two lists of factors agree to 1e-4; None stands for factors of 1."""
    actual, right = (
        (factors if factors is not None else [1.0] * len(expected_factors or ())),
        expected_factors or [1.0] * len(factors or ()),
    )
    if not all(isinstance(factor, int | float) for factor in right) or len(actual) != len(right):
        return False
    return all(
        math.isclose(factor, _single(expected), rel_tol=1e-4) for factor, expected in zip(actual, right, strict=True)
    )
