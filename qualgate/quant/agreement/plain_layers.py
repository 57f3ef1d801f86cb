"""Layers that are plain, and layers that are quantized, held against the lists of the config that leave layers out.

Each list is read with the rules of the library that reads it. A layer that one server would read as quantized and that
holds a plain weight is started anew there, or has no scale; so it is refused unless all servers agree, or the arm names
one that reads it as the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.agreement import auto_round
from qualgate.quant.agreement.patterns import name_fits, regex_fits
from qualgate.quant.agreement.table import NAMES, READINGS
from qualgate.quant.formats import Format
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module of the architecture that can hold a quantized weight."""

    name: str
    classes: tuple[str, ...]  # its own and those it is made from, as compressed-tensors' targets name them
    is_head: bool = False
    is_embedding: bool = False

    @property
    def in_block(self) -> bool:
        """Whether it stands in a numbered decoder block."""
        return any(part.isdigit() for part in self.name.split("."))


Rule = Callable[[Format, Module], bool]  # whether a server would read the module as plain


def check_plain(
    format: Format, modules: Iterable[Module], quantized: Iterable[str], plain: Iterable[str], read_as: str | None
) -> None:
    """Raise UsageError for the plain layers that the config does not leave out, and for quantized ones that it does.

    modules: the architecture's; quantized, plain: names of those that the file holds so. A module of neither, such as a
    tied head, has nothing to contradict.
    """
    rules = _RULES.get(format.method)
    if rules is None:
        return
    if read_as in rules:
        rules = {read_as: rules[read_as]}
    packed, floats, unlisted = {*quantized}, {*plain}, list[str]()
    for module in modules:
        if module.name in packed:
            _check_quantized(format, module, rules)
        elif module.name in floats and not all(_leaves(rule, format, module) for rule in rules.values()):
            unlisted.append(module.name)
    if unlisted:
        raise UsageError(_plain_unlisted(format, unlisted))


def _leaves(rule: Rule, format: Format, module: Module) -> bool:
    """torchao quantizes an embedding by a config of its own alone, whatever is said of embeddings and heads."""
    return rule(format, module) or (module.is_embedding and format.method == "torchao")


def check_listed(format: Format, name: str) -> None:
    """Raise UsageError for a quantized layer that the config leaves out by its name. Needs no architecture."""
    rule = _LISTED.get(format.method)
    if rule is not None and rule(format, Module(name=name, classes=("Linear",))):
        keys = " or ".join(f"`{key}`" for key in _LISTS[format.method])
        raise UsageError(
            f"{format.where} leaves {name} out of quantization ({keys}), but its weights are quantized: servers would "
            "look for a plain weight there. Remove it from the list if it should be quantized; else save the "
            "checkpoint again."
        )


def _check_quantized(format: Format, module: Module, rules: Mapping[str, Rule]) -> None:
    """Raise UsageError for a quantized layer that the config leaves out.

    Checked are output heads, embeddings, and layers that compressed-tensors' lists may name by class: others were
    checked by name as they were read.
    """
    by_class = format.method == "compressed-tensors"
    if not module.is_head and not module.is_embedding and not by_class:
        return
    if any(rule(format, module) for rule in rules.values()):
        kind = "the output head" if module.is_head else "an embedding" if module.is_embedding else "a linear layer"
        names = _NAMES_EMBEDDING if module.is_embedding else _NAMES_HEAD
        keys = names.get(format.method, "the module") + (", and neither in `ignore`" if by_class else "")
        raise UsageError(
            f"{format.where}: {module.name}, {kind}, holds quantized weights, but the config does not name it, or "
            f"leaves it out: servers would read it as a plain layer. It needs {keys}. Add that, or save the model with "
            f"{kind} as it was."
        )


def _plain_unlisted(format: Format, names: list[str]) -> str:
    """Return the message for plain layers that no list of the config leaves out. names: the first is shown."""
    key = _LISTS[format.method][0]
    remainder = f" and {counted(len(names) - 1, 'further layer')}" if len(names) > 1 else ""
    return (
        f"{format.where} says that the weights are {format.method}, but {names[0]}{remainder} "
        f"{'hold plain weights' if remainder else 'holds a plain weight'} and "
        f"{' or '.join(f'`{listed}`' for listed in _LISTS[format.method])} does not leave it out: "
        f"{READINGS[f'plain: {format.method}'].sentence}. If it is meant to be plain, name it there in full "
        f"({_example(key, names[0])}); else save the checkpoint again."
    )


def _example(key: str, name: str) -> str:
    if key == "extra_config":
        return f'`extra_config: {{"{name}": {{"bits": 16}}}}`'
    return f'`dynamic: {{"-:^{re.escape(name)}$": {{}}}}`' if key == "dynamic" else f'`{key}: ["{name}"]`'


# The keys that leave layers out, the one to write first.
_LISTS = {
    "gptq": ("dynamic", "modules_in_block_to_quantize"),
    "awq": ("modules_to_not_convert",),
    "auto-round": ("extra_config", "block_name_to_quantize"),
    "compressed-tensors": ("ignore",),
    "fp8": ("modules_to_not_convert", "ignored_layers"),
    "fbgemm_fp8": ("modules_to_not_convert",),
    "modelopt": ("ignore", "exclude_modules"),
    "bitsandbytes": ("llm_int8_skip_modules",),
    "torchao": ("modules_to_not_convert", "include_input_output_embeddings"),
}
_NAMES_HEAD = {
    "gptq": "`lm_head: true`", "awq": "`lm_head: true`", "torchao": "`include_input_output_embeddings: true`",
    "auto-round": "its name and bits in `extra_config`",
    "compressed-tensors": "a target of its name or class",
    **dict.fromkeys(("fp8", "fbgemm_fp8"), "another format: no server reads an fp8 head"),
    "bitsandbytes": "`llm_int8_skip_modules` without it, and `read_as: transformers`: others read no quantized head",
    "modelopt": "a list that does not leave it out",
}  # fmt: skip
_NAMES_EMBEDDING = {
    "compressed-tensors": 'a target of its name, or of the class "Embedding"',
    "torchao": "`include_input_output_embeddings: true`",
    **dict.fromkeys(
        ("gptq", "awq", "auto-round", "fp8", "fbgemm_fp8", "modelopt", "bitsandbytes"),
        "another format: servers read none there",
    ),
}


def _names(format: Format, *keys: str) -> list[str] | None:
    """Return the first of the lists `keys` that is set; None if none is. UsageError for anything but a list of
    names."""
    for key in keys:
        listed = format.settings.get(key)
        if listed is not None:
            if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
                raise UsageError(f"{format.where}: {key} is {listed!s:.40}, expected a list of names.")
            return listed
    return None


def _by_ends(names: list[str], module: str) -> bool:
    """transformers' rule: a pattern from the start that ends at a part's end, or the end of the name."""
    return any(module.endswith(name) or _starts(name, module) for name in names)


def _starts(pattern: str, module: str) -> bool:
    try:
        return regex_fits(rf"(?:{pattern})(?:\.|$)", module, Path())
    except UsageError:  # a name that is no regular expression
        return module == pattern or module.startswith(f"{pattern}.")


def _defaults(module: Module) -> bool:
    return module.is_head or module.is_embedding


def _ct(format: Format, module: Module) -> bool:
    """Return whether compressed-tensors leaves `module` plain: no group targets it, or `ignore` names it."""

    def named(patterns: list[str]) -> bool:
        return any(name_fits(pattern, module.name, format.where) or pattern in module.classes for pattern in patterns)

    groups = format.settings.get("config_groups")
    target_lists = [group.get("targets") for group in groups.values() if isinstance(group, dict)] if isinstance(
        groups, dict
    ) else []  # fmt: skip
    targets = [
        pattern
        for patterns in target_lists
        if isinstance(patterns, list)
        for pattern in patterns
        if isinstance(pattern, str)
    ]
    return not named(targets) or named(_names(format, "ignore") or [])


def _fp8_ends(format: Format, module: Module) -> bool:
    names = _names(format, "modules_to_not_convert", "ignored_layers")
    return module.is_embedding or (module.is_head if names is None else _by_ends(names, module.name))


def _fp8_whole(format: Format, module: Module) -> bool:
    names = _names(format, "ignored_layers") or _names(format, "modules_to_not_convert") or []
    return _defaults(module) or module.name in names


def _awq_listed(format: Format, module: Module) -> bool:
    return _by_ends(_names(format, "modules_to_not_convert") or [], module.name)


def _awq_ends(format: Format, module: Module) -> bool:
    return not module.in_block or _awq_listed(format, module)


def _awq_headers(format: Format, module: Module) -> bool:
    if module.is_head:
        return format.settings.get("lm_head") is not True
    names = _names(format, "modules_to_not_convert")
    return not module.in_block or not names or any(name in module.name for name in names)


def _auto_round(format: Format, module: Module) -> bool:
    return module.is_embedding or auto_round.leaves_plain(format, module.name)


def _left_by_dynamic(format: Format, module: Module) -> bool:
    """Return whether GPTQModel's `dynamic` leaves `module` out; the first pattern that matches decides."""
    for pattern in format.setting("dynamic", kind=dict, default={}):
        if pattern.startswith("-:"):
            if regex_fits(pattern[2:], module.name, format.where):
                return True
        elif regex_fits(pattern.removeprefix("+:"), module.name, format.where):
            return False
    return False


def _in_blocks(format: Format) -> list[str]:
    blocks = format.settings.get("modules_in_block_to_quantize") or []
    inner = blocks if isinstance(blocks, list) else [blocks]
    return [str(name) for block in inner for name in (block if isinstance(block, list) else [block])]


def _gptq_listed(format: Format, module: Module) -> bool:
    blocks = _in_blocks(format)
    return _left_by_dynamic(format, module) or (
        module.in_block and bool(blocks) and not any(name in module.name for name in blocks)
    )


def _gptq(format: Format, module: Module) -> bool:
    if module.is_head:
        return format.settings.get("lm_head") is not True
    outside = not module.in_block or module.is_embedding or _ROUTER.search(module.name)
    return bool(outside) or _gptq_listed(format, module)


def _gptq_headers(format: Format, module: Module) -> bool:
    return _gptq(format, module) or (not module.is_head and not _in_blocks(format))


def mixed_layers(format: Format) -> dict[str, Any]:
    """Return ModelOpt's `quantized_layers`: what each layer of MIXED_PRECISION is, by its name."""
    return _modelopt_settings(format).setting("quantized_layers", kind=dict, default={})


def _modelopt_settings(format: Format) -> Format:
    inner: Any = format.settings.get("quantization")
    return Format(method=format.method, settings=inner, where=format.where) if isinstance(inner, dict) else format


def _modelopt(format: Format, module: Module) -> bool:
    """Return whether ModelOpt leaves `module` plain, by a glob or a part of its name."""
    mixed = mixed_layers(format)
    if module.is_embedding or (mixed and module.name not in mixed):
        return True
    names = _names(_modelopt_settings(format), "ignore", "exclude_modules") or []
    short_name = module.name.removeprefix("language_model.")
    return any(fnmatchcase(name, pattern) or pattern in name for pattern in names for name in {module.name, short_name})


def _modelopt_listed(format: Format, module: Module) -> bool:
    names = _names(_modelopt_settings(format), "ignore", "exclude_modules") or []
    return any(fnmatchcase(module.name, pattern) for pattern in names)


def _bitsandbytes(format: Format, module: Module) -> bool:
    names = _names(format, "llm_int8_skip_modules")
    return module.is_embedding or (module.is_head if names is None else _by_ends(names, module.name))


def _bnb_listed(format: Format, module: Module) -> bool:
    """vLLM's is_layer_skipped_bnb: a part of the name, or all of it up to a part's end."""
    parts = module.name.split(".")
    starts = {".".join(parts[: end + 1]) for end in range(len(parts))}
    return not {*parts, *starts}.isdisjoint(_names(format, "llm_int8_skip_modules") or [])


def _bnb_parts(format: Format, module: Module) -> bool:
    return _defaults(module) or _bnb_listed(format, module)


def _torchao(format: Format, module: Module) -> bool:
    """Return whether torchao leaves `module` plain: by a list, or because its setting by name is null."""
    if _defaults(module) and format.settings.get("include_input_output_embeddings"):
        return False
    names = _names(format, "modules_to_not_convert")
    if module.is_embedding or (module.is_head if names is None else _by_ends(names, module.name)):
        return True
    by_name = _torchao_names(format)
    precisions = [by_name[key] for key in (module.name, f"{module.name}.weight") if key in by_name]
    precisions += [
        by_name[key] for key in by_name if key.startswith("re:") and regex_fits(key[3:], module.name, format.where)
    ]
    return bool(by_name) and (precisions[0] if precisions else by_name.get("_default")) is None


def _torchao_names(format: Format) -> dict[str, Any]:
    """Return the configs by name that an FqnToConfig holds; {} for any other."""
    kind: Any = format.settings.get("quant_type")
    for key in ("default", "_data"):
        kind = kind.get(key) if isinstance(kind, dict) else None
    configs = (kind.get("fqn_to_config") or kind.get("module_fqn_to_config")) if isinstance(kind, dict) else None
    return configs if isinstance(configs, dict) else {}


_ROUTER = re.compile(r"(^|\.)(gate|router|shared_expert_gate)(\.|$)")
# What a config leaves out by name: no quantized layer may be one of it.
_LISTED: dict[str, Rule] = {
    "gptq": _gptq_listed,
    "awq": _awq_listed,
    "auto-round": _auto_round,
    "compressed-tensors": lambda format, module: any(
        name_fits(name, module.name, format.where) or module.name.endswith(f".{name}")
        for name in _names(format, "ignore") or []
    ),  # a name's end is SGLang's
    **dict.fromkeys(
        ("fp8", "fbgemm_fp8"),
        lambda format, module: any(_by_ends(_names(format, key) or [], module.name) for key in _LISTS[format.method]),
    ),
    "modelopt": _modelopt_listed,
    "bitsandbytes": lambda format, module: (
        _bnb_listed(format, module) or _by_ends(_names(format, "llm_int8_skip_modules") or [], module.name)
    ),
    "torchao": lambda format, module: _by_ends(_names(format, "modules_to_not_convert") or [], module.name),
}
# What each server reads as plain, by its lists and its defaults.
_RULES: dict[str, dict[str, Rule]] = {
    "gptq": {"transformers": _gptq, "vllm": _gptq_headers, "sglang": _gptq},
    "awq": {"transformers": _awq_ends, "vllm": _awq_headers, "sglang": _awq_ends},
    "auto-round": dict.fromkeys(("transformers", "vllm", "sglang"), _auto_round),
    "compressed-tensors": {"transformers": _ct, "vllm": _ct, "sglang": _ct},
    "fp8": {"transformers": _fp8_ends, "vllm": _fp8_whole, "sglang": _fp8_whole},
    "fbgemm_fp8": {"transformers": _fp8_ends, "vllm": _fp8_whole},
    "modelopt": {"vllm": _modelopt, "sglang": _modelopt},
    "bitsandbytes": {"transformers": _bitsandbytes, "vllm": _bnb_parts, "sglang": _bnb_parts},
    "torchao": {"transformers": _torchao, "vllm": _torchao},
}
assert {name.removeprefix("plain: ") for name in READINGS if name.startswith("plain: ")} == {*_RULES}
assert all(server in NAMES for rules in _RULES.values() for server in rules)
