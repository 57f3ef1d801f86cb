"""A head that drafts: answers are those of one token a pass, and its drafts are those of one that reads all anew."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qualgate.engine.draft_heads import proposer as drafting
from qualgate.engine.draft_heads import rows as held
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.propose import NO_DRAFT, DraftRequest
from tests.engine.draft_heads.heads import save_eagle3, states_of
from tests.engine.engines import answered, opened
from tests.tiny_models import END


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    folder = save_eagle3(tmp_path_factory.mktemp("head") / "head", reads=[1])
    return load_head(read_head_folder(folder), 2, torch.empty(0))


def requests(count: int = 10, *, longest: int = 60) -> list[Request]:
    draw = random.Random(2)
    shared = tuple(draw.randrange(256) for _ in range(40))
    return [
        Request(
            prompt=(*shared[: draw.choice([0, 20, 40])], *(draw.randrange(256) for _ in range(1 + at * longest // 10))),
            max_new_tokens=draw.choice([1, 7, 30]),
            stop_ids=frozenset({END}),
        )
        for at in range(count)
    ]


@pytest.fixture
def engine(tiny_arm):
    with opened("plain", tiny_arm.model) as engine:
        engine.tapped = partial(engine.decoder.tapped, after=(1,))
        yield engine


@pytest.fixture
def made(tiny_arm, head, engine):
    """Makes a proposer, which reads what the engine does."""

    def of(blocks: int = 512) -> Any:
        embed = tiny_arm.model.get_input_embeddings()
        found = head.proposer("head", engine.head, embed, blocks=blocks, threads=1, stop_ids=frozenset({END}))
        assert isinstance(found, DraftHead)
        engine.reader = found
        return found

    return of


LIMITED = Limits(rows=11, sequences=3)
EVERY = list(product([0, 1, 5], [Limits(), LIMITED], [6, 24, 512]))
NOW = [(0, Limits(), 512), (5, Limits(), 512), (5, LIMITED, 24), (1, LIMITED, 6)]


@pytest.fixture(scope="module")
def plain(tiny_arm):
    with opened("plain", tiny_arm.model) as engine:
        return answered(engine, requests())


@pytest.mark.parametrize(
    ("tokens", "limits", "blocks"),
    [pytest.param(*case, marks=() if case in NOW else pytest.mark.proof) for case in EVERY],
)
def test_answers_are_those_of_one_token_a_pass(engine, made, plain, tokens, limits, blocks):
    engine.limits, proposer, steps = limits, made(blocks), []
    told = answered(engine, requests(), proposer=proposer, tokens=tokens, steps=steps)
    assert (told.tokens, told.logprobs, told.margins) == (plain.tokens, plain.logprobs, plain.margins)
    assert proposer.blocks_used == 0
    if tokens and blocks > 100:
        assert all(one.proposed for one in steps if one.position and len(told.tokens[one.row]) - one.position > 1)


def test_a_draft_is_that_of_a_head_that_reads_all_anew_whatever_was_rejected(engine, made, monkeypatch):
    monkeypatch.setattr(held, "HELD", 20)
    monkeypatch.setattr(drafting, "HELD", 20)
    monkeypatch.setattr(drafting, "ROWS", 9)
    draw = random.Random(5)
    text = [draw.randrange(256) for _ in range(70)]
    prompt, states, length = tuple(text[:45]), states_of(engine, text), 46
    going = made()
    going.read(0, prompt, 0, states[:30])
    going.read(0, prompt, 30, states[30:45])
    while length < 60:
        (mine,) = going.propose([DraftRequest(0, prompt, text[45:length], 4)])
        fresh = made()
        fresh.read(0, tuple(text[:length]), 0, states[: length - 1])
        (anew,) = fresh.propose([DraftRequest(0, tuple(text[:length]), (), 4)])
        assert mine.tokens == anew.tokens
        assert mine.tokens
        accepted = draw.randrange(4)
        read = torch.cat([states[length - 1 : length + accepted], torch.randn(4 - accepted, states.shape[1])])
        going.read(0, prompt, length - 1, read)
        length += 1 + accepted
    going.ended(0)
    assert going.blocks_used == 0


def test_a_row_without_states_is_not_drafted_for_and_one_that_nobody_asks_for_holds_few(made):
    proposer = made()
    assert proposer.propose([DraftRequest(3, (1, 2), (5,), 4)]) == [NO_DRAFT]
    proposer.read(0, (1, 2), 0, torch.randn(2, 64))
    for at in range(2, 2 + 3 * held.HELD):
        proposer.read(0, (1, 2), at, torch.randn(1, 64))
    row = proposer._rows[0]
    assert row.end - row.next <= held.HELD
    long = tuple(range(200)) * 20
    for first in range(0, len(long), 500):
        proposer.read(1, long, first, torch.randn(min(500, len(long) - first), 64))
    row = proposer._rows[1]
    assert (row.whole, row.end) == (True, len(long))
    assert row.end - row.next <= 2 * held.HELD


def test_logits_that_are_no_numbers_or_want_of_memory_end_a_draft_and_not_the_answer(
    engine, head, made, plain, monkeypatch
):
    proposer = made()
    proposer._head = SimpleNamespace(vocabulary=260, logits=lambda states: torch.full((len(states), 260), torch.nan))
    assert answered(engine, requests(), proposer=proposer, tokens=3).tokens == plain.tokens
    assert proposer.broken

    def short(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(head.layer.__class__, "forward", short)
    proposer = made()
    assert answered(engine, requests(), proposer=proposer, tokens=3).tokens == plain.tokens
    assert proposer.blocks_used == 0
    assert proposer.propose([DraftRequest(0, (1,), (2,), 3)]) == [NO_DRAFT]


def test_texts_that_begin_alike_share_the_blocks_of_their_beginning(engine, made):
    draw = random.Random(3)
    shared = tuple(draw.randrange(256) for _ in range(48))
    asked = [Request(prompt=(*shared, at, at + 1, 9), max_new_tokens=9) for at in range(6)]
    proposer, used = made(), list[int]()
    begun = proposer.propose

    def watched(asked: Any) -> Any:
        drafts = begun(asked)
        used.append(proposer.blocks_used)
        assert all(draft.tokens for draft in drafts)
        return drafts

    proposer.propose = watched
    answered(engine, asked, proposer=proposer, tokens=3)
    assert max(used) <= 2 + 6 * 3, "the prompt's first blocks are held once"
    assert not proposer._rows
