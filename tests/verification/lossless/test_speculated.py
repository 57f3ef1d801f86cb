"""The two ways to find a law agree, and with what is known of it."""

from __future__ import annotations

import pytest
import torch

from qualgate.speculation.propose import Asked
from qualgate.speculation.rules import RULES
from tests.verification.lossless.cells import LOSSLESS, drafting
from tests.verification.lossless.chances import every_way, total_variation
from tests.verification.lossless.drafting import PROMPT, Level, texts
from tests.verification.lossless.models import families
from tests.verification.lossless.speculated import Speculated

UNLIKE, CUT, ALIKE, RARE = families(3, 7)
PAIR = families(2, 7)[0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["model", "model < model by block_verification", "known answer"])
def test_both_ways_find_one_law_of_a_right_rule_and_of_a_wrong_one(rule: str, name: str):
    how = Speculated(target=PAIR.target, drafting=drafting(PAIR)[name], rule=RULES[rule])
    whole, reused = how.whole_law(3)
    by_rounds, _ = how.answers_law(3)
    assert total_variation(whole, by_rounds) < 1e-14
    assert not reused
    assert (total_variation(whole, PAIR.target.answers(3)) < 1e-14) == (rule in LOSSLESS)


@pytest.mark.parametrize("below", [Level(UNLIKE.drafts[1]), texts(3)["n-gram"]], ids=["model", "n-gram"])
def test_a_levels_drafts_are_those_that_it_makes_whole(below):
    """Pass by pass with each draft below that there may be, or at once with all that drafts below it."""
    level = Level(UNLIKE.drafts[0], "block_verification", below)
    made: dict[tuple[int, ...], float] = {}
    for draft, numbers in every_way(
        lambda chance: level.begun(chance.numbers).propose([Asked(0, PROMPT, (1,), 3)])[0],
    ):
        assert draft.drawn_from is not None
        assert torch.allclose(draft.drawn_from, UNLIKE.drafts[0].behind((1,), draft.tokens)[:-1], atol=1e-15, rtol=0)
        made[draft.tokens] = made.get(draft.tokens, 0.0) + numbers.probability
    listed: dict[tuple[int, ...], float] = {}
    for draft, probability in level.drafts((1,), 3).values():
        assert draft.drawn_from is not None
        listed[draft.tokens] = listed.get(draft.tokens, 0.0) + probability
    assert total_variation(made, listed) < 1e-14
    assert {len(tokens) for tokens in made} == {3}
