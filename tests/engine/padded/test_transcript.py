"""What is told of a run of padded batches, from logits alone: no model here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from qualgate.engine.padded import transcript as module
from qualgate.engine.padded.transcript import Transcript
from qualgate.engine.request import Ended, Event, Read, Request, Spoken, Tally

VOCABULARY = 5


def logits_of(*tokens: int) -> torch.Tensor:
    """Of rows that say these tokens."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float() * 9


def begun(*requests: Request) -> tuple[Transcript, list[Event]]:
    """A transcript whose states are the logits, and what it will tell."""
    told: list[Event] = []
    head: Any = SimpleNamespace(logits=lambda states: states, vocabulary=VOCABULARY)
    return Transcript(requests, head, told.append, None, Tally()), told


def asks(most: int = 9, **how: Any) -> Request:
    return Request(prompt=(1,), max_new_tokens=most, stop_ids=frozenset({0}), **how)


def test_a_step_tells_what_all_rows_said_and_then_who_ended():
    transcript, told = begun(asks(), asks(), asks(most=1), asks(begun=(3,)))
    rows = [transcript.rows[at] for at in (3, 0, 2, 1)]
    transcript.say(rows, logits_of(4, 2, 1, 0), logits_of(4, 2, 1, 0))
    spoken, *ends = told
    assert isinstance(spoken, Spoken)
    assert (spoken.requests, spoken.positions, spoken.tokens) == ([3, 0, 2, 1], [1, 0, 0, 0], [4, 2, 1, 0])
    assert [(end.request, end.reason) for end in ends if isinstance(end, Ended)] == [(2, "length"), (1, "eos")]
    assert [row.ended for row in transcript.rows] == [False, True, True, False]
    assert transcript.rows[3].said == [3, 4]


def test_states_that_are_told_do_not_hold_all_that_was_computed():
    transcript, told = begun(asks(), asks())
    hidden = torch.zeros(2, 1000, 8)
    transcript.say(transcript.rows, logits_of(2, 3), hidden[:, -1])
    (spoken,) = told
    assert isinstance(spoken, Spoken)
    assert spoken.states is not None
    assert spoken.states.untyped_storage().nbytes() == 2 * 8 * 4


def test_a_reading_tells_every_place_a_few_at_a_time_and_then_what_was_said(monkeypatch):
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 3 * VOCABULARY)
    transcript, told = begun(asks(answer=(2, 3, 4)), asks(most=0, answer=(1, 1)), asks(answer=(2, 0, 4)))
    transcript.read(transcript.rows, logits_of(2, 1, 4, 3, 3, 2, 0, 4))
    reads = [event for event in told if isinstance(event, Read)]
    assert [len(event.requests) for event in reads] == [3, 3, 2]
    assert [pair for event in reads for pair in zip(event.requests, event.positions, strict=True)] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]  # fmt: skip
    assert [token for event in reads for token in event.answer.tolist()] == [2, 3, 4, 1, 1, 2, 0, 4]
    spoken, *ends = told[3:]
    assert isinstance(spoken, Spoken)
    assert spoken.states is None
    assert (spoken.requests, spoken.positions, spoken.tokens) == ([0, 0, 2, 2], [0, 1, 0, 1], [2, 1, 2, 0])
    assert [(end.request, end.reason, end.proposed, end.accepted) for end in ends if isinstance(end, Ended)] == [
        (1, "length", 0, 0), (2, "eos", 3, 2)]  # fmt: skip


def test_what_is_only_read_speaks_of_nothing():
    transcript, told = begun(asks(most=0, answer=(1,)))
    transcript.read(transcript.rows, logits_of(2))
    assert [type(event) for event in told] == [Read, Ended]


def test_who_is_aborted_ends_once_when_it_is_looked_for_even_while_others_are_told():
    transcript, told = begun(asks(), asks(), asks())
    for index in (1, 1, 7, -1):
        transcript.abort(index)
    assert told == []
    transcript.take_out()
    transcript.take_out()
    assert [(event.request, event.reason) for event in told if isinstance(event, Ended)] == [(1, "abort")]
    assert [row.ended for row in transcript.rows] == [False, True, False]
