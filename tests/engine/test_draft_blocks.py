"""Drafts behind the target's text: they read nothing, keep nothing, and no answer shows that they were there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.draft_arms import lending
from qualgate.engine.draft_blocks import LentBlocks
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.packed import PackedEngine
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.ngram import Ngram
from qualgate.engine.speculation.steps import Drafts
from qualgate.records import DraftSource, Speculation
from tests.depth import examples
from tests.engine.engines import answered
from tests.engine.fake_decoder import END, VOCABULARY, FakeDecoder, FakeHead, fake_engine, plainly
from tests.engine.jobs import INT4, INT8, NGRAM

SELF = Speculation(draft=DraftSource(kind="quantize", quantize=INT4))


def behind(engine: PackedEngine, decoder: FakeDecoder, under: Drafts | None = None) -> DraftModel:
    head: Any = FakeHead()
    blocks = LentBlocks(engine)
    return DraftModel("draft", decoder, head, blocks=blocks, threads=1, stop_ids=frozenset({END}), under=under)


tokens = st.integers(0, VOCABULARY - 1)
prompts = st.lists(st.lists(tokens, min_size=1, max_size=50).map(tuple), min_size=1, max_size=5)


@given(
    prompts,
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0, 1, 2, 5, 32])), min_size=1, max_size=3),
    st.booleans(),
    st.integers(6, 40),
    st.sampled_from([Limits(), Limits(rows=9, sequences=2)]),
)
@examples(80)
def test_answers_are_those_of_one_token_a_pass_at_every_depth(texts, levels, looks_up, blocks, limits):
    """With few blocks too, of which drafts take none from anybody."""
    target = FakeDecoder(odd=3)
    engine = fake_engine(target, blocks=blocks, limits=limits)
    below = Drafts(Ngram(), 3, []) if looks_up else None
    for odd, count in levels:  # all in the same slots
        below = Drafts(behind(engine, FakeDecoder(odd, slots=target.slots), below), count, [])
    assert below is not None
    asked = [Request(prompt=text, max_new_tokens=30, stop_ids=frozenset({END})) for text in texts]
    told = answered(engine, asked, proposer=below.proposer, tokens=below.tokens)
    assert told.tokens == [plainly(one.prompt, 30, 3) for one in asked]
    assert engine._pool.used == 0


def test_it_reads_no_prompt_and_drafts_as_one_that_read_it():
    target = FakeDecoder()
    decoder, engine = FakeDecoder(slots=target.slots), fake_engine(target)
    prompt = (1, 2, 3, 4) * 10
    proposer = behind(engine, decoder)
    answered(engine, [Request(prompt=prompt, max_new_tokens=31)], proposer=proposer, tokens=5)
    assert decoder.passes == [1] * len(decoder.passes)
    assert target.passes[0] == len(prompt)
    assert sum(target.passes[1:]) == 30  # every row of them said a token: all drafts were right
    assert len(target.passes) < 8
    assert proposer.blocks_used == 0


def test_who_finds_no_block_is_not_drafted_for_and_goes_on():
    target = FakeDecoder()
    engine, prompt = fake_engine(target, blocks=4), (1, 2, 3) * 9
    assert engine.lend(0, 1) is None, "without a run nothing is lent"
    proposer = behind(engine, FakeDecoder(slots=target.slots))
    told = answered(engine, [Request(prompt=prompt, max_new_tokens=36)], proposer=proposer, tokens=32)
    assert told.tokens == [plainly(prompt, 36, ends=())]


CASES: Sequence[tuple[Speculation, int]] = (
    (SELF, 1),
    (Speculation(draft=replace(SELF.draft, under=SELF)), 2),
    (Speculation(draft=replace(SELF.draft, under=NGRAM)), 1),
    (NGRAM, 0),
)


@pytest.mark.parametrize(("speculation", "levels"), CASES)
def test_what_is_made_of_the_model_that_verifies_it_drafts_behind_its_text(arms_of, speculation, levels):
    arm = arms_of()("variant", INT8, speculation=speculation)
    assert arm.draft is not None
    own = [model and model.choice for model in arm.draft.arms]
    assert lending(arm.choice, speculation, own) == levels
    assert lending(replace(arm.choice, numbers=1), speculation, own) == (0 if any(own) else levels)
