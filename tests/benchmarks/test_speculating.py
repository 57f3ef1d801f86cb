"""Batches whose prompts are read at once: passes behind the last first token are those that the law foretells."""

from __future__ import annotations

import pytest

from qualgate import refmodel
from tests.benchmarks import ours
from tests.benchmarks.cells import fates
from tests.benchmarks.questions import asked_of
from tests.benchmarks.speculating import Level, answered, drafted, short
from tests.benchmarks.speedup import course_of

TOKENS = 8


def test_nobody_says_a_second_token_while_prompts_are_read_and_passes_are_as_many_as_foretold(tmp_path):
    plain, packed = (ours.load(str(recipe), refmodel.PATH, tmp_path, recipe) for recipe in (None, "mxfp4"))
    arm = drafted(plain, Level(by=packed, tokens=TOKENS))
    prompts = short(asked_of({"tool_calls": ("tool_calls",)}, 8)["tool_calls"], 32)
    assert sum(len(one.token_ids) for one in prompts) > 512, "more than a pass reads otherwise"
    [fate] = fates({("mxfp4", TOKENS): arm}, {"tool_calls": prompts}, [8]).values()
    for at_once in (False, True):
        told = answered(arm, prompts, batch=8, at_once=at_once)
        begun = max(told.first)
        said = sum(len(one.rows) for one in told.passes if one.seconds <= begun)
        assert (said == len(prompts)) is at_once
    course = zip(told.tokens, fate, strict=True)
    foretold = max(course_of(len(tokens) - 1, TOKENS, mine)[0] for tokens, mine in course)
    assert sum(one.seconds > begun for one in told.passes) == pytest.approx(foretold, abs=0.5)
