from __future__ import annotations

import pytest

from qualgate.quant.recipes import parse_recipe
from tests.benchmarks import bits
from tests.benchmarks.bits import Fared
from tests.benchmarks.speedup import Accepted


def test_formats_are_eight_or_more_from_8_to_2_bits_and_each_kept_one_has_a_base():
    recipes = {name: parse_recipe(recipe) for name, recipe in (bits.FORMATS | bits.KEPT).items()}
    assert len({(one.method, one.group_size) for one in recipes.values()}) >= 8
    assert {"int8", "int2"} <= {one.method for one in recipes.values()}
    for name in bits.KEPT:
        base = recipes[bits.BASE[name.partition(",")[0]]]
        assert recipes[name].method == base.method
        assert recipes[name].group_size == base.group_size
        assert recipes[name].keep


def test_a_draft_s_worth_is_its_tokens_over_its_bits():
    assert bits.worth_of(Accepted(drafted=1.0, chances=[1.0]), 4.0, 8) == pytest.approx(9 / (1 + 8 / 4))
    assert bits.worth_of(Accepted(drafted=1.0, chances=[0.5]), 8.0, 2) == pytest.approx(1.75 / 2)


def test_keeping_layers_is_held_against_the_same_format_without():
    def of(worth):
        return Fared(bits=4.0, share={}, tokens_a_pass={}, worth=worth, best=1)

    found = {"mxfp4": of(2.0), "int3_g32": of(1.0), "int2_g32": of(1.0)}
    name = next(iter(bits.KEPT))
    assert bits.keeping(found | {name: of(1.5)}) == {name: 0.75}
