"""Split a conversation of several turns into cases, one for each action of the model.

Each turn is asked with the recorded history before it, the reference's own calls and their results, whatever the model
answered to earlier turns. So every arm reads the same words, a turn is a case like any other, and a model that errs at
turn 2 is still asked turn 3. The chance that all turns are right equals the chance that the model alone completes the
recorded conversation: up to its first wrong action it would have read the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from qualgate.documents import nearest, quote

TURN = '{"user": "Order 7?", "expected_calls": [{"name": "order", "arguments": {"id": 7}}], "results": ["sent"]}'
KEYS = ("user", "expected_calls", "results", "says", "tools", "max_new_tokens")
ELSEWHERE = {  # keys that a case with turns cannot have → where their content belongs
    "prompt": "the turns are messages: write `messages` for what stands before the first of them",
    "expected_calls": "each turn has its own",
    "category": "each turn says in `expected_calls` what is right, [] for no call",
    "answer": "what was recorded beside or instead of calls is a turn's `says`",
}


def read_turns(row: dict[str, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """(cases, faults) of a row with `turns`; no case if there is a fault.

    The case of turn k has the row's id and `/k`, counted from 1, the tag `turn:k`, and the row's id as its `cluster`
    unless the row has one: turns of one trajectory depend on each other.
    """
    faults = tuple(_faults(row))
    return ((), faults) if faults else (tuple(_cases_by_turn(row)), ())


def read_whole(row: dict[str, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """(cases, faults) of a row whose transcripts are judged as a whole: one case with all recorded calls."""
    faults = tuple(_faults(row))
    return ((), faults) if faults else (({**row, "recorded": _by_turn_of_users(row)},), ())


def _by_turn_of_users(row: dict[str, Any]) -> tuple[list[list[list[Any]]], ...]:
    """Recorded calls, [name, arguments], by user turn and action. A tuple, which no row of a file can contain."""
    from qualgate.scoring.tools.expected import example, read_call

    by_turn: list[list[list[list[Any]]]] = []
    for turn in row["turns"]:
        if "user" in turn or not by_turn:
            by_turn.append([])
        calls = [read_call("", call) for call in turn["expected_calls"]]
        by_turn[-1].append([[call.name, example(call, lambda key, value: True)] for call in calls])
    return tuple(by_turn)


def _faults(row: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a row of turns, from its keys to every turn's content."""
    turns = row["turns"]
    if not isinstance(turns, list) or not turns:
        yield f"`turns` must be a list of turns as {TURN}, one at least; found {quote(turns)}"
        return
    for key, where in ELSEWHERE.items():
        if key in row:
            yield f"`{key}` beside `turns`: {where}"
    if not isinstance(row.get("messages", []), list):
        yield f"`messages` must be a list of messages, those before the first turn; found {quote(row['messages'])}"
    if not isinstance(row.get("tags", []), list):
        yield f"`tags` must be a list of texts; found {quote(row['tags'])}"
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict):
            yield f"turns[{index}] must be an object as {TURN}; found {quote(turn)}"
            continue
        for message in _turn_faults(turn, last=index == len(turns) - 1):
            yield f"turns[{index}]{message}"
        if "user" not in turn and not _has_input(row, turns[:index]):
            yield f"turns[{index}] has no `user`: only a turn behind the results of calls, which the model goes on from"


def _has_input(row: dict[str, Any], before: list[Any]) -> bool:
    """Whether the model has something to answer without a user message."""
    if before:
        return isinstance(before[-1], dict) and bool(before[-1].get("expected_calls"))
    messages = row.get("messages")
    return bool(
        isinstance(messages, list)
        and messages
        and isinstance(messages[-1], dict)
        and messages[-1].get("role") == "user"
    )


def _turn_faults(turn: dict[str, Any], *, last: bool) -> Iterator[str]:
    """Yield what is wrong with one turn, each message beginning with where in the turn. last: no turn is asked after
    it.
    """
    for key in turn:
        if key not in KEYS:
            yield f" has an unknown key {quote(key)}{nearest(key, KEYS)}"
    for key in ("user", "says"):
        if key in turn and (not isinstance(turn[key], str) or not turn[key]):
            yield f".{key} must be a text; found {quote(turn[key])}"
    tools = turn.get("tools", [{}])
    if not isinstance(tools, list) or not tools or not all(isinstance(tool, dict) for tool in tools):
        yield f".tools must be a list of tools, those offered from this turn on as well; found {quote(tools)}"
    calls, results = turn.get("expected_calls"), turn.get("results", [])
    if "expected_calls" not in turn:
        yield " has no `expected_calls`: without them nothing says what is right; [] says that no call may be made"
        return
    if not isinstance(calls, list):
        yield f".expected_calls must be a list of calls; found {quote(calls)}"
        return
    from qualgate.scoring.tools.expected import read_call  # not needed to read a gate file; needs fcntl

    for index, call in enumerate(calls):
        try:
            read_call(f".expected_calls[{index}]", call)
        except ValueError as error:
            yield str(error)
    if not isinstance(results, list):
        yield f".results must be a list, what each expected call gave, in their order; found {quote(results)}"
    elif len(results) > len(calls):
        yield f".results[{len(calls)}] is of a call that nobody made: {len(calls)} calls are expected"
    elif len(results) < len(calls) and (results or not last):
        yield f".results lacks what expected_calls[{len(results)}] gave, which the next turn is asked with"
    if not last and not calls and "says" not in turn:
        yield " expects no call and has no `says`: the next turn is asked with what was said here"


def _cases_by_turn(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one case for each turn, which asks it after the recorded messages of all turns before.

    All cases of a row share one cluster; tools add up from turn to turn.
    """
    messages = [*row.get("messages", ())]
    common = {key: value for key, value in row.items() if key not in ("turns", "messages")}
    common["cluster"] = row.get("cluster", row.get("id"))
    if "state" in row:
        common["recorded"] = _by_turn_of_users(row)
    tools = row.get("tools", [])
    for number, turn in enumerate(row["turns"], start=1):
        if "user" in turn:
            messages.append({"role": "user", "content": turn["user"]})
        own = {key: turn[key] for key in ("expected_calls", "max_new_tokens") if key in turn}
        if "tools" in turn and isinstance(tools, list):  # else the check of the case reports the row's `tools`
            tools = [*tools, *turn["tools"]]
        if tools:
            own["tools"] = tools
        tags = [*row.get("tags", ()), f"turn:{number}"]
        yield {**common, **own, "id": f"{row.get('id')}/{number}", "tags": tags, "messages": [*messages]}
        messages += _messages_after(turn, number)


def _messages_after(turn: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Messages of this turn for the next one, in the form of OpenAI's API, with the first of several accepted values.

    Ids have nine letters and digits, which every template accepts.
    """
    from qualgate.scoring.tools.expected import example, read_call

    expected = [read_call("", call) for call in turn["expected_calls"]]
    calls = [
        {
            "id": f"{number % 10**4:04d}{index % 10**5:05d}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(example(call, lambda key, value: True), ensure_ascii=False),
            },
        }
        for index, call in enumerate(expected)
    ]
    message = {"role": "assistant", "content": turn.get("says", "")}
    yield {**message, "tool_calls": calls} if calls else message
    for call, result in zip(calls, turn.get("results", ()), strict=False):
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        yield {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": text}
