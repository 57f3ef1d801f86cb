"""The steps of padded batches: what is read together, what is decoded at all, and who is carried along."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qualgate.engine.padded import step_loop
from qualgate.engine.padded.transcript import Transcript
from qualgate.engine.request import Request, Tally
from tests.engine.engines import Told, answered, load, opened
from tests.tiny_models import END

STOPS = frozenset({END, 3, 50, 99, 120, 200})


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(request, saved) -> Any:
    return load(saved(arch=request.param))


@pytest.fixture(scope="module")
def engine(model) -> Iterator[Any]:
    with opened("padded", model) as engine:
        yield engine


@pytest.fixture
def widths(model, monkeypatch) -> list[tuple[int, int]]:
    """(rows, new slots) of each forward pass."""
    found: list[tuple[int, int]] = []
    real = type(model).forward

    @wraps(real)
    def counted(self, *args, **kwargs):
        found.append(tuple(kwargs["input_ids"].shape))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", counted)
    return found


def asked(count: int = 16) -> list[Request]:
    draw = random.Random(0)
    return [
        Request(
            prompt=tuple(draw.randrange(256) for _ in range(draw.choice([1, 7, 30, 60]))),
            max_new_tokens=draw.choice([1, 5, 16, 28]),
            stop_ids=STOPS,
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def plain(engine) -> Told:
    return answered(engine, asked())


def offered(told: Told, wrong: int | None = None) -> list[Request]:
    """The same, with the answers offered; `wrong`: another token at this place of each that has it."""
    answers = [[*tokens] for tokens in told.tokens]
    for answer in answers:
        if wrong is not None and wrong < len(answer):
            answer[wrong] = (answer[wrong] + 1) % 256
    return [replace(request, answer=tuple(answer)) for request, answer in zip(asked(), answers, strict=True)]


def test_answers_that_agree_to_their_end_cost_one_pass_whatever_their_length(engine, plain, widths):
    told = answered(engine, offered(plain))
    assert told.tokens == plain.tokens
    assert len(widths) == 1


def test_only_what_left_its_answer_is_decoded_from_there_on(engine, plain, widths):
    told = answered(engine, offered(plain, wrong=4))
    assert told.tokens == plain.tokens
    left = [len(tokens) - 5 for tokens in plain.tokens if len(tokens) > 4]
    assert max(left) > 0
    assert len(widths) == 1 + max(left)
    assert widths[1][0] == sum(count > 0 for count in left)
    assert all(new == 1 for _, new in widths[1:])


@pytest.mark.parametrize("tokens", [1, 70, 200])
def test_parts_that_are_read_apart_change_no_token(engine, plain, monkeypatch, widths, tokens):
    monkeypatch.setattr(step_loop, "READ_TOKENS", tokens)
    for requests in (asked(), offered(plain), offered(plain, wrong=2)):
        widths.clear()
        assert answered(engine, requests).tokens == plain.tokens
        reads = [(rows, new) for rows, new in widths if new > 1]
        # Of rows that read answers the longest prompt and the longest answer may be two rows'.
        assert all(rows == 1 or rows * new <= 2 * tokens for rows, new in reads)


def test_who_has_ended_is_carried_along_until_a_quarter_has(engine, plain, widths):
    answered(engine, asked())
    lengths = [len(tokens) for tokens in plain.tokens]
    batch = 0
    for step, (rows, _) in enumerate(widths[1:], 1):
        going = sum(length > step for length in lengths)
        if step == 1 or going <= step_loop.CROWDED * batch:
            batch = going
        assert rows == batch
    assert batch <= len(lengths) / 4


def test_logits_that_stand_for_states_bound_what_is_read_together(engine, plain, monkeypatch, widths):
    monkeypatch.setattr(engine.head, "whole", False)
    monkeypatch.setattr(step_loop, "LOGITS_AT_ONCE", 60 * engine.head.vocabulary)
    requests = [replace(request, max_new_tokens=0) for request in offered(plain)]
    told = answered(engine, requests)
    assert [[said for _, said, _ in read] for read in told.reads] == plain.tokens
    assert len(widths) > 1


def test_answers_are_read_on_without_keys_and_values_where_nothing_is_to_be_said(engine, plain, monkeypatch):
    def refuse(*_: Any) -> Any:
        raise AssertionError("a cache was made")

    monkeypatch.setattr(step_loop, "new_cache", refuse)
    answered(engine, [replace(request, max_new_tokens=0) for request in offered(plain)])
    with pytest.raises(AssertionError, match="a cache was made"):
        engine.run(offered(plain), None, lambda _: None)
    with pytest.raises(AssertionError, match="a cache was made"):
        engine.run(asked(), None, lambda _: None)


def test_states_that_are_told_do_not_hold_all_that_was_computed():
    told, head = [], SimpleNamespace(logits=lambda states: states, vocabulary=5)
    transcript = Transcript(asked(2), head, told.append, None, Tally())
    logits = torch.nn.functional.one_hot(torch.tensor([2, 3]), 5).float()
    transcript.say(transcript.rows, logits, torch.zeros(2, 1000, 8)[:, -1])
    assert told[0].states.untyped_storage().nbytes() == 2 * 8 * 4
