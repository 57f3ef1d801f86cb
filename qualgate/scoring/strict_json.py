"""The strict JSON reader: RFC 8259 as it is written, with the loopholes of Python's reader closed.

Refused with a reason: NaN and Infinity, duplicate keys, lone surrogates, more than 64 levels, more than 1 MiB,
numbers of more than 400 digits or beyond a double's range, anything around the one value but white space.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any

MAX_DEPTH = 64
MAX_BYTES = 2**20
MAX_DIGITS = 400

# Possessive, and an unclosed string runs to the end, through a last lone backslash too: linear on any text.
_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
# What makes the plain hooks necessary: a number that may be too long or overflow to infinity.
_LARGE_NUMBER = re.compile(r"[0-9.]{300}|[0-9][eE]\+?[0-9]{2}")
_SPACE = " \t\n\r"


class NotStrictJson(ValueError):
    """`str(error)` is the reason, `error_type` its word."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


def read(text: str, max_bytes: int = MAX_BYTES) -> Any:
    """The one JSON value that `text` is; NotStrictJson otherwise."""
    if len(text) > max_bytes:
        raise NotStrictJson("too_large", f"more than {max_bytes:,} bytes")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise NotStrictJson("lone_surrogate", "a lone surrogate is not text") from None
    if size > max_bytes:
        raise NotStrictJson("too_large", f"more than {max_bytes:,} bytes")
    if not text.strip(_SPACE):
        raise NotStrictJson("empty", "the answer is empty")
    text = text.rstrip(_SPACE)  # so that where it ends too early is its end, not the line after
    _refuse_depth(text)
    try:
        value = (_CAREFUL if _LARGE_NUMBER.search(text) else _PLAIN).decode(text)
    except json.JSONDecodeError as error:
        word = "trailing_text" if error.msg == "Extra data" else "not_json"
        line = f"line {error.lineno} " if "\n" in text.strip() else ""
        raise NotStrictJson(word, f"{error.msg.removesuffix(' at')} at {line}column {error.colno}") from None
    if "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def unwrapped(text: str, modes: Collection[str]) -> str:
    """The JSON that the declared lenient modes find in an answer; what they do not take off stays for `read` to refuse.

    code_fence: an answer that is one Markdown code fence is what the fence holds. trailing_text: of an answer that
    begins with a value, what follows is left off. Both, in this order whatever the order they are declared in: the
    fence may stand in text, and what is before it and behind it is left off; where the answer itself begins with an
    object, a list or a string, that is the value, and fences in it and behind it are text. Nothing else is mended.
    """
    if "code_fence" in modes:
        text = inside_fence(text, in_text="trailing_text" in modes)
    return first_value(text) if "trailing_text" in modes else text


LENIENT = ("code_fence", "trailing_text")


def first_value(text: str) -> str:
    """The part of `text` that its first JSON value takes, for the lenient mode `trailing_text`."""
    start = len(text) - len(text.lstrip(_SPACE))
    if text[start : start + 1] not in ("{", "["):
        match = re.compile(r'"(?:[^"\\]|\\.)*+"|[^\s,\]}`]++', re.DOTALL).match(text, start)
        return match[0] if match else text
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[start : match.end()]
        if depth > MAX_DEPTH:
            break  # `read` refuses it, so where it ends does not matter
    return text


_OPENING = re.compile(r'```[A-Za-z0-9]*+(?=[\s{\["])\s*+')
_OPENING_A_VALUE = re.compile(_OPENING.pattern + r'(?=[{\["0-9tfn-])')  # not the end of a fence before it


def inside_fence(text: str, *, in_text: bool = False) -> str:
    """What one Markdown code fence holds when it is all of `text`; a fence that is not closed holds nothing.

    in_text: from the first fence that holds a value to the last fence's end, unless `text` begins with a value.
    """
    stripped = text.strip()
    in_text = in_text and not stripped.startswith(("{", "[", '"'))
    opening = _OPENING_A_VALUE.search(stripped) if in_text else _OPENING.match(stripped)
    closing = stripped.rfind("```")
    if opening is None or closing < opening.end() or not (in_text or stripped.endswith("```")):
        return text
    return stripped[opening.end() : closing].rstrip(_SPACE)


def _refuse_depth(text: str) -> None:
    """Raise NotStrictJson for too deep nesting, before a parser that recurses reads the text."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > MAX_DEPTH:
            raise NotStrictJson("too_deep", f"more than {MAX_DEPTH} levels of nesting")


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise NotStrictJson("lone_surrogate", "a \\u escape stands for half a character") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise NotStrictJson("duplicate_key", f"the key {twice[:60]!r} twice in one object")
    return value


def _constant(name: str) -> Any:
    raise NotStrictJson("not_finite", f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise NotStrictJson("number_too_long", f"a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise NotStrictJson("number_too_long", f"a number of more than {MAX_DIGITS} digits")
    value = float(digits)
    if math.isinf(value):
        raise NotStrictJson("number_too_long", "a number beyond the range of a double")
    return value


_PLAIN = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float)
