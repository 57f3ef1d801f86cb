"""Forms in which servers and gateways write the JSON of a right answer: data, a change of what OpenAI's API would send.

EVENTS change a stream's events, CALLS those of one with tool calls; WHOLES and WHOLE_CALLS an answer that comes at
once, DOUBTED_WHOLES one to which the API has no such form. Names are said as users report them.

A stream's events: 0 the role, 1 to 4 pieces, 5 the end, 6 the usage. With calls: 0 the role, 1 name of the first call,
2 to 4 its arguments; 5 name of the second, 6 to 8 its arguments; 9 the end, 10 the usage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any

Event = dict[str, Any]
Events = list[Event]
Change = Callable[[Events], Sequence[Event]]


def choices(change: Callable[[Any], Any]) -> Change:
    """The same of each choice of each event."""

    def changed(events: Events) -> Events:
        for event in events:
            for choice in event.get("choices") or ():
                change(choice)
        return events

    return changed


def deltas(change: Callable[[Any], Any]) -> Change:
    return choices(lambda choice: change(choice["delta"]))


def parts(change: Callable[[Any], Any]) -> Change:
    """The same of each part of a tool call."""
    return deltas(lambda delta: [change(part) for part in delta.get("tool_calls", ())])


def contents(change: Callable[[str], Any]) -> Change:
    return deltas(lambda delta: delta.update(content=change(delta["content"])) if delta.get("content") else None)


def each(**more: Any) -> Change:
    return lambda events: [{**event, **more} for event in events]


def ended(word: str | None) -> Change:
    return choices(lambda choice: choice.update(finish_reason=choice["finish_reason"] and word))


def meanwhile(word: str) -> Change:
    return choices(lambda choice: choice.update(finish_reason=choice["finish_reason"] or word))


def counted(change: Callable[[Event], Any]) -> Change:
    """The usage, changed."""
    return lambda events: [
        {**event, "usage": change(event["usage"])} if event.get("usage") else event for event in events
    ]


def between(*more: Event) -> Change:
    """These events before each other one."""
    return lambda events: [one for event in events for one in (*deepcopy(more), event)]


def text_of(events: Events) -> str:
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event.get("choices"))


def message_of(events: Events) -> Event:
    """What the events say, as one message."""
    calls = dict[int, Event]()
    for event in events:
        for part in event["choices"][0]["delta"].get("tool_calls", ()) if event.get("choices") else ():
            call = calls.setdefault(part["index"], {**deepcopy(part), "function": {"name": "", "arguments": ""}})
            for name, said in part["function"].items():
                call["function"][name] += said
    return {"role": "assistant", "content": text_of(events), **({"tool_calls": list(calls.values())} if calls else {})}


def _piece(finish: str | None = None, **said: Any) -> Event:
    return {"choices": [{"index": 0, "finish_reason": finish, **said}]}


def _so_far(events: Events) -> list[str]:
    return list(accumulate(event["choices"][0]["delta"].get("content") or "" for event in events[:-2]))


def _halves(events: Events) -> Events:
    """A character beyond the first plane as two escapes in two pieces."""
    pieces = events[1:5]
    at = next(at for at, event in enumerate(pieces) if "\U0001f30d" in event["choices"][0]["delta"]["content"])
    before, behind = pieces[at]["choices"][0]["delta"]["content"].split("\U0001f30d")
    cut = [_piece(delta={"content": text}) for text in (before + "\ud83c", "\udf0d" + behind)]
    return [events[0], *pieces[:at], *cut, *pieces[at + 1 :], *events[5:]]


def _end_with(events: Events, **said: Any) -> Events:
    return [*events[:-2], _piece(events[-2]["choices"][0]["finish_reason"], **said), events[-1]]


EVENTS: dict[str, Change] = {
    "last frame the whole message": lambda e: _end_with(e, message=message_of(e)),
    "last frame a delta and the whole message": lambda e: _end_with(e, delta={}, message=message_of(e)),
    "last delta the whole text": lambda e: _end_with(e, delta={"content": text_of(e)}),
    "last frame the whole, with its usage": lambda e: [
        *e[:5], {**_piece("stop", message=message_of(e)), "object": "chat.completion", "usage": e[6]["usage"]}],
    "every piece repeats all before": lambda e: [
        *(_piece(delta={"content": text}) for text in _so_far(e)), *e[5:]],
    "every piece but the first repeats all before": lambda e: [
        *e[:2], *(_piece(delta={"content": text}) for text in _so_far(e)[2:]), *e[5:]],
    "a message in each frame, with all so far": lambda e: [
        *(_piece(message={"content": text}) for text in _so_far(e)), *e[5:]],
    "a message in each frame, with its piece": lambda e: [
        *(_piece(message=event["choices"][0]["delta"]) for event in e[:5]), *e[5:]],
    "an empty message in the last frame": lambda e: _end_with(e, delta={}, message={"content": ""}),
    "the whole message before the end": lambda e: [*e[:5], _piece(message=message_of(e)), *e[5:]],
    "index null": choices(lambda c: c.update(index=None)),
    "index missing": choices(lambda c: c.pop("index")),
    "index as a text": choices(lambda c: c.update(index="0")),
    "index as a float": choices(lambda c: c.update(index=0.0)),
    "content as parts": contents(lambda text: [{"type": "text", "text": text}]),
    "content as two parts": contents(lambda text: [{"type": "text", "text": one} for one in (text[:2], text[2:])]),
    "content as one part": contents(lambda text: {"type": "text", "text": text}),
    "content as output_text": contents(lambda text: [{"type": "output_text", "text": text, "annotations": []}]),
    "content as a list of texts": contents(lambda text: [text]),
    "usage in floats": counted(lambda u: {name: float(count) for name, count in u.items()}),
    "usage in texts": counted(lambda u: {name: str(count) for name, count in u.items()}),
    "usage null until the end": lambda e: [*({**one, "usage": None} for one in e[:-1]), e[-1]],
    "usage grows in each frame": lambda e: [
        *({**one, "usage": {**e[-1]["usage"], "completion_tokens": at}} for at, one in enumerate(e[:-1])), e[-1]],
    "usage with the end": lambda e: [*e[:-2], {**e[-2], "usage": e[-1]["usage"]}],
    "usage without choices": lambda e: [*e[:-1], {"usage": e[-1]["usage"]}],
    "usage with choices null": lambda e: [*e[:-1], {**e[-1], "choices": None}],
    "usage with an empty choice": lambda e: [*e[:-1], {**_piece(delta={}), "usage": e[-1]["usage"]}],
    "usage before the end": lambda e: [*e[:-2], e[-1], e[-2]],
    "usage of x_groq too": lambda e: [*e[:-2], {**e[-2], "x_groq": {"usage": e[-1]["usage"]}}, e[-1]],
    "usage with details null": counted(lambda u: {**u, "completion_tokens_details": None}),
    "usage by Anthropic's names too": counted(lambda u: {**u, "input_tokens": 1, "output_tokens": 2}),
    "ended by eos_token": ended("eos_token"),
    "ended by STOP": ended("STOP"),
    "ended by end_turn": ended("end_turn"),
    "ended by stop_sequence": ended("stop_sequence"),
    "ended by eos": ended("eos"),
    "ended by COMPLETE": ended("COMPLETE"),
    "ended by FINISH_REASON_STOP": ended("FINISH_REASON_STOP"),
    "no reason until its end": meanwhile(""),
    'the reason "null" until its end': meanwhile("null"),
    "the reason in each frame": meanwhile("stop"),
    "the end said twice": lambda e: [*e[:-1], e[-2], e[-1]],
    "the end with the last piece": lambda e: [
        *e[:4], _piece("stop", delta=e[4]["choices"][0]["delta"]), e[6]],
    "Azure's first frame": lambda e: [{"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "model": ""}, *e],
    "filter results in each frame": choices(lambda c: c.update(content_filter_results={"hate": {"filtered": False}})),
    "a frame of nothing between": between({"choices": []}),
    "a frame {} between": between({}),
    "a frame of choices null between": between({"choices": None, "id": "", "created": 0}),
    "a frame of type ping between": between({"type": "ping"}),
    "content null at the end": lambda e: _end_with(e, delta={"content": None}),
    "no delta at the end": lambda e: _end_with(e),
    "delta null at the end": lambda e: _end_with(e, delta=None),
    "the role in each frame": deltas(lambda d: d.update(role="assistant")),
    "the role empty": deltas(lambda d: d.update(role="")),
    "tool_calls null": deltas(lambda d: d.update(tool_calls=None, function_call=None, refusal=None, audio=None)),
    "tool_calls empty": deltas(lambda d: d.update(tool_calls=[])),
    "reasoning empty": deltas(lambda d: d.update(reasoning="", reasoning_content="", reasoning_details=[])),
    "error null": each(error=None),
    "error empty": each(error=""),
    "error {}": each(error={}),
    "error false": each(error=False),
    "error of code 0": each(error={"code": 0, "message": ""}),
    "a message of success": each(message="", detail=None, code=0),
    "logprobs null": choices(lambda c: c.update(logprobs=None)),
    "logprobs of a chat": choices(lambda c: c.update(logprobs={"content": [{"token": "x", "logprob": -0.5}]})),
    "another id in each frame": lambda e: [{**one, "id": f"chatcmpl-{at}", "created": 7} for at, one in enumerate(e)],
    "created as a float": each(id="x", created=1.5),
    "no model": each(model=None),
    "halves of a character": _halves,
    "metrics and timings": each(timings={"predicted_ms": 3.0}, metrics={"speculative_decoding": None}, time_info={}),
}  # fmt: skip


def _parted(change: Callable[[int, Any], Any]) -> Change:
    """Each part of a call with its place among the parts."""

    def changed(events: Events) -> Events:
        at = 0
        for event in events:
            for part in event["choices"][0]["delta"].get("tool_calls", ()) if event.get("choices") else ():
                change(at, part)
                at += 1
        return events

    return changed


def _calls_in(frames: Callable[[list[Event]], Sequence[Sequence[Event]]]) -> Change:
    """The calls whole, by frames."""

    def changed(events: Events) -> Events:
        calls = message_of(events)["tool_calls"]
        return [events[0], *(_piece(delta={"tool_calls": list(one)}) for one in frames(calls)), *events[-2:]]

    return changed


def _with(**more: Any) -> Callable[[list[Event]], list[list[Event]]]:
    return lambda calls: [[{**call, **more}] for call in calls]


def _without(*names: str) -> Callable[[list[Event]], list[list[Event]]]:
    return lambda calls: [[{name: value for name, value in call.items() if name not in names}] for call in calls]


def _growing(events: Events) -> Events:
    """Arguments that each time repeat all before them."""
    said = dict[int, str]()

    def change(_: int, part: Any) -> None:
        said[part["index"]] = said.get(part["index"], "") + part["function"]["arguments"]
        part["function"]["arguments"] = said[part["index"]]

    return list(_parted(change)(events))


def _named_again(_: int, part: Any) -> None:
    part["function"]["name"] = "look" if part["index"] == 0 else "book"


def _decoded(call: Event) -> Event:
    """Its arguments as an object."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


CALLS: dict[str, Change] = {
    "index 0 for all, with ids": _calls_in(_with(index=0)),
    "index 0 for all, in one list": _calls_in(lambda calls: [[{**one, "index": 0} for one in calls]]),
    "index 0 for all, in pieces": parts(lambda p: p.update(index=0)),
    "index 0 for all, no ids": _calls_in(lambda calls: [[{**one, "index": 0, "id": ""}] for one in calls]),
    "index 0 for all, one id": _calls_in(_with(index=0, id="call_0")),
    "index 0 for all, id null": _calls_in(_with(index=0, id=None)),
    "no index, no ids": _calls_in(_without("index", "id")),
    "no index, in one list": _calls_in(lambda calls: [[one[0] for one in _without("index")(calls)]]),
    "no index": _calls_in(_without("index")),
    "no type": _calls_in(_without("type")),
    "index null": _calls_in(_with(index=None)),
    "index null, in pieces": parts(lambda p: p.update(index=None)),
    "index as a text": parts(lambda p: p.update(index=str(p["index"]))),
    "index from 1": parts(lambda p: p.update(index=p["index"] + 1)),
    "all in one frame": _calls_in(lambda calls: [calls]),
    "id in each piece": parts(lambda p: p.update(id=f"call-{p['index']}")),
    "id null in later pieces": parts(lambda p: p.setdefault("id", None)),
    "id empty in later pieces": parts(lambda p: p.setdefault("id", "")),
    "another id in each piece": _parted(lambda at, p: p.update(id=f"x{at}")),
    "another id and the name in each piece": _parted(lambda at, p: (p.update(id=f"x{at}"), _named_again(at, p))),
    "name in each piece": _parted(_named_again),
    "name null in later pieces": parts(lambda p: p["function"].setdefault("name", None)),
    "name empty in later pieces": parts(lambda p: p["function"].setdefault("name", "")),
    "arguments null with the name": parts(lambda p: p["function"].update(arguments=p["function"]["arguments"] or None)),
    "no arguments with the name": parts(
        lambda p: None if p["function"]["arguments"] else p["function"].pop("arguments")),
    "arguments as an object": _calls_in(lambda calls: [[_decoded(one)] for one in calls]),
    "arguments that repeat all before": _growing,
    "calls interleaved": lambda e: [e[at] for at in (0, 1, 5, 2, 6, 3, 7, 4, 8, 9, 10)],
    "last frame the whole message": lambda e: _end_with(e, message=message_of(e)),
    "last delta the whole calls": lambda e: _end_with(e, delta={"tool_calls": message_of(e)["tool_calls"]}),
    "each call twice": _calls_in(lambda calls: [[one] for one in calls for _ in range(2)]),
    "ended by stop": ended("stop"),
    "ended by function_call": ended("function_call"),
    "ended by tool_use": ended("tool_use"),
    "ended by TOOL_CALLS": ended("TOOL_CALLS"),
    "ended by tool-calls": ended("tool-calls"),
    "an empty part at the end": lambda e: _end_with(e, delta={"tool_calls": [{}]}),
    "a part null at the end": lambda e: _end_with(e, delta={"tool_calls": [None]}),
    "an empty part at its begin": lambda e: [_piece(delta={"tool_calls": [{"index": 0, "function": {}}]}), *e],
    "function null at the end": lambda e: _end_with(e, delta={"tool_calls": [{"index": 1, "function": None}]}),
    "Gemini's signatures": parts(lambda p: p.update(extra_content={"google": {"thought_signature": "x"}})),
    "calls with the end": lambda e: [e[0], *_end_with(e[-2:], delta={"tool_calls": message_of(e)["tool_calls"]})],
    "content null": deltas(lambda d: d.update(content=None)),
    "blanks before the calls": lambda e: [_piece(delta={"content": "\n\n"}), *e],
}  # fmt: skip


def _choice(**more: Any) -> Callable[[Event], Any]:
    return lambda whole: {**whole, "choices": [{**whole["choices"][0], **more}]}


def _message(change: Callable[[Any], Any]) -> Callable[[Event], Any]:
    return lambda whole: _choice(message={**whole["choices"][0]["message"], **change(whole["choices"][0]["message"])})(
        whole
    )


def _as_delta(whole: Event) -> Event:
    choice = whole["choices"][0]
    return {**whole, "choices": [{"index": 0, "finish_reason": choice["finish_reason"], "delta": choice["message"]}]}


def _made(change: Callable[[Event], Event]) -> Callable[[Event], Any]:
    """Of each call."""
    return _message(lambda message: {"tool_calls": [change(one) for one in message["tool_calls"]]})


WHOLES: dict[str, Callable[[Event], Any]] = {
    "content as parts": _message(lambda m: {"content": [{"type": "text", "text": m["content"]}]}),
    "content as one part": _message(lambda m: {"content": {"type": "text", "text": m["content"]}}),
    "index null": _choice(index=None),
    "index as a text": _choice(index="0"),
    "usage in floats": lambda w: {**w, "usage": {name: float(count) for name, count in w["usage"].items()}},
    "ended by eos_token": _choice(finish_reason="eos_token"),
    "ended by STOP": _choice(finish_reason="STOP"),
    "ended by end_turn": _choice(finish_reason="end_turn"),
    "blanks first": lambda w: b" \n\n " * 50 + json.dumps(w).encode(),
    "a byte order mark": lambda w: b"\xef\xbb\xbf" + json.dumps(w).encode(),
    "characters as they are": lambda w: json.dumps(w, ensure_ascii=False, indent=2).encode() + b"\n",
    "a delta for a message": _as_delta,
    "tool_calls null": _message(lambda m: {"tool_calls": None, "function_call": None, "refusal": None}),
    "tool_calls empty": _message(lambda m: {"tool_calls": []}),
    "error null": lambda w: {**w, "error": None, "message": None, "detail": ""},
    "error empty": lambda w: {**w, "error": "", "code": 0},
    "logprobs of a chat": _choice(logprobs={"content": [{"token": "x", "logprob": -0.5, "top_logprobs": []}]}),
    "a delta empty beside": _choice(delta={}),
    "a text empty beside": _choice(text=""),
}
DOUBTED_WHOLES: dict[str, tuple[Callable[[Event], Any], str]] = {
    "in a list": (lambda w: [w], "not this API"),
    "as events": (lambda w: b"data: " + json.dumps(w).encode() + b"\n\ndata: [DONE]\n\n", "data: "),
    "in latin-1": (
        lambda w: json.dumps(w, ensure_ascii=False).replace("\U0001f30d", "").encode("latin-1"),
        "not this API",
    ),
    "in an envelope": (lambda w: {"code": 0, "data": w}, "no answer"),
    "as a text of JSON": (lambda w: json.dumps(w), "not this API"),
}
WHOLE_CALLS: dict[str, Callable[[Event], Any]] = {
    "arguments as an object": _made(_decoded),
    "no ids": _made(lambda c: {name: value for name, value in c.items() if name != "id"}),
    "no type": _made(lambda c: {name: value for name, value in c.items() if name != "type"}),
    "index 0 for all": _made(lambda c: {**c, "index": 0}),
    "index null": _made(lambda c: {**c, "index": None}),
    "ended by stop": _choice(finish_reason="stop"),
    "content empty": _message(lambda m: {"content": ""}),
    "content as parts": _message(lambda m: {"content": []}),
    "no content": lambda w: _choice(message={"tool_calls": w["choices"][0]["message"]["tool_calls"]})(w),
    "one id for all": _made(lambda c: {**c, "id": "call_0"}),
}  # fmt: skip
