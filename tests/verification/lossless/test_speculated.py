"""The two ways to find a law agree, and with what is known of it."""

from __future__ import annotations

from math import fsum

import pytest
import torch

from qualgate.speculation.propose import NO_DRAFT
from qualgate.speculation.rules import RULES
from tests.verification.lossless.cells import LOSSLESS, drafting
from tests.verification.lossless.chances import every_way, total_variation
from tests.verification.lossless.code_mutants import DraftsByPosition
from tests.verification.lossless.drafting import Level, OneHot, Wary, likeliest, texts
from tests.verification.lossless.models import families
from tests.verification.lossless.mutants import of_model
from tests.verification.lossless.speculated import Speculated

UNLIKE, CUT, ALIKE, RARE = families(3, 7)
PAIR = families(2, 7)[0]


def test_models_are_what_their_names_say():
    for family in (UNLIKE, CUT, ALIKE, RARE):
        for model in (family.target, *family.drafts):
            assert torch.allclose(model.table.sum(-1), torch.ones(4, dtype=torch.float64), atol=1e-15)
    assert (CUT.target.table == 0).any()
    assert any(((CUT.target.table > 0) & (draft.table == 0)).any() for draft in CUT.drafts)
    assert any(((CUT.target.table == 0) & (draft.table > 0)).any() for draft in CUT.drafts)
    assert ALIKE.drafts[0].table.equal(ALIKE.target.table)
    assert 0 < (ALIKE.drafts[1].table - ALIKE.target.table).abs().max() < 1e-8
    assert (RARE.drafts[0].table.half() == 0).any()
    greedy = UNLIKE.greedy().target.table
    assert greedy.gather(-1, UNLIKE.target.table.argmax(-1, keepdim=True)).eq(1).all()
    assert fsum(UNLIKE.target.answers(3).values()) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["model", "model < model by block_verification", "known answer"])
def test_both_ways_find_one_law_of_a_right_rule_and_of_a_wrong_one(rule: str, name: str):
    how = Speculated(target=PAIR.target, drafting=drafting(PAIR)[name], rule=RULES[rule])
    whole, reused = how.whole_law(3)
    by_rounds, _ = how.answers_law(3)
    assert total_variation(whole, by_rounds) < 1e-14
    assert not reused
    assert (total_variation(whole, PAIR.target.answers(3)) < 1e-14) == (rule in LOSSLESS)


def test_a_levels_drafts_are_those_that_it_makes():
    level = Level(UNLIKE.drafts[0], "speculative_sampling", Level(UNLIKE.drafts[1]))
    made: dict[tuple[int, ...], float] = {}
    for draft, numbers in every_way(lambda chance: level.draft((1,), 3, chance)):
        assert draft.drawn_from is not None
        assert draft.drawn_from.equal(UNLIKE.drafts[0].behind((1,), draft.tokens)[:-1])
        made[draft.tokens] = made.get(draft.tokens, 0.0) + numbers.probability
    listed: dict[tuple[int, ...], float] = {}
    for draft, probability in level.drafts((1,), 3).values():
        listed[draft.tokens] = listed.get(draft.tokens, 0.0) + probability
    assert total_variation(made, listed) < 1e-14
    assert {len(tokens) for tokens in made} == {3}


def test_drafts_that_are_always_right_save_every_pass_but_the_last():
    greedy = UNLIKE.greedy()
    how = Speculated(target=greedy.target, drafting=likeliest(UNLIKE.target), rule=RULES["speculative_sampling"])
    law, accepted = how.answers_law(4)
    assert law == greedy.target.answers(4)
    assert accepted == 3.0
    nothing = Speculated(target=UNLIKE.target, drafting=OneHot(lambda said, most: ()), rule=RULES["keyed"])
    assert nothing.answers_law(2)[1] == 0.0


def test_an_unlikely_token_ends_a_draft_and_is_kept_or_left_out():
    inner = Level(UNLIKE.drafts[0])
    whole = inner.drafts((), 3)
    kept, dropped = (Wary(inner, keeping=keeping).drafts((), 3) for keeping in (True, False))
    for laws, most in ((kept, 1), (dropped, 0)):
        unlikely = 0
        for draft, _ in laws.values():
            rows = draft.drawn_from.tolist() if draft.drawn_from is not None else []
            low = [row[token] < 0.4 for row, token in zip(rows, draft.tokens, strict=True)]
            assert not any(low[:-1])
            assert sum(low) <= most
            unlikely += sum(low)
        assert (unlikely > 0) == bool(most)
        assert fsum(p for _, p in laws.values()) == pytest.approx(1)
    assert len(whole) > len(kept)
    assert any(draft == NO_DRAFT for draft, _ in dropped.values())


def test_texts_draft_behind_nearly_everything():
    for name, one in texts(3).items():
        found = [bool(one.draft((a, b, c), 2).tokens) for a in range(3) for b in range(3) for c in range(3)]
        assert sum(found) >= 9, name


def test_drafts_by_position_do_no_harm_token_by_token_and_do_in_blocks():
    """Token by token, what lies behind a rejected token decided nothing; in a block it did."""
    pair, far = families(2, 1)[0], {}
    for rule in ("speculative_sampling", "block_verification"):
        law, reused = of_model(pair, RULES[rule], DraftsByPosition(pair.drafts[0])).whole_law(3)
        assert reused
        far[rule] = total_variation(law, pair.target.answers(3))
    assert far["speculative_sampling"] < 1e-14
    assert far["block_verification"] > 1e-2
