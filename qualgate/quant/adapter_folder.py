"""A LoRA adapter's folder as PEFT saves it: `adapter_config.json` says what its tensors mean. Needs no torch.

What would change answers in a way that this version does not compute is refused by name, and so is a setting that it
does not know: an adapter read by half would be another model.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import pip_install
from qualgate.errors.misplaced import no_model_folder
from qualgate.quant.full_precision import FLOATS
from qualgate.quant.model_files import read_files, readable
from qualgate.quant.shards import TensorEntry, read_header
from qualgate.records.identity import content_hash
from qualgate.text.numbers import counted

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # before each module's name in PEFT's files
MERGE = "Merge it with PEFT (`merge_and_unload`), save that model, and name its folder as `model`."
_MOST_ALPHA = 1e9
_AGAIN = "Save this adapter again with PEFT's save_pretrained."
_READ = (
    "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "fan_in_fan_out", "bias", "peft_type", "task_type", "init_lora_weights",
    "base_model_name_or_path",
)  # fmt: skip
# Of training, of loading, or options of what `_REFUSED` turns off.
_WITHOUT_A_SAY = (
    "auto_mapping", "corda_config", "eva_config", "inference_mode", "loftq_config", "lora_dropout", "megatron_core",
    "peft_version", "qalora_group_size", "revision", "runtime_config",
)  # fmt: skip
_REFUSED = {
    "use_dora": "DoRA (`use_dora`)",
    "use_qalora": "QALoRA (`use_qalora`)",
    "modules_to_save": "whole modules beside the adapter (`modules_to_save`), which servers refuse as well",
    "trainable_token_indices": "trained tokens (`trainable_token_indices`)",
    "target_parameters": "adapted parameters of experts (`target_parameters`)",
    "layer_replication": "layers that stand several times (`layer_replication`)",
    "lora_bias": "a bias of the adapter (`lora_bias`)",
    "alora_invocation_tokens": "an adapter that acts from some tokens on (`alora_invocation_tokens`)",
    "megatron_config": "Megatron's parallel layers (`megatron_config`)",
}
_PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva")  # of `init_lora_weights`: the base stays what it was


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLayer:
    """One linear layer's part: y = W x + scale · up (down x). down: [rank, in_features], up: [out_features, rank]."""

    module: str  # as the architecture calls it
    rank: int
    scale: float
    down: TensorEntry
    up: TensorEntry


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: what is worked out of the files is kept
class AdapterFolder:
    """An adapter as it was when it was read. base: `base_model_name_or_path`, "" where it is not said; sha256: over
    both files."""

    path: Path
    config: Mapping[str, Any]
    layers: tuple[AdapterLayer, ...]  # by name
    base: str
    tensors_sha256: str
    sha256: str
    nbytes: int  # of its weight file

    @property
    def numbers(self) -> int:
        """That its tensors hold."""
        return sum(math.prod(entry.shape) for layer in self.layers for entry in (layer.down, layer.up))

    @cached_property
    def targets(self) -> Targets:
        """Which layers of a model it is made for."""
        return Targets(self.path / CONFIG, self.config)


def read_adapter_folder(path: Path) -> AdapterFolder:
    """Return the adapter in a folder. UsageError where there is none, or one that contradicts itself; NotInThisVersion
    for what PEFT knows and this version does not compute."""
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        files, tensors = read_files(path, (CONFIG,)), path / TENSORS
        if not files.has(CONFIG):
            raise UsageError(f"{path} holds no LoRA adapter: expected {CONFIG} and {TENSORS}, as PEFT saves them.")
        config = files.json(CONFIG)
        _check_config(path / CONFIG, config)
        if not tensors.is_file():
            raise UsageError(_no_tensors(path))
        entries = read_header(tensors)
        with tensors.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        nbytes = tensors.stat().st_size
        layers = tuple(_layers(path, config, entries))
        _check_changes(path, layers)
    base = config.get("base_model_name_or_path")
    return AdapterFolder(
        path=path,
        config=config,
        layers=layers,
        base=base if isinstance(base, str) else "",
        tensors_sha256=digest,
        sha256=content_hash([files.sha256(CONFIG), digest]),
        nbytes=nbytes,
    )


class Targets:
    """Which layers a config adapts, as PEFT chooses them: names or their ends, a pattern of the whole name, or
    "all-linear"; without those excluded, and only of the layers that `layers_to_transform` lists."""

    def __init__(self, where: Path, config: Mapping[str, Any]) -> None:
        """Read which modules a PEFT config names. UsageError for values of another kind. where: the file, for
        messages."""
        self._where = where
        self._wanted = self._names(config.get("target_modules") or None, "target_modules")
        self._without = self._names(config.get("exclude_modules") or [], "exclude_modules")
        numbers, pattern = config.get("layers_to_transform"), config.get("layers_pattern") or []
        self._numbers = [numbers] if type(numbers) is int else numbers
        self._lists = [pattern] if isinstance(pattern, str) else pattern
        if self._numbers is not None and not _all_of(int, self._numbers):
            raise UsageError(f"{where}: `layers_to_transform` must list layer numbers, not {numbers!r:.80}. {_AGAIN}")
        if not _all_of(str, self._lists):
            raise UsageError(f"{where}: `layers_pattern` must name lists of layers, not {pattern!r:.80}. {_AGAIN}")

    def __contains__(self, module: str) -> bool:
        """module: the name of a linear layer other than the output head."""
        if self._without and self._matches(self._without, module):
            return False
        return (self._wanted == "all-linear" or self._matches(self._wanted, module)) and self._numbered(module)

    def _names(self, value: Any, key: str) -> str | list[str]:
        if (isinstance(value, str) and value) or _all_of(str, value):
            return value
        raise UsageError(
            f"{self._where}: `{key}` must be a list of module names or a pattern, not {value!r:.80}. {_AGAIN}"
        )

    def _matches(self, targets: str | list[str], module: str) -> bool:
        if isinstance(targets, str):
            return bool(_pattern(self._where, targets).fullmatch(module))
        return any(module == name or module.endswith(f".{name}") for name in targets)

    def _numbered(self, module: str) -> bool:
        """Return whether `layers_to_transform` names the layer that the module is in; True if the config names no
        layers.

        The last number in the module's name counts, if it stands in one of the lists of `layers_pattern`.
        """
        if self._numbers is None:
            return True
        parts = module.split(".")
        numbers = [
            int(part)
            for before, part in pairwise(parts[:-1])
            if part.isdecimal() and (not self._lists or before in self._lists)
        ]
        return bool(numbers) and numbers[-1] in self._numbers


def _check_config(where: Path, config: Mapping[str, Any]) -> None:
    """Refuse a PEFT config of another kind of adapter, with unknown keys, or of a start that changes the base's
    weights."""
    if config.get("peft_type") != "LORA":
        raise NotInThisVersion(f"{where}: the adapter kind {config.get('peft_type')!r:.40} is not read, only LoRA.")
    if config.get("task_type") not in (None, "CAUSAL_LM"):
        raise UsageError(f"{where}: the adapter is for {config['task_type']!r:.40}, not for writing text (CAUSAL_LM).")
    for key, value in config.items():
        if key in _REFUSED and value not in (None, False, [], {}):
            raise NotInThisVersion(f"{where}: {_REFUSED[key]} is not in this version. {MERGE}")
        if key not in (*_READ, *_WITHOUT_A_SAY, *_REFUSED) and value not in (None, False, [], {}, ""):
            raise NotInThisVersion(f"{where}: this version does not know what `{key:.60}` means. {MERGE}")
    if config.get("bias", "none") != "none":
        raise NotInThisVersion(f"{where}: biases that were trained with the adapter (`bias`) are not read. {MERGE}")
    start = config.get("init_lora_weights", True)
    if not any(start is plain if isinstance(plain, bool) else start == plain for plain in _PLAIN_STARTS):
        raise NotInThisVersion(
            f"{where}: `init_lora_weights: {start!s:.40}` changes the base's weights too, so the adapter does not fit "
            "the base model as it is. Save it as a plain LoRA (PEFT: path_initial_model_for_weight_conversion)."
        )
    for key in ("use_rslora", "fan_in_fan_out"):
        if type(config.get(key, False)) is not bool:
            raise UsageError(f"{where}: `{key}` is true or false, not {config[key]!r:.40}. {_AGAIN}")


def _no_tensors(path: Path) -> str:
    if (path / "adapter_model.bin").is_file():
        return (
            f"{path} holds only pickled tensors (adapter_model.bin). Loading a pickle can run any code, so qualgate "
            f"refuses it. {_AGAIN}"
        )
    return f"{path} has no {TENSORS}: its weights are missing. {_AGAIN}"


def _layers(path: Path, config: Mapping[str, Any], entries: Mapping[str, TensorEntry]) -> Iterator[AdapterLayer]:
    """Yield the adapter's layers, sorted by module. Raises for tensors that are not matrices A and B of linear
    layers."""
    parts: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in entries.items():
        match = re.fullmatch(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])\.weight", name)
        if ".lora_embedding_" in name:
            raise NotInThisVersion(f"{path}: {name} adapts an embedding, which is not in this version. {MERGE}")
        if match is None:
            raise UsageError(
                f"{path / TENSORS}: the tensor {name} does not belong to a LoRA of linear layers "
                f"({PREFIX}MODULE.lora_A.weight and .lora_B.weight). {MERGE}"
            )
        if entry.dtype not in FLOATS or len(entry.shape) != 2:
            raise UsageError(
                f"{path / TENSORS}: {name} is {entry.dtype} {list(entry.shape)}, expected a matrix of floats."
            )
        parts.setdefault(match[1], {})[match[2]] = entry
    if not parts:
        raise UsageError(f"{path / TENSORS} holds no tensor: this adapter changes nothing. {_AGAIN}")
    for module, matrices in sorted(parts.items()):
        yield _layer(path, config, module, matrices)


def _check_changes(path: Path, layers: Iterable[AdapterLayer]) -> None:
    """Raise UsageError for an adapter whose B is 0 everywhere: what it adds is 0, as before its training."""
    with (path / TENSORS).open("rb") as stream:
        for layer in layers:
            stream.seek(layer.up.start)
            if stream.read(layer.up.nbytes).translate(None, b"\0\x80"):  # a zero may have a sign
                return
    raise UsageError(
        f"{path / TENSORS}: every lora_B is 0, so this adapter changes nothing. It was saved before its training, "
        f"or its trained tensors were lost. {_AGAIN}"
    )


def _layer(path: Path, config: Mapping[str, Any], module: str, matrices: Mapping[str, TensorEntry]) -> AdapterLayer:
    """Return one layer of the adapter. UsageError if a matrix is missing, or if rank, alpha and shapes do not agree."""
    if missing := {"A", "B"} - matrices.keys():
        raise UsageError(f"{path / TENSORS} lacks {PREFIX}{module}.lora_{min(missing)}.weight. {_AGAIN}")
    rank = _of_pattern(path, config, "rank_pattern", module, config.get("r"))
    alpha = _of_pattern(path, config, "alpha_pattern", module, config.get("lora_alpha"))
    if type(rank) is not int or rank < 1:
        raise UsageError(
            f"{path / CONFIG}: the rank of {module} is {rank!r:.40}, expected a whole number from 1. {_AGAIN}"
        )
    if type(alpha) not in (int, float) or not 0 < abs(alpha) < _MOST_ALPHA:
        raise UsageError(
            f"{path / CONFIG}: lora_alpha of {module} is {alpha!r:.40}, expected a number other than 0. {_AGAIN}"
        )
    down, up = matrices["A"], matrices["B"]
    if (down.shape[0], up.shape[1]) != (rank, rank):
        raise UsageError(
            f"{path}: {CONFIG} says that {module} has rank {rank}, but its tensors are {list(down.shape)} and "
            f"{list(up.shape)}: they belong to different adapters. {_AGAIN}"
        )
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return AdapterLayer(module=module, rank=rank, scale=scale, down=down, up=up)


def _of_pattern(path: Path, config: Mapping[str, Any], key: str, module: str, otherwise: Any) -> Any:
    """Return the value of the first pattern that matches the end of a module's name, as PEFT takes it; else
    `otherwise`."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        raise UsageError(f"{path / CONFIG}: `{key}` must be a mapping of modules, not {patterns!r:.40}. {_AGAIN}")
    for pattern, value in patterns.items():
        if _pattern(path / CONFIG, rf"(.*\.)?({pattern})").fullmatch(module):
            return value
    return otherwise


def _pattern(where: Path, pattern: str) -> Any:
    """Compile a pattern with RE2, which is linear in any text: the pattern may come from a stranger."""
    try:
        import re2
    except ImportError:  # on bare GPU machines
        raise UsageError(f"{where}: pattern {pattern!r:.120} needs google-re2: {pip_install('google-re2')}") from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise UsageError(
            f"{where}: the pattern {pattern!r:.120} cannot be read ({error!s:.80}). Write the module names as a list."
        ) from None


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def some(names: Iterable[str]) -> str:
    """How many modules, and the first of them."""
    ordered = sorted(names)
    return f"{counted(len(ordered), 'layer')} ({', '.join(ordered[:2])}{', …' if len(ordered) > 2 else ''})"
