"""Settings of one layer by AutoRound's config: those of the whole model, its blocks, and `extra_config`."""

from __future__ import annotations

import re
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.agreement.patterns import regex_fits
from qualgate.quant.formats import Format

_KEYS = ("bits", "group_size", "sym", "data_type", "act_bits")
_REGEX = re.compile(r"\.\*|[\^$|()\[\]?+\\]")  # a key of extra_config that holds one of these is no name
FLOAT_BITS = 16  # from which on a layer was never quantized


def settings_of(format: Format, module: str) -> dict[str, Any]:
    """Return bits, group_size, sym, data_type and act_bits of a layer, None for keys that the config does not set.

    `extra_config` names layers, or gives a pattern that is found anywhere in their names; names come first. A layer
    outside the blocks that it does not name has bits of 16.
    """
    settings = {key: format.settings.get(key) for key in _KEYS}
    own_settings = _own(format, module)
    if own_settings is None:
        return settings if _in_blocks(format, module) else {**settings, "bits": FLOAT_BITS}
    return settings | {key: own_settings[key] for key in _KEYS if own_settings.get(key) is not None}


def leaves_plain(format: Format, module: str) -> bool:
    """Return whether a layer is not quantized."""
    bits = settings_of(format, module)["bits"]
    return type(bits) is int and bits >= FLOAT_BITS


def _own(format: Format, module: str) -> dict[str, Any] | None:
    extra = format.setting("extra_config", kind=dict, default={})
    patterns = (key for key in extra if _REGEX.search(key) and key != module and extra[key] != {})
    names = [module] if module in extra else (
        key for key in patterns if regex_fits(f".*(?:{key})", module, format.where)
    )  # fmt: skip
    own_settings = next((extra[key] for key in names), None)
    if own_settings is not None and not isinstance(own_settings, dict):
        raise UsageError(f"{format.where}: extra_config gives {module} {own_settings!s:.40}, expected a JSON object.")
    return own_settings


def _in_blocks(format: Format, module: str) -> bool:
    listed = format.settings.get("block_name_to_quantize", format.settings.get("to_quant_block_names"))
    names = listed.split(",") if isinstance(listed, str) else listed or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{format.where}: block_name_to_quantize is {listed!s:.40}, expected a list of names.")
    if not names:
        return any(part.isdigit() for part in module.split("."))
    return any(module.startswith(name.strip()) for name in names)
