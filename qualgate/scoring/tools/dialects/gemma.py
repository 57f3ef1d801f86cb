"""Gemma's calls, `call:NAME{KEY:VALUE,…}`: strings stand between two marks, keys are bare, the rest is as in JSON.

FunctionGemma marks strings with `<escape>`, Gemma 4 with `<|"|>`. What stands bare and is no JSON (`celsius`, `None`)
is a fault; vLLM's Gemma 4 takes it as text, and keys between marks too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.strict_json import MAX_DEPTH
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_json
from qualgate.scoring.tools.dialects.tagged import properties, typed, types

_HEAD = re.compile(r"\s*call:(?P<name>[^{}\s]+)\{")
_KEY = re.compile(r"\s*+([^:{}\[\],<>]+):\s*+")
_WORD = re.compile(r"[^,\[\]{}<>]++")
_SPACE = re.compile(r"\s*+")


@dataclass(frozen=True)
class Grammar:
    """A call stands between `open` and `close`; a string between two `mark`."""

    open: str
    close: str
    mark: str

    def read(self, text: str, tools: Tools) -> list[Call]:
        """Read the one call of a block. BadCall for anything else."""
        head = _HEAD.match(text)
        if not head:
            raise BadCall("call_shape", f"{quote(text)} is no call:name{{…}}")
        arguments, end = self._object(text, head.end(), 1)
        if text[end:].strip():
            raise BadCall("stray_text", f"{quote(text[end:])} after the call")
        schemas = properties(tools, head["name"])
        for key, value in arguments.items():
            # Small models escape numbers too; the schema decides their type.
            if isinstance(value, str) and (schema_types := types(schemas.get(key))) and "string" not in schema_types:
                arguments[key] = typed(value, schemas[key])
        return [Call(head["name"], arguments)]

    def _object(self, text: str, index: int, depth: int) -> tuple[dict[str, Any], int]:
        """Read an object behind its brace; return it and the index behind its end. BadCall for a malformed one."""
        members: dict[str, Any] = {}
        index = _skip(text, index)
        if text.startswith("}", index):
            return members, index + 1
        while True:
            key = _KEY.match(text, index)
            if not key:
                raise BadCall("not_json", f"no key at {quote(text[index:])}")
            name = key[1].strip()
            if name in members:
                raise BadCall("duplicate_key", f"the key {quote(name)} twice in one object")
            members[name], index = self._value(text, key.end(), depth)
            index = _skip(text, index)
            if text.startswith("}", index):
                return members, index + 1
            if not text.startswith(",", index):
                raise BadCall("unbalanced" if index >= len(text) else "not_json", f"no comma at {quote(text[index:])}")
            index += 1

    def _list(self, text: str, index: int, depth: int) -> tuple[list[Any], int]:
        """Read a list behind its bracket; return it and the index behind its end. BadCall for a malformed one."""
        items: list[Any] = []
        index = _skip(text, index)
        if text.startswith("]", index):
            return items, index + 1
        while True:
            value, index = self._value(text, _skip(text, index), depth)
            items.append(value)
            index = _skip(text, index)
            if text.startswith("]", index):
                return items, index + 1
            if not text.startswith(",", index):
                raise BadCall("unbalanced" if index >= len(text) else "not_json", f"no comma at {quote(text[index:])}")
            index += 1

    def _value(self, text: str, index: int, depth: int) -> tuple[Any, int]:
        """Read a value; return it and the index behind it. BadCall for a malformed or too deep one."""
        if depth > MAX_DEPTH:
            raise BadCall("too_deep", f"more than {MAX_DEPTH} levels of nesting")
        if text.startswith(self.mark, index):
            end = text.find(self.mark, index + len(self.mark))
            if end < 0:
                raise BadCall("unbalanced_quotes", f"{self.mark} is not closed")
            return text[index + len(self.mark) : end], end + len(self.mark)
        if text.startswith("{", index):
            return self._object(text, index + 1, depth + 1)
        if text.startswith("[", index):
            return self._list(text, index + 1, depth + 1)
        word = _WORD.match(text, index)
        if not word:
            raise BadCall("not_json", f"no value at {quote(text[index:])}")
        return read_json(word[0].strip()), word.end()

    def write(self, calls: Sequence[Call]) -> str:
        """Write calls in the dialect. ValueError for what it cannot express."""
        return "".join(
            f"{self.open}call:{_name(call.name)}{self._written(call.arguments)}{self.close}" for call in calls
        )

    def _written(self, value: Any) -> str:
        """Return a value in this dialect. ValueError for a text that holds one of its markers."""
        match value:
            case str():
                if any(marker in value for marker in (self.open, self.close, self.mark)):
                    raise ValueError(f"{quote(value)} cannot be written in this dialect")
                return f"{self.mark}{value}{self.mark}"
            case dict():
                return "{" + ",".join(f"{_name(key)}:{self._written(item)}" for key, item in value.items()) + "}"
            case list():
                return "[" + ",".join(map(self._written, value)) + "]"
            case _:
                return json.dumps(value, allow_nan=False)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # pyrefly: ignore[missing-attribute]


def _name(name: str) -> str:
    if not re.fullmatch(r"[^:{}\[\],<>\s]+", name):
        raise ValueError(f"{quote(name)} cannot be written in this dialect")
    return name


FUNCTION_GEMMA = Grammar("<start_function_call>", "<end_function_call>", "<escape>")
GEMMA_4 = Grammar("<|tool_call>", "<tool_call|>", '<|"|>')
