"""Parsers of a server whose calls are Python: what each makes of a finished answer, in our own words
(`served_parsers`). A text is parsed, never evaluated.

What has no name is left out, a set is a list, a key is written as JSON writes it; `**x` is an argument called null.
"""

from __future__ import annotations

import ast
import itertools
import json
import keyword
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.pythonic import MAX_CHARACTERS, dotted
from qualgate.scoring.tools.served_json import FAULTS
from qualgate.scoring.tools.served_values import executed, lenient

_CALL = r"[a-zA-Z]\w*+\("
# What vLLM's pattern comes to, in linear time: calls with nothing in them, then either one whose first argument has a
# name, or the end.
_BEGINS = re.compile(rf"\[(?:{_CALL}\),\s*)*+(?:(?:{_CALL}\)\s*)++\]|(?:{_CALL}\)\s*)*+{_CALL}[a-zA-Z]\w*+=)")
_ENDS = re.compile(r"\)\s*\]")
_STRING = r"(?P<quote>[\"'])(?:\\.|(?!(?P=quote)).)*(?:(?P=quote)|\Z)"
_IN_STRING = re.compile(r"\\.|[\n\r\t\0]", re.DOTALL)
_NUMBER = re.compile(rf"{_STRING}|[^\W\d]\w*|(?<!\.)(?P<number>\d[\d_]*)(?![.eEjJ])|\d[\d_]*", re.DOTALL)
_ARGUMENT = re.compile(rf"{_STRING}|(?P<before>[(,]\s*)(?P<name>[^\W\d]\w*)(?=\s*=(?!=))", re.DOTALL)
_AFTER_STRING = re.compile(r"\s*[,)\]}:]")
_RENAMED = "_pyreservedkw_"  # as the servers have it: where strings are repaired, it may become part of one
MOST_PARSED = 2**20  # characters, over all ways to close a string: a second
NAMES = {"null": None, "true": True, "false": False}


def pythonic(text: str, tools: Tools) -> Iterator[Call]:
    """A list of calls that the text begins with, if all of the text is Python."""
    begin = _BEGINS.match(text)
    if begin and (begin[0].endswith("]") or _ENDS.search(text, begin.end())):
        yield from _listed(text, parsed)


def llama4(text: str, tools: Tools) -> Iterator[Call]:
    """The same, between its tokens, too."""
    if text.startswith("<|python_start|>"):
        text = text.removeprefix("<|python_start|>").replace("<|python_end|>", "")
    return pythonic(text, tools)


def olmo3(text: str, tools: Tools) -> Iterator[Call]:
    """A call a line, in the first block or in the whole text."""
    block, closed, _ = text.partition("<function_calls>")[2].partition("</function_calls>")
    lines = (line.strip() for line in (block if closed else text).splitlines())
    return pythonic(f"[{', '.join(filter(None, lines))}]", tools)


def lfm2(text: str, tools: Tools) -> Iterator[Call]:
    """The first block, repaired where it is no Python: characters of control in strings, zeros before a number, quotes
    within quotes, arguments that are called as Python's own words."""
    _, begun, rest = text.partition("<|tool_call_start|>")
    block = rest.partition("<|tool_call_end|>")[0].strip()
    if begun and re.fullmatch(r"\[.*\]", block, re.DOTALL):
        yield from _listed(block, _repaired)


def _listed(text: str, parse: Callable[[str], ast.Module]) -> Iterator[Call]:
    """The calls of the list that the tree begins with; of any other, or of one that cannot be handed on, none."""
    if len(text) > MAX_CHARACTERS:
        raise BadCall("too_much", f"{len(text):,} characters may be Python, and are too many to be parsed")
    try:
        tree = parse(text)
        found = getattr(tree.body[0], "value", None)
        if not isinstance(found, ast.List) or not all(isinstance(one, ast.Call) for one in found.elts):
            return
        calls = [(_name(one.func), _arguments(one)) for one in found.elts if isinstance(one, ast.Call)]
    except BadCall:
        raise
    except (*FAULTS, SyntaxError, MemoryError):
        return
    yield from (executed(name, given) for name, given in calls)


def parsed(text: str) -> ast.Module:
    """SyntaxError, or ValueError, for what is no Python."""
    with warnings.catch_warnings():  # "\d" is a string all the same
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _arguments(call: ast.Call) -> dict[str, Any]:
    given = {one.arg: _value(one.value) for one in call.keywords}
    written = lenient(json.dumps(given))  # keys become text
    return {own_name(key): value for key, value in written.items()}


def _name(node: ast.expr) -> str:
    if not (name := dotted(node)):
        raise ValueError("what is called has no name")
    return name


def _value(node: ast.expr) -> Any:
    """ValueError, or TypeError, for what is no literal."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as constant):
            return constant
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
            return {key.value: _value(value) for key, value in zip(keys, values, strict=True)}  # pyright: ignore
        case ast.JoinedStr(values=parts) if all(isinstance(part, ast.Constant) for part in parts):
            return "".join(str(part.value) for part in parts)  # pyright: ignore
        case ast.Name(id=name) if name in NAMES:
            return NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if type(number) in (int, float):
                return -number if isinstance(sign, ast.USub) else number
    raise ValueError("no literal")


def _repaired(text: str) -> ast.Module:
    """The first of the text and its repairs that is Python, each a step from the one before."""
    try:
        return parsed(text)
    except (SyntaxError, ValueError):
        pass
    ways = [tidied(text)]
    if way := requoted(ways[0], _is_python):
        ways.append(escaped(way))
    for way in (*ways, renamed(ways[-1])):
        try:
            return parsed(way)
        except (SyntaxError, ValueError):
            continue
    raise ValueError("no Python")


def tidied(text: str) -> str:
    """Whole numbers without zeros before them, and strings as `escaped` has them."""
    return escaped(_NUMBER.sub(_without_zeros, text))


def escaped(text: str) -> str:
    """Characters of control in strings as escapes."""
    return re.sub(
        _STRING,
        lambda one: _IN_STRING.sub(lambda raw: raw[0] if len(raw[0]) > 1 else _ESCAPES[raw[0]], one[0]),
        text,
        flags=re.DOTALL,
    )


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\x00"}


def _without_zeros(token: re.Match[str]) -> str:
    digits = (token["number"] or "").replace("_", "")
    return str(int(digits)) if digits.startswith("0") and digits.strip("0") else token[0]


def renamed(text: str) -> str:
    """Arguments that are called as Python's own words under other names; `own_name` gives theirs back."""
    return _ARGUMENT.sub(_renamed, text)


def own_name(key: str) -> str:
    """What an argument was called before `renamed`."""
    before = key.removesuffix(_RENAMED)
    return before if keyword.iskeyword(before) else key


def _renamed(token: re.Match[str]) -> str:
    reserved = token["name"] is not None and keyword.iskeyword(token["name"])
    return token[0] + _RENAMED if reserved else token[0]


def requoted(text: str, fits: Callable[[str], bool]) -> str:
    """The first string that its first quote cannot close, closed by the only one with which the text `fits`; "" where
    none, or several, do."""
    at = 0
    while begin := re.compile("[\"']").search(text, at):
        quoted = re.compile(rf"\\.|{begin[0]}", re.DOTALL)
        unescaped = (one.start() for one in quoted.finditer(text, begin.end()) if one[0] == begin[0])
        if (first := next(unescaped, None)) is None:
            return ""
        if _AFTER_STRING.match(text, first + 1):
            at = first + 1
            continue
        quotes = [first, *unescaped]
        ends = [index for index, quote in enumerate(quotes) if _AFTER_STRING.match(text, quote + 1)]
        if len(ends) * len(text) > MOST_PARSED:
            raise BadCall("too_much", f"{len(ends):,} quotes may close one string, and are too many to be tried")
        found = [way for end in ends if fits(way := _closed_at(text, quotes[: end + 1]))]
        return found[0] if len(found) == 1 else ""
    return ""


def _closed_at(text: str, quotes: list[int]) -> str:
    """The quotes but the last with a backslash."""
    cuts = [0, *quotes[:-1], len(text)]
    return "\\".join(text[begin:end] for begin, end in itertools.pairwise(cuts))


def _is_python(text: str) -> bool:
    try:
        parsed(escaped(text))
    except (SyntaxError, ValueError):
        return False
    return True
