"""The gate file's `quantize:` value → QuantizeRecipe. Needs no torch."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, cast

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.records import QuantizeRecipe

DEFAULT_GROUP_SIZE = {"int8": 0, "int4": 32, "int2": 32, "mxfp4": 32}
BITS = {"int8": 8, "int4": 4, "int2": 2, "mxfp4": 4}
LATER = ("gptq", "awq", "smoothquant", "fp8", "nvfp4", "mxfp8", "int3", "nf4", "fp4")  # designed, not built


def parse_recipe(value: Any) -> QuantizeRecipe:
    """`int4`, or `{method: int4, group_size: 64}`. `bits` may be repeated, and must then agree with the method.

    Raises NotInThisVersion for methods of the design that are not built yet, UsageError for anything else.
    """
    options = {"method": value} if isinstance(value, str) else value
    if not isinstance(options, dict):
        raise UsageError(f"quantize: expected a name or a mapping with `method`, got {value!r}.")
    if "method" not in options:
        raise UsageError(f"quantize: `method` is missing. Methods: {', '.join(DEFAULT_GROUP_SIZE)}.")
    method = options["method"]
    if not isinstance(method, str):
        raise UsageError(
            f"quantize: `method` must be one name, not a {type(method).__name__}. Methods: {', '.join(BITS)}."
        )
    if method in LATER:
        raise NotInThisVersion(
            f"quantize method {method!r} is not in this version. Methods: {', '.join(DEFAULT_GROUP_SIZE)}."
        )
    if method not in DEFAULT_GROUP_SIZE:
        near = get_close_matches(method, [*DEFAULT_GROUP_SIZE, *LATER], n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"quantize: unknown method {method!r}.{meant} Methods: {', '.join(DEFAULT_GROUP_SIZE)}.")
    for key in options:
        if key == "calibration":
            raise NotInThisVersion(f"quantize: `calibration` is not in this version; {method} needs no data.")
        if key not in ("method", "group_size", "bits"):
            near = get_close_matches(str(key), ["method", "group_size", "bits"], n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"quantize: unknown key {key!r}.{meant} Keys: method, bits, group_size.")
    bits = BITS[method]
    if options.get("bits", bits) != bits:
        raise UsageError(f"quantize: method {method} has {bits} bits, not {options['bits']!r}. Leave `bits` out.")
    group_size = options.get("group_size", DEFAULT_GROUP_SIZE[method])
    if method == "mxfp4" and group_size != 32:
        raise UsageError(f"quantize: mxfp4 shares an exponent in blocks of 32, not {group_size!r}. Leave it out.")
    if type(group_size) is not int or (group_size and (group_size < 8 or group_size % 8)):
        raise UsageError(
            f"quantize: group_size {group_size!r}: expected 0 (one scale a row) or a multiple of 8, such as 32 or 128."
        )
    return QuantizeRecipe(method=cast(Any, method), group_size=group_size)
