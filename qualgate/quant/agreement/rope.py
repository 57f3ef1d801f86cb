"""How positions are turned (rope), by what its settings mean, and a config.json that says them in two ways."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from qualgate.quant.model_files import ModelFiles

_YARN_DEFAULTS = {"beta_fast": 32, "beta_slow": 1, "truncate": True}


def said_twice(files: ModelFiles) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, value, place of the second value, second value) of each rope setting that config.json has twice.

    transformers 5 reads `rope_parameters`; earlier versions, and servers built on them, `rope_theta` and
    `rope_scaling` (modeling_rope_utils.py, standardize_rope_params).
    """
    text = files.config.get("text_config")
    for config in (files.config, text if isinstance(text, dict) else {}):
        new, old = config.get("rope_parameters"), config.get("rope_scaling")
        if not isinstance(new, dict) or any(isinstance(value, dict) for value in new.values()):
            continue
        once, again = config.get("rope_theta"), new.get("rope_theta")
        if None not in (once, again) and as_float32(once) != as_float32(again):
            yield "rope_theta", shown(once), "rope_parameters.rope_theta", shown(again)
        if isinstance(old, dict):
            old_settings, new_settings = rope_settings({"rope_theta": again, **old}, config), rope_settings(new, config)
            for key in sorted(old_settings.keys() | new_settings.keys()):
                if old_settings.get(key) != new_settings.get(key):
                    yield (
                        f"rope_scaling.{key}",
                        shown(old_settings.get(key)),
                        f"rope_parameters.{key}",
                        shown(new_settings.get(key)),
                    )


def spelling_notes(arms: Iterable[tuple[str, ModelFiles]]) -> Iterator[str]:
    """Yield a line on each arm with rope settings in `rope_parameters` alone while another has the older keys alone.

    transformers 4 reads only the older keys, and takes its default for the rest.
    """
    arm_configs = []
    for name, files in arms:
        text = files.config.get("text_config")
        config = text if isinstance(text, dict) else files.config
        arm_configs.append(
            (name, files, config, any(config.get(key) is not None for key in ("rope_theta", "rope_scaling")))
        )
    earlier = [
        name for name, _, config, has_old_keys in arm_configs if has_old_keys and not config.get("rope_parameters")
    ]
    for name, files, config, old in arm_configs if earlier else ():
        new = config.get("rope_parameters")
        if old or not isinstance(new, dict):
            continue
        default = _class_default(files)
        default_settings = settings_by_layer(default, config)
        if settings_by_layer({"rope_theta": default.get("rope_theta"), **new}, config) != default_settings:
            listed = ", ".join(f"{key} {shown(value)}" for key, value in default_settings.items()) or "none"
            yield (
                f"{name}: {files.path / 'config.json'} says its rope settings in rope_parameters alone, and that of "
                f"{', '.join(earlier)} in rope_theta and rope_scaling alone: servers built on transformers 4 do not "
                f"read rope_parameters and take their default ({listed}) for {name}. Copy rope_theta and rope_scaling "
                "from there, beside rope_parameters, if such a server is to serve it"
            )


def _class_default(files: ModelFiles) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[str(files.config.get("model_type"))]().get_text_config(decoder=True).rope_parameters or {}
    except Exception:  # what cannot be read is refused elsewhere
        return {}


def settings_by_layer(rope: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that each kind of layer reads: "rope_theta", or "sliding_attention.rope_theta"."""
    by_kind = {f"{kind}.": settings for kind, settings in rope.items() if isinstance(settings, dict)} or {"": rope}
    return {
        f"{kind}{key}": value
        for kind, settings in by_kind.items()
        for key, value in rope_settings(settings, config).items()
    }


def rope_settings(rope: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of one set of frequencies, without those that its kind does not read."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    stated = {key: value for key, value in rope.items() if value is not None and key not in ("type", "rope_type")}
    settings = {key: as_float32(value) for key, value in stated.items()}
    if kind in ("default", None) or (kind in ("linear", "dynamic") and settings.get("factor") == 1):
        kind, settings = (
            "default",
            {key: settings[key] for key in ("rope_theta", "partial_rotary_factor") if key in settings},
        )
    trained = settings.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    longest = config.get("max_position_embeddings")
    if kind in ("longrope", "su") and isinstance(trained, int) and isinstance(longest, int) and 0 < trained < 2**53:
        kind, settings["original_max_position_embeddings"] = "longrope", trained  # Phi-3 says it beside rope_scaling
        default_factor = as_float32(longest / trained) if 0 < longest < 2**53 else None  # where no factor is said
        settings = {key: value for key, value in settings.items() if key != "factor" or value != default_factor}
    settings = {key: value for key, value in settings.items() if kind != "yarn" or _YARN_DEFAULTS.get(key) != value}
    partial = settings.pop("partial_rotary_factor", as_float32(config.get("partial_rotary_factor") or 1.0))
    return {"rope_type": kind, **settings, **({} if partial == 1 else {"partial_rotary_factor": partial})}


def as_float32(value: Any) -> Any:
    """Return a number as float32 holds it, in lists and mappings too."""
    if isinstance(value, dict):
        return {str(key): as_float32(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_float32(item) for item in value]
    if isinstance(value, float):
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return value
    return value


def shown(value: Any) -> str:
    """Format a value for people; "nothing" for a missing key."""
    if value is None:
        return "nothing"
    return f"{value:.7g}" if isinstance(value, float) else f"{value!s:.80}"
