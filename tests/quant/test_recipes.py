"""The gate file's `quantize:` values."""

from __future__ import annotations

import pytest

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.recipes import parse_recipe
from qualgate.records import QuantizeRecipe


@pytest.mark.parametrize(
    ("value", "method", "group_size"),
    [
        ("int8", "int8", 0),
        ("int4", "int4", 32),
        ("int2", "int2", 32),
        ("mxfp4", "mxfp4", 32),
        ({"method": "int4", "bits": 4, "group_size": 128}, "int4", 128),
        ({"method": "int4", "group_size": 0}, "int4", 0),
    ],
)
def test_names_and_mappings_give_recipes(value, method, group_size):
    assert parse_recipe(value) == QuantizeRecipe(method=method, group_size=group_size)


@pytest.mark.parametrize("method", ["gptq", "awq", "smoothquant", "fp8", "nvfp4", "int3"])
def test_designed_methods_are_recognised_and_refused(method):
    with pytest.raises(NotInThisVersion, match=method):
        parse_recipe({"method": method, "bits": 4})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("itn4", "Did you mean 'int4'"),
        ({"group_size": 32}, "`method` is missing"),
        ({"method": "int4", "gruop_size": 32}, "Did you mean 'group_size'"),
        ({"method": "int4", "bits": 8}, "4 bits"),
        ({"method": "int4", "group_size": -1}, "group_size"),
        ({"method": "int4", "group_size": 12}, "group_size"),
        ({"method": "int4", "group_size": True}, "group_size"),
        ({"method": "mxfp4", "group_size": 16}, "blocks of 32"),
        (4, "expected a name"),
    ],
)
def test_anything_else_says_what_was_meant(value, message):
    with pytest.raises(UsageError, match=message):
        parse_recipe(value)
