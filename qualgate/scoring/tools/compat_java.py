"""Convert Java source text to values, as BFCL does with the arguments of its Java calls. Reference: see `compat`.

Text that it cannot read stays unchanged. Its patterns backtrack without end on hostile text, so they run in RE2,
whose classes \\s, \\d, \\w are widened to Python's. It splits lists at every comma, those inside texts too.
"""

from __future__ import annotations

from typing import Any

import re2

MAX_COLLECTION = 2**16  # characters of a collection's source text that are read

_DIGIT, _WORD = r"\p{Nd}", r"[\p{L}\p{N}_]"
_SPACE = r"[\t-\r\x1c-\x1f \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


class TooLong(Exception):
    """A collection beyond our own limit, which the reference lacks."""


def pattern(source: str) -> Any:
    """Compile `source` with Python's \\s, \\d, \\w and $ (the end, or before a final newline)."""
    for short, long in ((r"\s", _SPACE), (r"\d", _DIGIT), (r"\w", _WORD), ("$", r"\n?\z")):
        source = source.replace(short, long)
    return re2.compile(source)


_INTEGER = pattern(r"^(-?\d+)$")
_LONG = pattern(r"^(-?\d+)[lL]$")
_DOUBLE = pattern(r"^(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$")
_FLOAT = pattern(r"^(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)[fF]$")
_AS_LIST = pattern(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
_ADDS = pattern(r"(?s)new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}")
_ADD = pattern(r"add\((.+?)\)")
_NO_ELEMENTS = pattern(r"new\s+ArrayList<\w*>\(\)")
_ARRAY = pattern(r"new\s+\w+\[\]\s*\{(.*?)\}")
_PUTS = pattern(r"(?s)new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}")
_PUT = pattern(r'put\("(.*?)",\s*(.*?)\)')
_NO_ENTRIES = pattern(r"new\s+HashMap<.*?>\s*\(\)")


def java_value(text: str, documented: str, nested: str | None = None) -> Any:
    """Convert `text` to its value, or return it unchanged. NotImplementedError for types the reference leaves out.

    ValueError for a number of more digits than Python reads, TooLong for a collection of more than MAX_COLLECTION.
    """
    match documented:
        case "byte" | "short" | "integer":
            return int(text) if _INTEGER.search(text) else text
        case "long":
            return int(literal[1]) if (literal := _LONG.search(text)) else text
        case "float":
            return float(literal[1]) if (literal := _FLOAT.search(text)) else text
        case "double":
            return float(text) if _DOUBLE.search(text) else text
        case "boolean":
            return text == "true" if text in ("true", "false") else text
        case "char" | "String" | "any":
            return text
        case "Array" | "ArrayList" | "HashMap":
            refuse_long(text)
            return {"Array": _array, "ArrayList": _array_list, "HashMap": _hash_map}[documented](text, nested)
        case _:
            raise NotImplementedError(f"{documented} conversion")


def refuse_long(text: str) -> None:
    """TooLong for source text that the patterns for collections would take too long to read."""
    if len(text) > MAX_COLLECTION:
        raise TooLong(f"a collection of more than {MAX_COLLECTION:,} characters")


def _array_list(text: str, nested: str | None) -> Any:
    """Return the elements of a Java ArrayList in `text`; the text itself if it is none. nested: the elements' type."""
    if match := _AS_LIST.search(text):
        elements = match[1].split(",")
    elif match := _ADDS.search(text):
        elements = [add[1] for add in _ADD.finditer(match[1])]
    else:
        return [] if _NO_ELEMENTS.search(text) else text
    unquoted = nested in ("char", "String")  # whatever stands there: the quotes are not looked at
    return [element.strip()[1:-1] if unquoted else _element(element.strip(), nested) for element in elements]


def _array(text: str, nested: str | None) -> Any:
    if not (match := _ARRAY.search(text)):
        return text
    return [_element(element.strip(), nested) for element in match[1].split(",") if element.strip()]


def _hash_map(text: str, _nested: str | None) -> Any:
    if match := _PUTS.search(text):
        return {put[1]: java_literal(put[2].strip()) for put in _PUT.finditer(match[1])}
    return {} if _NO_ENTRIES.search(text) else text


def _element(text: str, nested: str | None) -> Any:
    return java_value(text, nested) if nested else java_literal(text)


def java_literal(text: str) -> Any:
    """Convert a value without a documented type by its looks, with numbers as in Python ("1_000", "nan")."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if match := _LONG.search(text):
        return int(match[1])
    if match := _FLOAT.search(text):
        return float(match[1])
    return number(text)


def number(text: str) -> Any:
    """Convert `text` to int or float as Python does; return it unchanged if it is neither."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
