"""A server's sampling where a request says nothing: the defaults in generation_config.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.model_files import ModelFiles

_NEUTRAL: dict[str, tuple[Any, ...]] = {  # key → values that change nothing, besides null
    "temperature": (1,), "top_k": (0, -1), "top_p": (1,), "min_p": (0,), "repetition_penalty": (1,),
    "presence_penalty": (0,), "frequency_penalty": (0,), "no_repeat_ngram_size": (0,), "typical_p": (1,),
    "do_sample": (), "num_beams": (1,), "max_new_tokens": (), "min_new_tokens": (0,), "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],), "forced_bos_token_id": (), "forced_eos_token_id": (), "bad_words_ids": ([],),
    "sequence_bias": ({}, []), "encoder_repetition_penalty": (1,), "epsilon_cutoff": (0,), "eta_cutoff": (0,),
    "stop_strings": ([], ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The defaults that one server applies."""

    server: str
    keys: tuple[str, ...]
    version: str
    where: str  # in its source code


_PLAIN = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
APPLIED = (
    Applied(
        server="vllm",
        keys=(*_PLAIN, "max_new_tokens"),
        version="main, commit 0036026; on since 0.8, off with --generation-config vllm",
        where="vllm/config/model.py: get_diff_sampling_param",
    ),
    Applied(
        server="sglang",
        keys=_PLAIN,
        version="0.5; off with --sampling-defaults openai",
        where="srt/configs/model_config.py: get_default_sampling_params",
    ),
    Applied(
        server="transformers serve",
        keys=tuple(_NEUTRAL),
        version="5.23.0",
        where="cli/serving/utils.py: _build_generation_config",
    ),
)


def sampling_defaults(files: ModelFiles) -> dict[str, Any]:
    """Return the defaults of generation_config.json that change answers. UsageError for a do_sample that is no bool.

    `do_sample: false` is neutral alone: only transformers reads it, and the others sample by the rest all the same.
    """
    settings = files.json("generation_config.json")
    if not isinstance(settings.get("do_sample"), bool | None):
        raise UsageError(
            f"{files.path / 'generation_config.json'}: do_sample is {settings['do_sample']!r:.60}, expected true or "
            "false: servers disagree about other values. Correct it there."
        )
    changed = {
        key: settings[key]
        for key, neutral in _NEUTRAL.items()
        if settings.get(key) is not None and settings[key] not in neutral
    }
    return {} if changed.keys() <= {"do_sample"} and changed.get("do_sample") is not True else changed


def sampling_notes(arms: Iterable[tuple[str, ModelFiles]]) -> list[str]:
    """Return a line for the user on each set of defaults that a server would apply, and on arms that differ in them.

    Args:
        arms: Name and files of each arm with a folder, the baseline first.
    """
    by_arm = [(name, sampling_defaults(files)) for name, files in arms]
    if not any(defaults for _, defaults in by_arm):
        return []
    groups: list[tuple[dict[str, Any], list[str]]] = []
    for name, defaults in by_arm:
        group = next((names for group_defaults, names in groups if group_defaults == defaults), None)
        if group is None:
            groups.append((defaults, [name]))
        else:
            group.append(name)
    listed = "; ".join(f"{', '.join(names)}: {_listed(defaults)}" for defaults, names in groups)
    serving = ", ".join(_servers(defaults for defaults, _ in groups))
    advice = "copy the baseline's generation_config.json, or set them" if len(groups) > 1 else "set them"
    return [
        f"{'the arms differ in' if len(groups) > 1 else 'there are'} sampling defaults in generation_config.json "
        f"({listed}): this run asks with the gate file's `sampling`, and {serving} would apply these where a request "
        f"leaves them unset, which nothing here judges: {advice} in every request, or in `sampling`"
    ]


def _servers(sets: Iterable[dict[str, Any]]) -> list[str]:
    keys = {key for defaults in sets for key in defaults}
    return [reader.server for reader in APPLIED if keys.intersection(reader.keys)]


def _listed(defaults: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value!r:.40}" for key, value in defaults.items()) or "none"
