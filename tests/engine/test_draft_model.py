"""Models that draft, at every depth: answers are those of one token a pass, whatever is proposed, cut or taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.batch import Batch
from qualgate.engine.draft_blocks import OwnBlocks
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.ngram import Ngram
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from tests.depth import examples
from tests.engine.engines import Told, answered
from tests.engine.fake_decoder import END, VOCABULARY, FakeDecoder, FakeHead, fake_engine, plainly

PROMPT = (1, 2, 3, 4) * 10


def model(
    decoder: FakeDecoder, under: Drafts | None = None, blocks: int = 4096, ends: Sequence[int] = (END,)
) -> DraftModel:
    head: Any = FakeHead()
    return DraftModel(
        "draft", decoder, head, blocks=OwnBlocks(blocks), threads=1, stop_ids=frozenset(ends), under=under
    )


def drafted(proposer: DraftModel, said: Sequence[int], most: int, row: int = 0) -> Draft:
    [draft] = proposer.propose([DraftRequest(row, PROMPT, said, most)])
    return draft


def run(requests: Sequence[Request], drafts: Drafts, target: FakeDecoder, **how: Any) -> Told:
    engine = fake_engine(target, **how)
    return answered(engine, requests, proposer=drafts.proposer, tokens=drafts.tokens, steps=drafts.steps)


tokens = st.integers(0, VOCABULARY - 1)


@given(st.lists(st.lists(tokens, max_size=40), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 8))
@examples(100)
def test_a_draft_is_what_the_model_says_whatever_was_proposed_and_taken_back_before(texts, most, odd):
    proposer = model(FakeDecoder(odd))
    for said in texts:
        assert list(drafted(proposer, said, most).tokens) == plainly([*PROMPT, *said], most, odd)


@st.composite
def cascades(draw: Any) -> list[Drafts]:
    """One to three levels of models that are seldom or mostly right, with few blocks or many; first the one that the
    target verifies."""
    levels = [Drafts(Ngram(), draw(st.sampled_from([0, 1, 4])), [])] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        decoder, blocks = FakeDecoder(draw(st.integers(0, 8))), draw(st.sampled_from([3, 12, 4096]))
        proposer = model(decoder, levels[0] if levels else None, blocks)
        levels.insert(0, Drafts(proposer, draw(st.sampled_from([0, 1, 2, 5, 32])), []))
    return levels


requests = st.lists(
    st.builds(
        Request,
        prompt=st.lists(tokens, min_size=1, max_size=50).map(tuple),
        max_new_tokens=st.integers(1, 40),
        stop_ids=st.sampled_from([frozenset({END}), frozenset()]),
    ),
    min_size=1,
    max_size=5,
)


@given(requests, cascades(), st.integers(0, 8), st.sampled_from([Limits(), Limits(rows=9, sequences=2)]))
@examples(100)
def test_answers_are_those_of_one_token_a_pass_at_every_depth(asked, levels, odd, limits):
    told = run(asked, levels[0], FakeDecoder(odd), limits=limits)
    for request, said in zip(asked, told.tokens, strict=True):
        assert said == plainly(request.prompt, request.max_new_tokens, odd, tuple(request.stop_ids))
    for level in levels:
        for one in level.steps or ():
            assert 0 <= one.accepted <= one.accepted + one.rejected <= one.proposed
            assert one.unverified >= 0
        proposer = level.proposer
        assert not isinstance(proposer, DraftModel) or proposer.blocks_used == 0, "an ended row holds blocks"


def test_the_target_makes_as_many_passes_fewer_as_drafts_are_right():
    asked, target = [Request(prompt=PROMPT, max_new_tokens=31)], FakeDecoder()
    run(asked, Drafts(model(FakeDecoder(), ends=()), 5), target)
    assert target.passes == [len(PROMPT), *[6] * 5]  # the prompt says the first, then 6 tokens a pass


def test_of_what_was_accepted_whole_only_the_last_token_is_read_again():
    decoder = FakeDecoder()
    proposer = model(decoder)
    first = drafted(proposer, (), 4).tokens
    assert decoder.passes == [len(PROMPT), 1, 1, 1]
    decoder.passes.clear()
    drafted(proposer, [*first, 3], 4)  # all of it, and the target's own
    assert decoder.passes[0] == 2
    decoder.passes.clear()
    drafted(proposer, [*first[:2], 4], 4)
    assert decoder.passes[0] == 1


def test_without_a_block_there_is_no_draft_and_with_one_there_is_again():
    proposer = model(FakeDecoder(), blocks=3)  # one row's
    assert drafted(proposer, (), 2, row=0).tokens
    both = [DraftRequest(row, (row, *PROMPT), (), 2) for row in (1, 2)]
    assert [bool(draft.tokens) for draft in proposer.propose(both)] == [True, False]
    proposer.ended(1)
    assert proposer.propose(both[1:])[0].tokens


def test_a_token_that_the_draft_does_not_have_ends_its_drafts():
    proposer = model(FakeDecoder())
    assert drafted(proposer, (1,), 2).tokens
    assert drafted(proposer, (1, VOCABULARY, 1), 2) == NO_DRAFT
    assert drafted(proposer, (1, VOCABULARY, 1, 2), 2) == NO_DRAFT
    assert list(drafted(proposer, (1, 2), 2).tokens) == plainly([*PROMPT, 1, 2], 2)  # it was taken back


def test_logits_that_are_no_numbers_end_a_draft_and_the_target_goes_on_alone():
    right = plainly(PROMPT, 6)
    proposer = model(FakeDecoder(wrong=[[*PROMPT, *right[:2]][-3:]]))
    assert list(drafted(proposer, (), 5).tokens) == right[:2]
    assert proposer.broken == 1
    asked = [Request(prompt=PROMPT, max_new_tokens=6, stop_ids=frozenset({END}))]
    assert run(asked, Drafts(proposer, 3), FakeDecoder()).tokens == [right]


def test_want_of_memory_ends_drafting_and_not_the_run_and_what_breaks_otherwise_ends_it(monkeypatch):
    decoder = FakeDecoder()
    proposer, errors = model(decoder), iter([MemoryError()])
    assert drafted(proposer, (), 2).tokens

    def short(*_: Any) -> torch.Tensor:
        raise next(errors)

    monkeypatch.setattr(decoder, "forward", short)
    asked = [Request(prompt=PROMPT, max_new_tokens=6)]
    assert run(asked, Drafts(proposer, 3), FakeDecoder()).tokens == [plainly(PROMPT, 6, ends=())]
    assert proposer.blocks_used == 0
    assert drafted(proposer, (), 2) == NO_DRAFT
    errors = iter([RuntimeError("the kernel says no")])
    with pytest.raises(RuntimeError, match="says no"):
        drafted(model(decoder), (), 2)


class Interrupting(FakeDecoder):
    """Calls `interrupt` in the middle of its pass number `at`."""

    at = -1
    interrupt: Callable[[], None]

    def forward(self, batch: Batch, states: Any, threads: int) -> torch.Tensor:
        if len(self.passes) == self.at:
            self.interrupt()
        return super().forward(batch, states, threads)


@given(
    st.integers(0, 2), st.integers(0, 25), st.integers(0, 3), st.sampled_from([Limits(), Limits(rows=9, sequences=2)])
)
@examples(60)
def test_whenever_a_request_is_aborted_no_level_keeps_a_block_and_the_others_answer_as_ever(where, at, row, limits):
    """In the middle of a pass of the target, of its draft, or of what drafts for that; while prompts are read, too."""
    passing = [Interrupting(odd=odd) for odd in (0, 2, 4)]
    under = Drafts(model(passing[2]), 2)
    proposer = model(passing[1], under)
    engine = fake_engine(passing[0], limits=limits)
    passing[where].at, passing[where].interrupt = at, lambda: engine.abort(row)
    asked = [Request(prompt=(seed, *PROMPT), max_new_tokens=24, stop_ids=frozenset()) for seed in range(1, 5)]
    told = answered(engine, asked, proposer=proposer, tokens=4)
    for number, request in enumerate(asked):
        whole = plainly(request.prompt, request.max_new_tokens, 0, ())
        aborted = told.reasons[number] == "abort"
        assert told.tokens[number] == whole[: len(told.tokens[number])]
        assert aborted or told.tokens[number] == whole
        assert not aborted or (number == row and len(told.tokens[number]) < len(whole))
    assert len(passing[where].passes) <= at or "abort" in told.reasons or len(told.tokens[row]) == 24
    assert proposer.blocks_used == under.proposer.blocks_used == 0
    assert engine.lend(row, 1) is None, "no run goes on"
