"""Tool calls and JSON extraction asked in other languages: Spanish, Chinese, Arabic, Hindi.

A module a language, with the same parts: what may stand for a value of each kind (`VALUES`), a request a tool
(`REQUESTS`, `[…]` is said where an optional parameter is given), a note a template (`NOTES`: how it opens, and a phrase
a field, a flag's as its two readings) and what is asked (`EXTRACT`). Every value fits its phrase: no noun is counted
where a number would change it, no verb or adjective agrees with a person.

The reference model knows English alone: it says nothing sensible here. The sets are for models of one's own, whose
`json.schema` and `tool_call.correct` do not depend on how JSON is spaced.
"""

from __future__ import annotations

import json
import random
from importlib import import_module
from types import ModuleType
from typing import Any

LANGUAGES = ("es", "zh", "ar", "hi")
FAMILIES = ("tool_calls", "json_extract")

# Parameters as `name:kind`, ? = optional.
TOOLS = {
    "get_weather": "city:city days?:few",
    "send_message": "to:person text:message",
    "book_table": "restaurant:restaurant people:few date?:date",
    "set_alarm": "time:time",
    "convert_money": "amount:many source:EUR|USD target:GBP|CHF",
    "find_route": "start:city goal:city",
    "track_order": "order:code",
    "cancel_order": "order:code",
    "find_book": "topic:topic author?:person",
    "find_hotel": "city:city price:many",
    "call_taxi": "place:place people?:few",
    "add_contact": "name:person phone:phone",
}
# Fields of a note as `key:kind`.
FIELDS = {
    "hotel": "name:person city:city nights:few date:date breakfast:flag",
    "order": "id:code item:item qty:few total:price paid:flag",
    "flight": "flight:code origin:city target:city date:date delay:few",
    "meeting": "topic:topic organizer:person date:date room:code people:few online:flag",
    "recipe": "cook:person parts:list minutes:few portions:few vegan:flag",
    "package": "code:code sender:person receiver:person grams:many fragile:flag",
    "course": "topic:topic teacher:person start:date seats:few online:flag",
    "flat": "city:city rooms:few rent:many owner:person free:flag",
}
TEMPLATES = {"tool_calls": tuple(TOOLS), "json_extract": tuple(FIELDS)}
_TYPES = {"few": "integer", "many": "integer", "price": "number", "flag": "boolean", "list": "array"}


def language(code: str) -> ModuleType:
    """The module of one language."""
    return import_module(f"{__name__}.{code}")


def make_case(code: str, family: str, template: str, rng: random.Random) -> dict[str, Any]:
    """A case without its id and token limit."""
    made = _tool_case if family == "tool_calls" else _json_case
    return made(language(code), template, rng) | {"tags": [f"language:{code}", f"template:{template}"]}


def _pairs(spec: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in (part.split(":", 1) for part in spec.split())]


def _value(words: ModuleType, kind: str, rng: random.Random) -> Any:
    if "|" in kind:
        return rng.choice(kind.split("|"))
    match kind:
        case "few":
            return rng.randint(3, 9)
        case "many":
            return rng.randint(100, 9999)
        case "price":
            return rng.randint(200, 9999) / 100
        case "flag":
            return rng.random() < 0.5
        case "code":
            return rng.choice("ABCDEFGHKLMNPRSTVXZ") + str(rng.randint(100, 999))
        case "phone":
            return f"{rng.randint(200, 999)}-{rng.randint(1000, 9999)}"
        case "time":
            return f"{rng.randint(6, 22):02}:{rng.choice((10, 15, 20, 30, 45))}"
        case "date":
            return f"20{rng.randint(27, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        case "list":
            return rng.sample(words.ITEMS, rng.choice((2, 3)))
    return rng.choice(words.VALUES[kind])


# ------------------------------------------------------------------------------------------------- tool calls


def _tool(words: ModuleType, name: str) -> dict[str, Any]:
    parameters = [(key.rstrip("?"), kind, not key.endswith("?")) for key, kind in _pairs(TOOLS[name])]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": words.DESCRIPTIONS[name],
            "parameters": {
                "type": "object",
                "properties": {
                    key: {"type": "string", "enum": kind.split("|")}
                    if "|" in kind
                    else {"type": _TYPES.get(kind, "string")}
                    for key, kind, _ in parameters
                },
                "required": [key for key, _, required in parameters if required],
                "additionalProperties": False,
            },
        },
    }


def _ask(words: ModuleType, name: str, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A request for this tool and the one right call."""
    request, arguments = words.REQUESTS[name], {}
    before, _, after = request.partition("[")
    extra, _, end = after.partition("]")
    for key, kind in _pairs(TOOLS[name]):
        if key.endswith("?") and rng.random() < 0.5:
            extra = ""
            continue
        value = _value(words, kind, rng)
        while value in arguments.values():  # no way leads from a city to itself
            value = _value(words, kind, rng)
        arguments[key.rstrip("?")] = value
    return (before + extra + end).format(**arguments), {"name": name, "arguments": arguments}


def _tool_case(words: ModuleType, template: str, rng: random.Random) -> dict[str, Any]:
    """One call among one tool or several, two calls, or a request that none of the tools fits."""
    request, call = _ask(words, template, rng)
    calls, offered = [call], [template]
    others = rng.sample([name for name in TOOLS if name != template], 3)
    situation = rng.choice(("one", "choice", "parallel", "none"))
    if situation == "parallel":
        more, second = _ask(words, others[0], rng)
        request, calls, offered = f"{request} {more}", [call, second], [template, *others[:2]]
    elif situation == "choice":
        offered = [template, *others]
    elif situation == "none":
        calls, offered = [], others
    rng.shuffle(offered)
    call_text = "\n".join(f"<tool_call>\n{json.dumps(each, ensure_ascii=False)}\n</tool_call>" for each in calls)
    return {
        "task": "tool_calls",
        "messages": [{"role": "user", "content": request}],
        "tools": [_tool(words, name) for name in offered],
        "expected_calls": calls,
        "answer": call_text or words.NO_TOOL,
    }


# ---------------------------------------------------------------------------------------------------- JSON


def _said(words: ModuleType, phrase: str, kind: str, value: Any) -> str:
    if kind == "flag":
        return phrase.split("/")[0 if value else 1]
    if kind == "list":
        value = words.AND.join([words.COMMA.join(value[:-1]), value[-1]])
    return phrase.replace("@", f"{value:.2f}" if kind == "price" else str(value))


def _json_case(words: ModuleType, template: str, rng: random.Random) -> dict[str, Any]:
    """The schema holds the values themselves: `json.schema` is right for the right record alone, however it is spaced.
    One field may be asked that the note does not state: then null is right."""
    opening, *phrases = words.NOTES[template]
    fields = [(key, kind, phrase) for (key, kind), phrase in zip(_pairs(FIELDS[template]), phrases, strict=True)]
    stated = rng.sample(fields, rng.randint(3, len(fields) - 1))
    record = {}
    for key, kind, _ in stated:
        record[key] = _value(words, kind, rng)
    note = opening + words.COMMA.join(_said(words, phrase, kind, record[key]) for key, kind, phrase in stated)
    requested = rng.sample(stated, rng.randint(2, len(stated)))
    if rng.random() < 0.3:
        requested.append(rng.choice([field for field in fields if field not in stated]))
    wanted = {key: record.get(key) for key, _, _ in requested}
    short = ", ".join(f'"{key}": {_TYPES.get(kind, "string")}' for key, kind, _ in requested)
    return {
        "task": "json_extract",
        "messages": [{"role": "user", "content": f"{words.EXTRACT} {{{short}}}\n{note}{words.STOP}"}],
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {key: {"const": value} for key, value in wanted.items()},
            "required": list(wanted),
            "additionalProperties": False,
        },
        "answer": json.dumps(wanted, ensure_ascii=False, separators=(",", ":")),
    }
