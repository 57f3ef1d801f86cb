"""The gate file's `quantize:` value → QuantizeRecipe. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from qualgate.errors import NotInThisVersion, UsageError, close_names
from qualgate.records import QuantizeRecipe

INTEGERS = ("int8", "int4", "int3", "int2")
FLOAT_BITS = {"fp8": 8, "mxfp4": 4, "mxfp8": 8, "nvfp4": 4}
BITS = {"int8": 8, "int4": 4, "int3": 3, "int2": 2, **FLOAT_BITS, "gptq": 4, "awq": 4, "smoothquant": 8}
CHOICES = {"gptq": (2, 3, 4, 8), "awq": (2, 3, 4, 8)}  # of bits; every other method has one
BLOCKS = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}  # weights that share a scale, fixed by the format
DEFAULT_GROUP_SIZE = {
    "int8": 0, "int4": 32, "int3": 32, "int2": 32, "fp8": 0, **BLOCKS, "gptq": 128, "awq": 128, "smoothquant": 0,
}  # fmt: skip
DATA_FREE = (*INTEGERS, *FLOAT_BITS)
CALIBRATED = ("gptq", "awq", "smoothquant")
LATER = ("nf4", "fp4")  # read, not made
FLOATS = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32",
    "bfloat16": "bfloat16", "float16": "float16", "float32": "float32",
}  # fmt: skip
CLASSES = {
    "attention": ("self_attn", "attn", "attention", "self_attention"),
    "mlp": ("mlp", "feed_forward", "ffn"),
    "lm_head": ("lm_head", "embed_out"),
}
"""Names of tensor classes → the part of a module's name that shows it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One key of a recipe: the methods that have it, and what it may be."""

    methods: tuple[str, ...]
    meaning: str  # for the editor's schema and the reference
    values: tuple[Any, ...] = ()  # () = checked by its own rule


OPTIONS: dict[str, Option] = {
    "bits": Option(tuple(BITS), "Bits of one weight. Example: `bits: 4`"),
    "group_size": Option(
        tuple(BITS), "Weights that share a scale, a multiple of 8; 0 is a whole row. Example: `group_size: 128`"
    ),
    "symmetric": Option(
        (*INTEGERS, "gptq", "awq"), "`false` gives each group a zero point. Example: `symmetric: false`", (True, False)
    ),
    "clip": Option(
        (*INTEGERS, "gptq"),
        "How a scale is chosen below the largest weight. Example: `clip: mse`",
        ("mse", "percentile"),
    ),
    "granularity": Option(
        (*INTEGERS, "fp8"),
        "One scale a tensor, or (fp8) a block of 128 x 128. Example: `granularity: tensor`",
        ("tensor", "block"),
    ),
    "element": Option(("fp8",), "The 8-bit float. Example: `element: e5m2`", ("e4m3", "e5m2")),
    "exponent": Option(
        ("mxfp4", "mxfp8"), "How a block's exponent is rounded. Example: `exponent: rounded`", ("floor", "rounded")
    ),
    "activations": Option(
        ("int8", "fp8"), "Round each layer's inputs too, token by token. Example: `activations: int8`", ("int8", "fp8")
    ),
    "act_order": Option(
        ("gptq",),
        "Quantize the columns that matter most first; `static` keeps the groups in place. Example: `act_order: true`",
        (True, False, "static"),
    ),
    "calibration": Option(
        (*CALIBRATED, "nvfp4"),
        "The calibration set: a shipped one's name or a path. Example: `calibration: calibration`",
    ),
    "keep": Option(
        tuple(BITS),
        'Layers of another precision, by class or pattern of names. Example: `keep: {mlp: int8, "layers.0.*": bf16}`',
    ),
}


def parse_recipe(value: Any) -> QuantizeRecipe:
    """`int4`, or `{method: int4, group_size: 64}`; `OPTIONS` lists the keys each method has.

    `bits` may be repeated where the method's name says it. `calibration` is kept as written: finding the cases and
    naming them by content is the caller's. Raises NotInThisVersion for methods of the design that are not built yet,
    UsageError for anything else.
    """
    options = {"method": value} if isinstance(value, str) else value
    if not isinstance(options, dict):
        raise UsageError(f"quantize: expected a name or a mapping with `method`, got {value!r}.")
    method = _method(options)
    for key in options:
        _check_key(method, key)
    bits = options.get("bits", BITS[method])
    if type(bits) is not int or bits not in CHOICES.get(method, (BITS[method],)):
        if method in CHOICES:
            raise UsageError(f"quantize: {method} has {_or(CHOICES[method])} bits, not {bits!r}.")
        raise UsageError(f"quantize: method {method} has {BITS[method]} bits, not {bits!r}. Leave `bits` out.")
    for key, option in OPTIONS.items():
        if key in options and option.values and not any(_same(options[key], choice) for choice in option.values):
            raise UsageError(f"quantize: `{key}` is {_or(option.values)}, not {options[key]!r}.")
    chosen: dict[str, Any] = {key: value for key, value in options.items() if key in OPTIONS}
    granularity = chosen.get("granularity", "")
    recipe = QuantizeRecipe(
        method=cast(Any, method),
        group_size=_group_size(method, options, granularity),
        bits=bits if method in CHOICES else 0,
        symmetric=chosen.get("symmetric", method != "awq"),
        clip=chosen.get("clip", ""),
        granularity=granularity,
        element="" if chosen.get("element") == "e4m3" else chosen.get("element", ""),
        exponent="" if chosen.get("exponent") == "floor" else chosen.get("exponent", ""),
        activations=chosen.get("activations", "int8" if method == "smoothquant" else ""),
        rounding="gptq" if method == "smoothquant" else "",
        act_order=cast(Any, {True: "group", False: "", "static": "static"}[options.get("act_order", False)]),
        calibration=_calibration(method, options),
        keep=_keep(options.get("keep", {})),
    )
    if recipe.granularity == "block" and method != "fp8":
        raise UsageError("quantize: `granularity: block` (128 x 128 weights a scale) is only for fp8. Use group_size.")
    if recipe.activations not in ("", "int8" if method == "smoothquant" else method):
        raise UsageError(
            f"quantize: {method} weights go with `activations: {method}`, not {recipe.activations!r}: both are "
            "multiplied in the same format."
        )
    return recipe


def words_of_recipe(
    method: str,
    options: Sequence[str],
    keep: Sequence[str],
    *,
    bits: int | None,
    group_size: int | None,
    calibration: str | None,
    uses_data: bool = True,
) -> QuantizeRecipe:
    """Return a recipe from a command line's words. options: KEY=VALUE; keep: PATTERN=PRECISION.

    uses_data=False takes `calibration` only where the method cannot be named without it.
    """
    value: dict[str, Any] = {"method": method}
    for word in options:
        key, text = _halves(word, "KEY=VALUE, such as act_order=true")
        booleans: dict[str, Any] = {"true": True, "false": False}
        value[key] = booleans.get(text, int(text) if text.isdecimal() else text)
    if keep:
        value["keep"] = dict(_halves(word, 'PATTERN=PRECISION, such as "layers.0.*=int8"') for word in keep)
    if calibration is not None and (uses_data or method in CALIBRATED):
        value["calibration"] = calibration
    named = {"bits": bits, "group_size": group_size}
    return parse_recipe(value | {key: number for key, number in named.items() if number is not None})


def _halves(word: str, expected: str) -> tuple[str, str]:
    key, equals, text = word.rpartition("=")
    if not equals or not key:
        raise UsageError(f"{word!r}: expected {expected}.")
    return key, text


def bits_of(recipe: QuantizeRecipe) -> int:
    """Bits of one code."""
    return recipe.bits or BITS[recipe.method]


def layer_recipe(recipe: QuantizeRecipe, module: str) -> QuantizeRecipe | None:
    """What `keep` makes of the recipe for one module, or None where the module stays a float."""
    for pattern, precision in recipe.keep:
        if fits(pattern, module):
            return None if precision in FLOATS else replace(parse_recipe(precision), keep=())
    return recipe


def fits(pattern: str, module: str) -> bool:
    """Return whether a pattern of `keep` names a module: a tensor class, or a glob on the module's name.

    The glob may begin at any part of the name, as no user thinks of the `model.` before `layers.0.*`.
    """
    parts = module.split(".")
    if pattern in CLASSES:
        return any(part in CLASSES[pattern] for part in parts)
    return any(fnmatchcase(".".join(parts[start:]), pattern) for start in range(len(parts)))


def plain(recipe: QuantizeRecipe) -> QuantizeRecipe:
    """Return the recipe's grid without its data: the round-to-nearest that a calibrated method is held against."""
    if recipe.method in CALIBRATED:
        return QuantizeRecipe(
            method=cast(Any, f"int{bits_of(recipe)}"),
            group_size=recipe.group_size,
            symmetric=recipe.symmetric,
            activations=recipe.activations,
            keep=recipe.keep,
        )
    return replace(recipe, calibration="", calibration_sha256="")


def _method(options: dict[Any, Any]) -> str:
    """Return the recipe's method. UsageError for a missing or unknown one, NotInThisVersion for a planned one."""
    if "method" not in options:
        raise UsageError(f"quantize: `method` is missing. Methods: {', '.join(BITS)}.")
    method = options["method"]
    if not isinstance(method, str):
        raise UsageError(
            f"quantize: `method` must be one name, not a {type(method).__name__}. Methods: {', '.join(BITS)}."
        )
    if method in LATER:
        raise NotInThisVersion(f"quantize method {method!r} is not in this version. Methods: {', '.join(BITS)}.")
    if method not in BITS:
        hint = _meant(method, [*BITS, *LATER])
        raise UsageError(f"quantize: unknown method {method!r}.{hint} Methods: {', '.join(BITS)}.")
    return method


def _meant(name: str, known: Iterable[str]) -> str:
    return "".join(f" Did you mean {close!r}?" for close in close_names(name, known))


def _check_key(method: str, key: Any) -> None:
    """Raise UsageError for a key that the method does not have."""
    if key == "method" or (key in OPTIONS and method in OPTIONS[key].methods):
        return
    allowed = ["method", *(name for name, option in OPTIONS.items() if method in option.methods)]
    if key == "calibration":
        raise UsageError(f"quantize: {method} needs no data; leave `calibration` out, or use {_or(CALIBRATED)}.")
    if key in OPTIONS:
        raise UsageError(
            f"quantize: {method} has no `{key}`; {_or(OPTIONS[key].methods)} has. Keys: {', '.join(allowed)}."
        )
    hint = _meant(str(key), allowed)
    raise UsageError(f"quantize: unknown key {key!r}.{hint} Keys: {', '.join(allowed)}.")


def _group_size(method: str, options: dict[Any, Any], granularity: str) -> int:
    """Return the group size, the method's default if none is given. UsageError for one that the method cannot have."""
    default = 0 if granularity else DEFAULT_GROUP_SIZE[method]
    group_size = options.get("group_size", default)
    if method in BLOCKS and group_size != BLOCKS[method]:
        shared_value = "an exponent" if method != "nvfp4" else "a scale"
        raise UsageError(f"quantize: {method} shares {shared_value} in blocks of {BLOCKS[method]}, not {group_size!r}. "
                         "Leave it out.")  # fmt: skip
    if type(group_size) is not int or (group_size and (group_size < 8 or group_size % 8)):
        raise UsageError(
            f"quantize: group_size {group_size!r}: expected 0 (one scale a row) or a multiple of 8, such as 32 or 128."
        )
    if group_size and (granularity or method in ("fp8", "smoothquant")):
        raise UsageError(
            f"quantize: `group_size` {group_size} and one scale "
            + (f"a {granularity}" if granularity else f"a row, which {method} has,")
            + " contradict each other. Leave `group_size` out."
        )
    return group_size


def _calibration(method: str, options: dict[Any, Any]) -> str:
    """Return the name or path of the calibration set, "" for methods without data. UsageError if it is missing."""
    calibration = options.get("calibration", "")
    if "calibration" in options and (not isinstance(calibration, str) or not calibration):
        raise UsageError(f"quantize: `calibration` is a shipped set's name or a path, not {calibration!r}.")
    if method in CALIBRATED and not calibration:
        raise UsageError(
            f"quantize: {method} needs calibration data, but `calibration` is missing. Name a set of cases like those "
            "the model will meet, without any that it is judged on: `calibration: ./ours/calibration.yaml`."
        )
    return calibration


def _keep(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the (pattern, precision) pairs of `keep`, in the order of the file. UsageError for anything else."""
    if not isinstance(value, dict):
        raise UsageError(
            f"quantize: `keep` maps modules to precisions, such as {{lm_head: bf16, \"layers.0.*\": int8}}, "
            f"not {value!r}."
        )  # fmt: skip
    precisions = (*FLOATS, *DATA_FREE)
    for pattern, precision in value.items():
        if not isinstance(pattern, str) or not pattern:
            raise UsageError(f"quantize: `keep` names modules by text, not {pattern!r}.")
        if not isinstance(precision, str) or precision not in precisions:
            hint = _meant(str(precision), precisions)
            raise UsageError(
                f"quantize: `keep` has {precision!r} for {pattern!r}.{hint} Precisions: {', '.join(precisions)}."
            )
        if pattern in CLASSES["lm_head"] and precision not in FLOATS:
            raise NotInThisVersion(
                f"quantize: `keep` {pattern}: {precision} is not in this version; the output head stays a float."
            )
    return tuple((pattern, precision) for pattern, precision in value.items())


def _same(left: Any, right: Any) -> bool:
    """Return whether both are equal and of one type: 1 is not True in a gate file."""
    return type(left) is type(right) and left == right


def _or(values: tuple[Any, ...]) -> str:
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
