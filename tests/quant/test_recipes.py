"""The gate file's `quantize:` values."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.recipes import BITS, CALIBRATED, OPTIONS, bits_of, fits, layer_recipe, parse_recipe, plain
from qualgate.records import QuantizeRecipe
from tests.tables import each_row

DATA = "./ours/calibration.yaml"


@pytest.mark.parametrize(
    ("value", "method", "group_size"),
    [
        ("int8", "int8", 0),
        ("int4", "int4", 32),
        ("int3", "int3", 32),
        ("int2", "int2", 32),
        ("mxfp4", "mxfp4", 32),
        ("mxfp8", "mxfp8", 32),
        ("nvfp4", "nvfp4", 16),
        ("fp8", "fp8", 0),
        ({"method": "int4", "bits": 4, "group_size": 128}, "int4", 128),
        ({"method": "int4", "group_size": 0}, "int4", 0),
    ],
)
def test_names_and_mappings_give_recipes(value, method, group_size):
    assert parse_recipe(value) == QuantizeRecipe(method=method, group_size=group_size)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("int4", "int4 g32"),
        ("int8", "int8 per row"),
        ("mxfp4", "mxfp4"),
        ({"method": "int8", "granularity": "tensor", "activations": "int8"}, "int8 per tensor a-int8"),
        ({"method": "int3", "symmetric": False, "clip": "mse"}, "int3 g32 asym clip-mse"),
        ({"method": "fp8", "granularity": "block", "activations": "fp8"}, "fp8 128x128 a-fp8"),
        ({"method": "fp8", "element": "e5m2"}, "fp8 e5m2 per row"),
        ({"method": "mxfp4", "exponent": "rounded"}, "mxfp4 exponent-rounded"),
        ({"method": "gptq", "act_order": True, "calibration": DATA}, "gptq int4 g128 act-order"),
        ({"method": "gptq", "bits": 3, "act_order": "static", "calibration": DATA}, "gptq int3 g128 act-order-static"),
        ({"method": "awq", "calibration": DATA}, "awq int4 g128"),
        ({"method": "smoothquant", "calibration": DATA}, "smoothquant per row a-int8"),
        ({"method": "mxfp4", "keep": {"lm_head": "bf16", "layers.0.*": "int8"}}, "mxfp4 keep"),
    ],
)
def test_a_label_says_what_was_chosen(value, label):
    assert parse_recipe(value).label == label


def test_what_an_older_version_could_say_keeps_its_identity():
    """Cached checkpoints and stored runs are keyed by it."""
    assert parse_recipe("int4").content == {"method": "int4", "group_size": 32}


def test_a_recipe_survives_json_and_can_be_a_key():
    recipe = parse_recipe({"method": "gptq", "calibration": DATA, "keep": {"layers.0.*": "int8"}})
    again = QuantizeRecipe(**{**asdict(recipe), "keep": [["layers.0.*", "int8"]]})
    assert hash(again) == hash(recipe)
    assert again == recipe


def test_where_calibration_lies_is_no_content_and_what_it_holds_is():
    recipe = replace(parse_recipe({"method": "awq", "calibration": DATA}), calibration_sha256="1")
    assert replace(recipe, calibration="elsewhere").content == recipe.content
    assert replace(recipe, calibration_sha256="2").content != recipe.content


def test_keep_gives_each_layer_its_own_recipe():
    recipe = parse_recipe(
        {"method": "mxfp4", "keep": {"layers.0.mlp.down_proj": "bf16", "layers.0.*": "int8", "attention": "int4"}}
    )
    found = {
        name: layer_recipe(recipe, f"model.layers.{name}")
        for name in ("0.mlp.down_proj", "0.mlp.up_proj", "1.self_attn.q_proj", "1.mlp.up_proj")
    }
    assert {name: own.method if own else None for name, own in found.items()} == {
        "0.mlp.down_proj": None, "0.mlp.up_proj": "int8", "1.self_attn.q_proj": "int4", "1.mlp.up_proj": "mxfp4",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("layers.0.*", True), ("model.layers.0.*", True), ("down_proj", True), ("*", True), ("mlp", True),
        ("attention", False), ("ayers.0.*", False), ("layers.1.*", False), ("layers.0", False),
    ],
)  # fmt: skip
def test_a_pattern_may_begin_at_any_part_of_a_name(pattern, fitting):
    assert fits(pattern, "model.layers.0.mlp.down_proj") == fitting


@pytest.mark.parametrize("method", CALIBRATED)
def test_a_calibrated_method_has_a_plain_twin_of_equal_bits(method):
    recipe = parse_recipe({"method": method, "calibration": DATA})
    twin = plain(recipe)
    assert bits_of(twin) == bits_of(recipe)
    assert (twin.group_size, twin.symmetric, twin.activations) == (
        recipe.group_size, recipe.symmetric, recipe.activations,
    )  # fmt: skip
    assert not twin.calibration


@pytest.mark.parametrize("method", ["nf4", "fp4"])
def test_designed_methods_are_recognised_and_refused(method):
    with pytest.raises(NotInThisVersion, match=method):
        parse_recipe({"method": method, "bits": 4})


@each_row(
    ("value", "message"),
    [
        ("itn4", "Did you mean 'int4'"),
        ("gptg", "Did you mean 'gptq'"),
        ({"group_size": 32}, "`method` is missing"),
        ({"method": "int4", "gruop_size": 32}, "Did you mean 'group_size'"),
        ({"method": "int4", "bits": 8}, "4 bits"),
        ({"method": "int4", "group_size": -1}, "group_size"),
        ({"method": "int4", "group_size": 12}, "group_size"),
        ({"method": "int4", "group_size": True}, "group_size"),
        ({"method": "mxfp4", "group_size": 16}, "blocks of 32"),
        ({"method": "nvfp4", "group_size": 32}, "blocks of 16"),
        ({"method": "int8", "group_size": 32, "granularity": "tensor"}, "contradict"),
        ({"method": "int8", "granularity": "block"}, "only for fp8"),
        ({"method": "fp8", "group_size": 128}, "contradict"),
        ({"method": "int4", "act_order": True}, "int4 has no `act_order`; gptq has"),
        ({"method": "int4", "clip": "max"}, "mse or percentile"),
        ({"method": "int4", "calibration": DATA}, "int4 needs no data"),
        ({"method": "gptq", "calibration": 3}, "name or a path"),
        ({"method": "mxfp4", "keep": {"mlp": "in8"}}, "Did you mean 'int8'"),
        ({"method": "mxfp4", "keep": {"mlp": "gptq"}}, "`keep` has 'gptq'"),
        ({"method": "mxfp4", "keep": {"lm_head": "int8"}}, "the output head stays a float"),
        (4, "expected a name"),
    ],
)
def test_anything_else_says_what_was_meant(value, message):
    with pytest.raises(UsageError, match=message):
        parse_recipe(value)


def test_every_option_names_methods_there_are():
    for option in OPTIONS.values():
        assert set(option.methods) <= set(BITS)
