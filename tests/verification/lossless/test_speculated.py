"""The two ways to find a law agree, and with what is known of it."""

from __future__ import annotations

from math import fsum
from typing import Any

import pytest
import torch

from qualgate.engine.draft_model import DraftModel
from qualgate.speculation.ngram import Ngram
from qualgate.speculation.propose import NO_DRAFT, Asked
from qualgate.speculation.rules import RULES
from tests.verification.lossless.cells import LOSSLESS, drafting
from tests.verification.lossless.chances import Numbers, every_way, total_variation
from tests.verification.lossless.code_mutants import drafts_by_position
from tests.verification.lossless.drafting import PROMPT, Found, Level, Resting, Wary, texts
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


def test_a_level_that_is_shown_another_text_is_stopped():
    model: Any = Level(UNLIKE.drafts[0]).begun(Numbers([]))
    model._decoder.behind = [(1, 0, 2)]
    with pytest.raises(AssertionError, match="another text than the one that was said"):
        DraftModel.propose(model, [Asked(0, PROMPT, (1,), 1)])


def test_drafts_that_are_always_right_save_every_pass_but_the_last():
    greedy = UNLIKE.greedy()
    how = Speculated(target=greedy.target, drafting=Level(UNLIKE.target, ""), rule=RULES["speculative_sampling"])
    law, accepted = how.answers_law(4)
    assert law == greedy.target.answers(4)
    assert accepted == 3.0
    nothing = Speculated(target=UNLIKE.target, drafting=Found(_Nothing), rule=RULES["keyed"])
    assert nothing.answers_law(2)[1] == 0.0


class _Nothing(Ngram):
    def propose(self, asked):
        return [NO_DRAFT for _ in asked]


def test_who_is_not_always_asked_drafts_behind_every_other_token():
    resting = Resting(Level(UNLIKE.drafts[0]))
    assert [len(draft.tokens) for draft, _ in resting.drafts((1,), 2).values()] == [0]
    assert {len(draft.tokens) for draft, _ in resting.drafts((1, 2), 2).values()} == {2}
    proposer = resting.begun(Numbers([]))
    assert proposer.propose([Asked(0, PROMPT, (1,), 2)]) == [NO_DRAFT]
    assert len(proposer.propose([Asked(0, PROMPT, (1, 2), 2)])[0].tokens) == 2


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
        some = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
        drafts = [draft for said in some for draft, _ in one.drafts(said, 2).values()]
        assert sum(bool(draft.tokens) for draft in drafts) >= 9, name


def test_drafts_by_position_do_no_harm_token_by_token_and_do_in_blocks():
    """Token by token, what lies behind a rejected token decided nothing; in a block it did."""
    pair, far = families(2, 1)[0], {}
    for rule in ("speculative_sampling", "block_verification"):
        law, reused = of_model(pair, RULES[rule], drafts_by_position(pair.drafts[0])).whole_law(3)
        assert reused
        far[rule] = total_variation(law, pair.target.answers(3))
    assert far["speculative_sampling"] < 1e-14
    assert far["block_verification"] > 1e-2
