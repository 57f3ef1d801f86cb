"""A head that drafts: answers are those of one token a pass, and its drafts are those of one that reads all anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from qualgate.engine.draft_heads import proposer as drafting
from qualgate.engine.draft_heads import rows as held
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.packed import PackedEngine
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits
from qualgate.speculation.propose import NO_DRAFT, Asked
from tests.engine.draft_heads.heads import save_random_head
from tests.engine.engines import answered, opened
from tests.engine.jobs import loaded
from tests.tiny_models import END, save_tiny_model


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    return loaded(save_tiny_model(folder / "model"), folder)


@pytest.fixture(scope="module", params=["eagle", "parallel"])
def head(arm, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("head") / "head"
    return load_head(read_head_folder(save_random_head(folder, arm, layout=request.param, tokens=5)), 2)


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


def reading(engine: Any) -> PackedEngine:
    assert isinstance(engine, PackedEngine)
    return engine


def made(arm, head, engine: Any, *, blocks: int = 512, **how: Any) -> DraftHead:
    found = head.proposer(
        "head", engine.head, arm.model.get_input_embeddings(),
        blocks=blocks, threads=1, stop_ids=frozenset({END}), **how,
    )  # fmt: skip
    assert isinstance(found, DraftHead)
    return found


@pytest.mark.parametrize("blocks", [6, 24, 512])
@pytest.mark.parametrize("limits", [Limits(), Limits(rows=11, sequences=3)])
@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_answers_are_those_of_one_token_a_pass(arm, head, tokens, limits, blocks):
    asked = requests()
    with opened("plain", arm.model) as engine:
        plain = answered(engine, asked)
    with opened("plain", arm.model, limits=limits) as engine:
        proposer, steps = made(arm, head, engine, blocks=blocks), []
        reading(engine).reader = proposer
        told = answered(engine, asked, proposer=proposer, tokens=tokens, steps=steps)
    assert (told.tokens, told.logprobs, told.margins) == (plain.tokens, plain.logprobs, plain.margins)
    assert proposer.blocks_used == 0
    if tokens and blocks > 100:
        assert all(one.proposed for one in steps if one.position and len(told.tokens[one.row]) - one.position > 1)


def states_of(arm, engine: Any, text: list[int]) -> torch.Tensor:
    class Keeping:
        found: torch.Tensor

        def read(self, row, prompt, first, states):
            self.found = states

    keeping = Keeping()
    reading(engine).reader = keeping
    answered(engine, [Request(prompt=tuple(text), max_new_tokens=1)])
    reading(engine).reader = None
    return keeping.found.clone()


def test_a_draft_is_that_of_a_head_that_reads_all_anew_whatever_was_rejected(arm, head, monkeypatch):
    monkeypatch.setattr(held, "HELD", 20)
    monkeypatch.setattr(drafting, "HELD", 20)
    monkeypatch.setattr(drafting, "ROWS", 9)
    draw = random.Random(5)
    text = [draw.randrange(256) for _ in range(70)]
    prompt = tuple(text[:45])
    with opened("plain", arm.model) as engine:
        states = states_of(arm, engine, text)
        going = made(arm, head, engine)
        going.read(0, prompt, 0, states[:30])
        going.read(0, prompt, 30, states[30:45])
        length = 46
        while length < 60:
            (mine,) = going.propose([Asked(0, prompt, text[45:length], 4)])
            fresh = made(arm, head, engine)
            fresh.read(0, tuple(text[:length]), 0, states[: length - 1])
            (anew,) = fresh.propose([Asked(0, tuple(text[:length]), (), 4)])
            assert mine.tokens == anew.tokens
            assert mine.tokens
            accepted = draw.randrange(4)
            read = torch.cat([states[length - 1 : length + accepted], torch.randn(4 - accepted, states.shape[1])])
            going.read(0, prompt, length - 1, read)
            length += 1 + accepted
        going.ended(0)
        assert going.blocks_used == 0


def test_a_parallel_head_makes_a_draft_in_one_pass(arm, tmp_path):
    head = load_head(read_head_folder(save_random_head(tmp_path / "head", arm, layout="parallel", tokens=5)), 2)
    assert head.layer is not None
    with opened("plain", arm.model) as engine:
        proposer, passes = made(arm, head, engine), list[int]()
        layer, forward = head.layer, head.layer.forward

        class Counting:
            joined, entered = staticmethod(layer.joined), staticmethod(lambda states: states)

            @staticmethod
            def forward(x: Any, *rest: Any) -> Any:
                passes.append(len(x))
                return forward(x, *rest)

        proposer._layer = Counting()  # pyright: ignore[reportAttributeAccessIssue]
        proposer.read(0, (1, 2, 3), 0, torch.randn(3, 64))
        assert len(proposer.propose([Asked(0, (1, 2, 3), (4,), 9)])[0].tokens) == 5
        assert len(proposer.propose([Asked(0, (1, 2, 3), (4,), 2)])[0].tokens) in (0, 2)
        assert passes == [3 + 4]


def test_a_row_without_states_is_not_drafted_for_and_one_that_nobody_asks_for_holds_few(arm, head):
    with opened("plain", arm.model) as engine:
        proposer = made(arm, head, engine)
        assert proposer.propose([Asked(3, (1, 2), (5,), 4)]) == [NO_DRAFT]
        proposer.read(0, (1, 2), 0, torch.randn(2, 64))
        for at in range(2, 2 + 3 * held.HELD):
            proposer.read(0, (1, 2), at, torch.randn(1, 64))
        row = proposer._rows[0]
        assert row.end - row.next <= held.HELD
        long = tuple(range(200)) * 20
        for first in range(0, len(long), 500):
            proposer.read(1, long, first, torch.randn(min(500, len(long) - first), 64))
        assert (proposer._rows[1].whole, proposer._rows[1].end) == (True, len(long))
        assert proposer._rows[1].end - proposer._rows[1].next <= 2 * held.HELD


def test_logits_that_are_no_numbers_end_a_draft_and_not_the_answer(arm, head):
    asked = requests(4)
    with opened("plain", arm.model) as engine:
        plain = answered(engine, asked)
        proposer = made(arm, head, engine)

        class Broken:
            vocabulary = engine.head.vocabulary

            def logits(self, states):
                return torch.full((len(states), self.vocabulary), torch.nan)

        proposer._head = Broken()
        reading(engine).reader = proposer
        assert answered(engine, asked, proposer=proposer, tokens=3).tokens == plain.tokens
    assert proposer.broken


def test_once_memory_is_short_nothing_is_drafted_any_more(arm, head, monkeypatch):
    asked = requests(4)
    with opened("plain", arm.model) as engine:
        plain = answered(engine, asked)
        proposer = made(arm, head, engine)
        reading(engine).reader = proposer

        def short(*_: Any) -> Any:
            raise MemoryError

        monkeypatch.setattr(head.layer.__class__, "forward", short)
        assert answered(engine, asked, proposer=proposer, tokens=3).tokens == plain.tokens
        assert proposer.blocks_used == 0
        assert proposer.propose([Asked(0, (1,), (2,), 3)]) == [NO_DRAFT]


def test_texts_that_begin_alike_share_the_blocks_of_their_beginning(arm, head):
    draw = random.Random(3)
    shared = tuple(draw.randrange(256) for _ in range(48))
    asked = [Request(prompt=(*shared, at, at + 1, 9), max_new_tokens=9) for at in range(6)]
    with opened("plain", arm.model) as engine:
        proposer = made(arm, head, engine)
        reading(engine).reader = proposer
        most = 0
        begun = proposer.propose

        def watched(asked: Any) -> Any:
            nonlocal most
            drafts = begun(asked)
            most = max(most, proposer.blocks_used)
            assert all(draft.tokens for draft in drafts)
            return drafts

        proposer.propose = watched  # pyright: ignore[reportAttributeAccessIssue]
        answered(engine, asked, proposer=proposer, tokens=3)
        assert most <= 2 + 6 * 3, "the prompt's first blocks are held once"
        assert not proposer._rows
