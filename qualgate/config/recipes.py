"""The gate file's `quantize:`, for weights of variants and drafts: a method's name, or a mapping with options."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from qualgate.documents import planned, stated
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.evalsets.calibration_sets import with_calibration
from qualgate.quant.recipes import (
    BITS,
    BLOCKS,
    CALIBRATED,
    CHOICES,
    CLASSES,
    DATA_FREE,
    FLOATS,
    OPTIONS,
    parse_recipe,
)
from qualgate.records import QuantizeRecipe


def _recipe(value: Any, info: ValidationInfo) -> QuantizeRecipe:
    """Parse a recipe, and read its calibration data if the gate file's folder is known.

    Missing data is a fault only if files are checked.
    """
    try:
        recipe = parse_recipe(value)
        if info.context is None or not recipe.calibration:
            return recipe
        try:
            return with_calibration(recipe, info.context["folder"])
        except UsageError:
            if info.context["files"]:
                raise
            return recipe  # a stored run can be decided again without the data that made its variants
    except NotInThisVersion as error:
        raise planned(str(error).removesuffix(".").partition(" is not in this version")[0]) from None
    except UsageError as error:
        raise stated(str(error)) from None


def _recipe_schema(method: str) -> dict[str, Any]:
    """The schema of what `parse_recipe` accepts for one method, as far as a schema can express it."""
    data_free, floats = {"enum": [*FLOATS, *DATA_FREE]}, {"enum": list(FLOATS)}
    size: dict[str, Any] = {"type": "integer", "minimum": 0, "multipleOf": 8}
    if method in BLOCKS or method in ("fp8", "smoothquant"):
        size = {"const": BLOCKS.get(method, 0)}
    known: dict[str, Any] = {
        "bits": {"enum": list(CHOICES.get(method, (BITS[method],)))},
        "group_size": size,
        "granularity": {"enum": ["tensor", "block"] if method == "fp8" else ["tensor"]},
        "activations": {"enum": ["int8" if method == "smoothquant" else method]},
        "calibration": {"type": "string", "minLength": 1},
        "keep": {
            "type": "object",
            "properties": dict.fromkeys(CLASSES["lm_head"], floats),
            "propertyNames": {"minLength": 1},
            "additionalProperties": data_free,
        },
    }
    properties: dict[str, Any] = {"method": {"const": method}}
    for key, option in OPTIONS.items():
        if method in option.methods:
            properties[key] = known.get(key, {"enum": list(option.values)}) | {"description": option.meaning}
    return {
        "type": "object",
        "properties": properties,
        "required": ["method", "calibration"] if method in CALIBRATED else ["method"],
        "dependencies": {"granularity": {"properties": {"group_size": {"const": 0}}}},
        "additionalProperties": False,
    }


Recipe = Annotated[
    Any,
    AfterValidator(_recipe),
    WithJsonSchema({"oneOf": [{"enum": list(DATA_FREE)}, *map(_recipe_schema, BITS)]}),
]
