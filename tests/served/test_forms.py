"""When an arm is asked for whole answers in place of streams, and when it is asked no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import ArmSpec, Case, Job, JobFailure, JobResult, Prompt, Served, UnitKey
from qualgate.served.asked import asked_of
from qualgate.served.client import Client
from qualgate.served.forms import REPEATS, ROW
from qualgate.served.job import run_served
from qualgate.served.probes import probe
from tests.served.scripted import Reply, Scripted, as_json, as_stream, scripted

CASES = 12
Said = Callable[[str], dict[str, Any]]  # the message that answers a case


def prompts(number: int = CASES, tools: bool = False) -> list[Prompt]:
    found = []
    for at in range(number):
        body: dict[str, Any] = {"id": f"c-{at}", "messages": [{"role": "user", "content": f"case {at}"}]}
        body |= {"tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}]} if tools else {}
        asked = asked_of(Case(evalset="s", body=body), Served(), "hermes" if tools else "")
        key = UnitKey("v", "s", f"c-{at}")
        found.append(Prompt(key=key, case_hash="h", token_ids=(), max_new_tokens=9, asked=asked))
    return found


def run(server: Scripted, asked: list[Prompt], at_once: int = 1, **served: Any) -> JobResult:
    """As workers run it, which hand on each answer as it comes."""
    arm = ArmSpec(name="v", model="m", served=Served(endpoint=server.address, **served))
    job = Job(index=0, arm=arm, prompts=tuple(asked), artifact="", drafted=False, seed=5)
    parts: list[JobResult | JobFailure] = []
    whole = run_served(job, {}, at_once, hand=parts.append)
    for part in parts:
        if isinstance(part, JobFailure):
            raise InfrastructureError(part.error)
        whole = part.joined(whole)
    order = [one.key for one in asked]
    return replace(whole, completions=tuple(sorted(whole.completions, key=lambda one: order.index(one.key))))


def whole(message: dict[str, Any]) -> Reply:
    return as_json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def pieces(*deltas: dict[str, Any], done: bool = True, reason: str | None = "stop") -> Reply:
    parts = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return as_stream(*parts, end, done=done)


def of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def text(said: str) -> dict[str, Any]:
    return {"role": "assistant", "content": said}


def called(*names: str) -> dict[str, Any]:
    calls = [{"id": name, "function": {"name": "look", "arguments": json.dumps({"at": name})}} for name in names]
    return {"role": "assistant", "tool_calls": calls}


def lost_piece(said: str) -> Reply:
    return pieces({"content": said[:2]}, {"content": said[4:]})


def comes_twice(said: str) -> Reply:
    return pieces({"content": said}, {"content": " "}, {"content": said})


def answers(streamed: Callable[[str], Reply]) -> Callable[[dict[str, Any]], Reply]:
    return lambda body: streamed(f"{of(body)} is right") if body.get("stream") else whole(text(f"{of(body)} is right"))


def test_a_stream_that_is_put_together_otherwise_is_found_before_the_others_are_asked_so():
    for streamed in (lost_piece, comes_twice):
        with scripted(otherwise=answers(streamed)) as server:
            result = run(server, prompts())
        assert [one.text for one in result.completions] == [f"case {at} is right" for at in range(CASES)]
        assert (
            "its stream says otherwise than the same answer asked whole (another text" in result.generation.asked_whole
        )
        assert sum("stream" in body for _, _, body in server.asked) <= 2
        assert len(server.asked) <= CASES + 3


def test_an_honest_stream_is_asked_whole_once_in_a_while_and_stays_a_stream():
    with scripted(otherwise=answers(lambda said: pieces({"content": said[:4]}, {"content": said[4:]}))) as server:
        result = run(server, prompts())
    assert result.generation.asked_whole == ""
    assert len(server.asked) == CASES + 1


def test_a_server_that_never_says_the_same_twice_is_not_at_fault():
    numbers = count()

    def said(body: dict[str, Any]) -> Reply:
        words = f"{next(numbers)} of many"
        return pieces({"content": words[:1]}, {"content": words[1:]}) if body.get("stream") else whole(text(words))

    with scripted(otherwise=said) as server:
        assert run(server, prompts()).generation.asked_whole == ""
    assert len(server.asked) <= 1.2 * CASES


@pytest.mark.parametrize("refuses", [as_json({"error": "this model streams alone"}, 400), as_json({}, 404)])
def test_a_server_that_answers_by_streams_alone_is_asked_so(refuses):
    def said(body: dict[str, Any]) -> Reply:
        return pieces({"content": "no "}, {"content": "no "}) if body.get("stream") else refuses  # doubted

    with scripted(otherwise=said) as server:
        result = run(server, prompts())
    assert {one.text for one in result.completions} == {"no no "}
    assert result.generation.asked_whole == ""
    assert len(server.asked) == CASES + 1


def test_spelling_and_a_thought_that_only_the_stream_tells_are_no_difference():
    def said(body: dict[str, Any]) -> Reply:
        if body.get("stream"):
            part = {"index": 0, "id": "x", "function": {"name": "look", "arguments": '{"at":"x"}'}}
            return pieces({"reasoning": "Which?"}, {"content": "\n"}, {"tool_calls": [part]})
        return whole(called("x"))

    with scripted(otherwise=said) as server:
        assert run(server, prompts(tools=True)).generation.asked_whole == ""


UNREADABLE = [
    pieces({"content": "half"}, reason=None),
    as_stream({"choices": [{"index": 0, "delta": {"content": 5}}]}),
    as_stream("no JSON"),
    pieces({"content": "x"}, reason="tired"),
]


@pytest.mark.parametrize("stream", UNREADABLE)
@pytest.mark.parametrize("at_once", [1, 4])
def test_streams_that_cannot_be_read_are_asked_whole_from_the_first_that_shows_it(stream, at_once):
    with scripted(otherwise=answers(lambda said: stream)) as server:
        result = run(server, prompts(), at_once)
    assert [one.text for one in result.completions] == [f"case {at} is right" for at in range(CASES)]
    assert "its streams cannot be read, and whole answers can" in result.generation.asked_whole
    assert len(server.asked) <= 1.2 * CASES


def test_one_stream_that_cannot_be_read_changes_nothing_for_the_others():
    def said(body: dict[str, Any]) -> Reply:
        words = f"{of(body)} is right"
        if not body.get("stream"):
            return whole(text(words))
        return UNREADABLE[0] if of(body) == "case 3" else pieces({"content": words[:4]}, {"content": words[4:]})

    with scripted(otherwise=said) as server:
        result = run(server, prompts(4))
    assert [one.text for one in result.completions] == [f"case {at} is right" for at in range(4)]
    assert result.generation.asked_whole == ""
    assert len(server.asked) == 5


def test_three_cases_in_a_row_that_cannot_be_read_in_either_form_end_the_arm():
    async def ask(address: str) -> list[str]:
        said = []
        async with Client("v", Served(endpoint=address), 4, sleep=no_wait) as client:
            for at in range(5):
                with pytest.raises(InfrastructureError) as found:
                    await client.ask("/chat/completions", {"case": at, "prompt": "p", "stream": True})
                said.append(str(found.value))
        return said

    with scripted(otherwise=lambda body: as_json({"choices": "none"})) as server:
        first, _, _, *others = asyncio.run(ask(server.address))
        assert [body["case"] for _, _, body in server.asked] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert "`stream: false`) was asked for too" in first
    assert all("3 cases in a row could not be read" in one and "`stream: false`" in one for one in others)


async def no_wait(seconds: float) -> None:
    """Nobody waits here."""


def test_pieces_that_are_doubted_in_answer_after_answer_are_done_without():
    with scripted(otherwise=lambda body: pieces({"content": "no "}, {"content": "no "}) if body.get("stream")
                  else whole(text("no"))) as server:  # fmt: skip
        result = run(server, prompts())
    assert "may come twice" in result.generation.asked_whole
    assert len(server.asked) <= 1.2 * CASES


def test_a_model_that_repeats_words_is_asked_whole_and_its_server_is_not_blamed():
    """Two digits alike in a row, as a real server streams them, in every answer of its model."""
    honest = [{"content": piece} for piece in ("Answer: ", "4", "4")]

    def answer(body):
        return pieces(*honest) if body.get("stream") else whole(text("Answer: 44"))

    with scripted(otherwise=answer) as server:
        result = run(server, prompts())
    assert {one.text for one in result.completions} == {"Answer: 44"}
    assert result.generation.asked_whole == REPEATS
    assert len(server.asked) <= CASES + ROW + 1  # one is asked both ways
    with scripted(probes=answer) as server:
        arm = ArmSpec(name="v", model="m", served=Served(endpoint=server.address))
        shown = {one.name: one for one in probe(arm, prompts(1), 4, nonce="n")}
    assert (shown["stream"].saw, shown["stream"].fault) == (REPEATS, "")


def merged(body: dict[str, Any]) -> Reply:
    """Two calls, which a stream makes one."""
    if not body.get("stream"):
        return whole(called("x", "y"))
    parts = [{"function": {"name": "look"}, "index": 0}, *({"index": 0, "function": {"arguments": f'{{"at": "{at}"}}'}}
             for at in "xy")]  # fmt: skip
    return pieces(*({"tool_calls": [one]} for one in parts))


@pytest.mark.parametrize("before", ["", "Both."])
def test_blank_pieces_between_calls_are_no_fault_of_a_server(before):
    """As SGLang 0.5.23 streams two calls of Hermes' form; its whole answers lack the blanks."""

    def called_twice(body: dict[str, Any]) -> Reply:
        message = called("x", "y")
        if not body.get("stream"):
            return whole(message | {"content": before})
        x, y = ({"tool_calls": [call | {"index": at}]} for at, call in enumerate(message["tool_calls"]))
        blank = {"content": "\n"}
        return pieces({"content": before}, x, blank, blank, y, blank)

    with scripted(otherwise=called_twice) as server:
        result = run(server, prompts(tools=True))
    assert {one.text.count('"look"') for one in result.completions} == {2}
    assert result.generation.asked_whole == (REPEATS if before else "")
    assert before or len(server.asked) == CASES + 1


def test_calls_that_a_stream_merges_are_asked_whole_even_where_the_server_is_not_steady():
    with scripted(otherwise=merged) as server:
        result = run(server, prompts(tools=True))
    assert {one.text.count('"look"') for one in result.completions} == {2}
    assert result.generation.asked_whole


def test_the_probe_of_streams_names_the_fault_before_the_first_case():
    with scripted(probes=answers(lost_piece)) as server:
        arm = ArmSpec(name="v", model="m", served=Served(endpoint=server.address))
        shown = {one.name: one for one in probe(arm, prompts(1), 4)}
    assert shown["stream"].fault == "answers are asked whole"
    assert "another text" in shown["stream"].saw


def test_an_arm_that_is_said_to_be_asked_whole_is_so_from_its_first_case():
    with scripted(otherwise=answers(lost_piece)) as server:
        result = run(server, prompts(), whole="the probe says so")
    assert result.generation.asked_whole == "the probe says so"
    assert not any("stream" in body for _, _, body in server.asked)
    assert len(server.asked) == CASES


def of_two(said: str) -> Reply:
    """A router that goes on with another model's answer where the first one's broke off."""
    parts = [("a", said[:6]), ("a", " and"), ("b", "so says the other"), ("b", " model")]
    told = [
        {"id": reply, "created": 1, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        for reply, text in parts
    ]
    return as_stream(*told, {"id": "b", "created": 1, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def test_a_stream_of_two_answers_is_never_one():
    with scripted(otherwise=answers(of_two)) as server:
        result = run(server, prompts())
    assert [one.text for one in result.completions] == [f"case {at} is right" for at in range(CASES)]
    alone = as_json({"error": "streams alone"}, 400)
    with (
        scripted(otherwise=lambda body: of_two(of(body)) if body.get("stream") else alone) as server,
        pytest.raises(InfrastructureError, match="the ids of several answers"),
    ):
        run(server, prompts())


@pytest.mark.parametrize(
    "lost",
    [
        pieces({"content": ""}, reason="tool_calls"),
        as_stream(
            {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 40}},
        ),
    ],
)
def test_a_stream_that_loses_all_of_an_answer_is_asked_whole(lost):
    """For one case in three, so that the check of a few need not meet it."""

    def said(body: dict[str, Any]) -> Reply:
        if body.get("stream") and int(of(body)[5:]) % 3 == 1:
            return lost
        call = {**called("x")["tool_calls"][0], "index": 0}
        return pieces({"tool_calls": [call]}, {"content": ""}) if body.get("stream") else whole(called("x"))

    with scripted(otherwise=said) as server:
        result = run(server, prompts(tools=True))
    assert all('"look"' in one.text for one in result.completions)


def test_a_model_that_says_nothing_is_not_asked_twice_for_ever():
    nothing = {
        "choices": [{"index": 0, "message": text(""), "finish_reason": "stop"}],
        "usage": {"completion_tokens": 9},
    }
    parts = [{"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]}]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}}
    with scripted(otherwise=lambda body: as_stream(*parts, end) if body.get("stream") else as_json(nothing)) as server:
        result = run(server, prompts())
    assert {one.text for one in result.completions} == {""}
    assert result.generation.asked_whole == ""
    assert len(server.asked) <= CASES + 5
