"""Which streams are read, put together from pieces in the forms that servers write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.served.scripted import Reply, as_json, as_stream, asking, scripted, text_piece


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, **more}]}


def call(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}, **more}]})


DONE_MESSAGE = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "yes"}}]}
TWO_CALLS = (("look", '{"a": 1}'), ("look", '{"a": 2}'))
PLAIN = {
    "the whole message again at the end": as_stream(chunk({"content": "ye"}), chunk({"content": "s"}), DONE_MESSAGE),
    "it beside an empty piece": as_stream(
        chunk({"content": "ye"}), chunk({"content": "s"}), chunk({}, "stop", message={"content": "yes"})
    ),
    "a content of parts": as_stream(chunk({"content": [{"type": "text", "text": "yes"}]}), chunk({}, "stop")),
    "no [DONE]": as_stream(chunk({"content": "yes"}), chunk({}, "stop"), done=False),
    "no line end at the end": Reply(
        body=as_stream(chunk({"content": "yes"}), chunk({}, "stop")).body.rstrip(b"\n"), kind="text/event-stream"
    ),
    "events without data": Reply(
        body=b"data:\n\n: ping\n\nevent: x\ndata: \n\n" + as_stream(chunk({"content": "yes"}, "stop")).body,
        kind="text/event-stream",
    ),
    "an end in each piece": as_stream(chunk({"content": "ye"}, "stop"), chunk({"content": "s"}, "stop")),
    "another's word for the end": as_stream(chunk({"content": "yes"}), chunk({}, "EOS_TOKEN")),
    "an error of no text": as_stream({**chunk({"content": "yes"}, "stop"), "error": ""}),
    "an index of null": as_stream({"choices": [{"index": None, "delta": {"content": "yes"}, "finish_reason": "stop"}]}),
    "an index of a text": as_stream({"choices": [{"index": "0", "text": "yes", "finish_reason": "stop"}]}),
    "a content of one part": as_stream(chunk({"content": {"type": "output_text", "text": "yes"}}, "stop")),
    "Vertex's word for the end": as_stream(chunk({"content": "yes"}, "FINISH_REASON_STOP")),
    "counts in texts": as_stream({**chunk({"content": "yes"}, "stop"), "usage": {"completion_tokens": "1"}}),
    "counts in floats": as_stream({**chunk({"content": "yes"}, "stop"), "usage": {"completion_tokens": 1.0}}),
}


@pytest.mark.parametrize("what", PLAIN)
def test_a_stream_of_a_plain_meaning_is_read(what):
    with scripted(PLAIN[what]) as server:
        answer, waited = asking(server, {"prompt": "p", "stream": True})
    assert (answer.text, waited) == ("yes", [])


@pytest.mark.parametrize("thought", ["So: ", [{"type": "text", "text": "So: "}]])
def test_parts_of_type_thinking_are_the_thought(thought):
    first = chunk({"content": [{"type": "thinking", "thinking": thought}]})
    both = {"content": [{"type": "thinking", "thinking": thought}, {"type": "text", "text": "yes"}]}
    stream = as_stream(first, chunk({"content": [{"type": "text", "text": "yes"}]}), chunk({}, "stop"))
    whole = as_json({"choices": [{"index": 0, "finish_reason": "stop", "message": both}]})
    for reply in (stream, whole):
        with scripted(reply) as server:
            answer, _ = asking(server, {"prompt": "p", "stream": reply is stream})
        assert (answer.text, answer.thought) == ("yes", "So: ")


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([call("look", '{"a": 1}', id="x"), call("look", '{"a": 2}', id="y")], TWO_CALLS),
        ([call("look", '{"a": 1}'), call("look", '{"a": 2}')], TWO_CALLS),
        ([call("look", '{"a"', id="x"), call("look", ": 1}", id="new each time")], TWO_CALLS[:1]),
        ([call("look", '{"a": 1}', id="x"), call("look", '{"a": 2}', id="x")], TWO_CALLS),
        ([chunk({"tool_calls": [{}, None]}), call("look", '{"a": 1}', id="x")], TWO_CALLS[:1]),
        ([call("look", '{"a": 1}', id="x"), call("look", "")], TWO_CALLS[:1]),
        ([call("look", '{"a": 1}'), call("look", "\n")], (("look", '{"a": 1}\n'),)),
        ([call("look", {"a": 1}, id="x")], TWO_CALLS[:1]),
        ([chunk({"function_call": {"name": "look", "arguments": '{"a": 1}'}})], TWO_CALLS[:1]),
        ([call("look", "", id="x"), call("look", "", id="y")], (("look", ""), ("look", ""))),
        ([call("look", '{"a"', id="x"), call(None, ": 1}", id="x")], TWO_CALLS[:1]),
        ([call("look", '{"a"', id="x"), call("look", ": 1}", id="x")], TWO_CALLS[:1]),
        ([call("look", '{"a"', id="x"), call(None, ": 1}", id="new each time")], TWO_CALLS[:1]),
        ([call("look", '{"a"'), call("look", ": 1}")], TWO_CALLS[:1]),
    ],
)
def test_calls_of_one_index_are_told_apart_by_id_and_name(pieces, calls):
    with scripted(as_stream(*pieces, chunk({}, "tool_calls"))) as server:
        answer, _ = asking(server, {"prompt": "p", "stream": True})
    assert answer.calls == calls


def told(text: str, reply: str = "A", reason: str | None = None) -> dict[str, Any]:
    return {**chunk({"content": text}, reason), "id": reply, "created": 1}


SAID = chunk({"content": "The answer is "}), chunk({"content": "5"})
MIXED = {
    "pieces of two answers": (told("1"), told("2", "B"), told("", reason="stop")),
    "a message that is another": (*SAID, {"choices": [{"message": {"content": "5"}, "finish_reason": "stop"}]}),
}


@pytest.mark.parametrize("what", MIXED)
def test_a_stream_that_contradicts_itself_is_asked_for_once_more_whole(what):
    with scripted(as_stream(*MIXED[what]), as_json(text_piece("yes", "stop"))) as server:
        asking(server, {"prompt": "p", "stream": True})
        assert [body.get("stream") for _, _, body in server.asked] == [True, None]


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_message_at_the_end_takes_nothing_back(content):
    end = {"choices": [{"message": {"content": content}, "finish_reason": "length"}]}
    with scripted(as_stream(*SAID, end)) as server:
        answer, _ = asking(server, {"prompt": "p", "stream": True})
    assert (answer.text, answer.finish) == ("The answer is 5", "length")
