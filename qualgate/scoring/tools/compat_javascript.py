"""Convert JavaScript source text to values, as BFCL does with the arguments of its JavaScript calls. See `compat_java`.

Its patterns do not nest: a list ends at the first `]`, an object at the first `}`, and commas inside texts split.
"""

from __future__ import annotations

from typing import Any

from qualgate.scoring.tools.compat_java import number, pattern, refuse_long

_INTEGER = pattern(r"^-?\d+$")
_FLOAT = pattern(r"^-?\d+(?:\.\d+)?$")
_BIGINT = pattern(r"^-?\d+n$")
_LISTS = pattern(r"^(?:\[\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\]|new\s+Array\(\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\))")
_INNER = pattern(r"\[(.*?)\]")
_LIST = pattern(r"^(?:\[(.*?)\]|new\s+Array\((.*?)\))")
_OBJECT = pattern(r"^\{(.*?)\}")


def javascript_value(text: str, documented: str, nested: str | None = None) -> Any:
    """Convert `text` to its value, or return it unchanged. ValueError and TooLong as in `java_value`."""
    match documented:
        case "String":
            return _unquoted(text) if _quoted(text) else text
        case "integer":
            return int(text) if _INTEGER.search(text) else text
        case "float":
            return float(text) if _FLOAT.search(text) else text
        case "Bigint":
            return int(text[:-1]) if _BIGINT.search(text) else text
        case "Boolean":
            return text == "true" if text in ("true", "false") else text
        case "array" | "dict":
            refuse_long(text)
            return _array(text.strip(), nested) if documented == "array" else _object(text.strip())
        case _:
            return text


def _quoted(text: str) -> bool:
    return (text.startswith('"') and text.endswith('"')) or (text.startswith("'") and text.endswith("'"))


def _unquoted(text: str) -> str:
    return text[1:-1]


def _array(text: str, nested: str | None) -> Any:
    """Return a JavaScript array as a list, nested once at most; the text itself if it is none.

    nested: its elements' type.
    """
    try:
        if array := _LISTS.search(text):
            inner = (
                match[1].strip().removeprefix("[") if not index else match[1].strip()
                for index, match in enumerate(_INNER.finditer(array[0]))
            )
            return [[_literal(item.strip()) for item in items.split(",")] for items in inner]
        if not (array := _LIST.search(text)):
            return text
        items = (array[2] if array[1] is None else array[1]).strip()
        return [_element(item.strip(), nested) for item in items.split(",")] if items else []
    except ValueError:  # a number of too many digits; the reference takes any exception for "not a list"
        return text


def _element(text: str, nested: str | None) -> Any:
    return javascript_value(text, nested) if nested else _literal(text)


def _object(text: str) -> Any:
    if text == "{}":
        return {}
    if not (match := _OBJECT.search(text)):
        return text
    return {key.strip().strip("'\""): _entry(value.strip()) for key, value in _pairs(match[1])}


def _entry(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _array(text, None)
    return _literal(text.strip("'\""))


def _pairs(content: str) -> list[tuple[str, str]]:
    """Return the matches of the reference's pattern `([^:]+):\\s*(.*?)(?:,\\s*(?=[^,]+:)|$)`; RE2 has no lookahead.

    `content` has no newline: it stood inside `\\{(.*?)\\}`. A key runs to the colon, a value to the first comma with a
    colon before the next comma, but not right behind it.
    """
    pairs, start = [], 0
    while True:
        while content.startswith(":", start):
            start += 1
        colon = content.find(":", start)
        if colon < 0:
            return pairs
        key, value = content[start:colon], content[colon + 1 :].lstrip()
        begin = comma = len(content) - len(value)
        while (comma := content.find(",", comma)) >= 0:
            behind = content.find(",", comma + 1)
            last = content.rfind(":", comma + 2, len(content) if behind < 0 else behind)
            if last >= 0:
                break
            comma += 1
        else:
            return [*pairs, (key, content[begin:])]
        pairs.append((key, content[begin:comma]))
        start = comma + 1
        while content[start].isspace() and start + 1 < last:
            start += 1


def _literal(text: str) -> Any:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return _unquoted(text) if _quoted(text) else number(text)
