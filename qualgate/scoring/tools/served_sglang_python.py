"""SGLang's parsers of calls that are Python: what each makes of a finished answer, in our own words
(`served_sglang`). A text is parsed, never evaluated.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Tools
from qualgate.scoring.tools.dialects.pythonic import MAX_CHARACTERS, dotted
from qualgate.scoring.tools.served_python import (
    MOST_PARSED,
    NAMES,
    escaped,
    own_name,
    parsed,
    renamed,
    requoted,
    tidied,
)
from qualgate.scoring.tools.served_sglang_list import listed
from qualgate.scoring.tools.served_sglang_values import FAULTS, Named, all_or_none, function_of, offered


def _pythonic(text: str, tools: Tools) -> Iterator[Named]:
    """Calls of tools that are offered, of the first list that its pattern finds; a call with what is no constant, list
    or dictionary is passed over."""
    text = text.strip().replace("<|python_start|>", "").replace("<|python_end|>", "")
    found = _short(listed(text))
    tree = getattr(parsed(found).body[0], "value", None) if found else None
    names = {function_of(tool).get("name") for tool in tools}
    if isinstance(tree, ast.List) and all(isinstance(one, ast.Call) for one in tree.elts):
        for call in tree.elts:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
                try:
                    given = json.dumps({one.arg: _constant(one.value) for one in call.keywords}, allow_nan=False)
                except (ValueError, TypeError):
                    continue
                yield call.func.id, json.loads(given)


def _short(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise BadCall("too_much", f"{len(text):,} characters may be Python, and are too many to be parsed")
    return text


def _constant(node: ast.expr) -> Any:
    """ValueError for what is none; AttributeError for a key that is none."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as constant):
            return constant
        case ast.List(elts=items):
            return [_constant(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {key.value: _constant(value) for key, value in zip(keys, values, strict=True)}  # pyright: ignore
    raise ValueError("no constant")


def _lfm2(text: str, tools: Tools) -> Iterator[Named]:
    """Closed blocks, each of JSON, of a call or of a list of calls; what is no Python is repaired, and of what stays
    none the calls that are."""
    parse = _counted()
    for block in re.findall(r"<\|tool_call_start\|>(.*?)<\|tool_call_end\|>", text, re.DOTALL):
        block = _short(block.strip())
        found: list[Named] = []
        if block.startswith(("[{", "{")):
            with contextlib.suppress(json.JSONDecodeError):
                found = list(offered(json.loads(block), tools))
        yield from found or _python(block, tools, parse)


_Parse = Callable[[str], ast.Module | None]


def _counted() -> _Parse:
    """Parses up to MOST_PARSED characters in all: repairs are tried one by one. None for what is no Python, BadCall
    `too_much` for more characters."""
    left = MOST_PARSED

    def parse(text: str) -> ast.Module | None:
        nonlocal left
        left -= len(text)
        if left < 0:
            raise BadCall("too_much", f"its repairs are more than {MOST_PARSED:,} characters to parse")
        try:
            return parsed(text)
        except (SyntaxError, ValueError):
            return None

    return parse


def _python(block: str, tools: Tools, parse: _Parse) -> list[Named]:
    """Calls of a block; none of one with a value that JSON has no name for."""
    try:
        whole = _tree(block, parse)
        calls = _split(block, parse) if whole is None else _calls(*whole)
        return [one for call, restore in calls if (one := _call(call, tools, restore))]
    except BadCall:  # what is not read here
        raise
    except FAULTS:
        return []


def _tree(text: str, parse: _Parse) -> tuple[ast.Module, bool] | None:
    """The first of a text and its repairs that is Python, and whether arguments have other names there."""
    for way, restore in _ways(text, parse):
        if tree := parse(way):
            return tree, restore
    return None


def _ways(text: str, parse: _Parse) -> Iterator[tuple[str, bool]]:
    yield text, False
    wanted = len(_parts(text := tidied(text), strings=False))

    def fits(way: str) -> bool:
        tree = parse(escaped(way))
        return tree is not None and (wanted < 2 or _count(tree) >= wanted)

    ways = [text, *([escaped(way)] if (way := requoted(text, fits)) else [])]
    yield from ((way, False) for way in ways)
    for one in ways:
        if (named := renamed(one)) != one:
            yield named, True
            if way := requoted(named, fits):
                yield escaped(way), True


def _count(tree: ast.Module) -> int:
    value = getattr(tree.body[0], "value", None) if tree.body else None
    return sum(isinstance(one, ast.Call) for one in (value.elts if isinstance(value, ast.List) else [value]))


_TOKEN = re.compile(r"(?P<string>(?P<quote>[\"'])(?:\\.|(?!(?P=quote)).)*(?:(?P=quote)|\Z))|[()\[\]{},]", re.DOTALL)
_MARK = re.compile(r"[()\[\]{},]")


def _parts(text: str, strings: bool) -> list[str]:
    """What commas part outside of brackets, and of strings if `strings`."""
    text = text.strip()
    text = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    found, begin, depth = [], 0, 0
    for one in (_TOKEN if strings else _MARK).finditer(text):
        if one[0] == ",":
            if depth == 0:
                found.append(text[begin : one.start()])
                begin = one.end()
        elif one[0] in "()[]{}":
            depth += 1 if one[0] in "([{" else -1
    return [part for one in (*found, text[begin:]) if (part := one.strip())]


def _split(text: str, parse: _Parse) -> list[tuple[ast.Call, bool]]:
    """Calls of a text that is no Python, each by itself: as strings part them, or where that finds more, as if there
    were none. SyntaxError where there are none."""
    best: list[tuple[ast.Call, bool]] = []
    for strings in (True, False):
        parts = _parts(text, strings)
        trees = [_tree(part, parse) for part in parts] if len(parts) > 1 else []
        values = [(getattr(tree.body[0], "value", None) if tree.body else None, named) for tree, named in
                  filter(None, trees)]  # fmt: skip
        calls = [(value, named) for value, named in values if isinstance(value, ast.Call)]
        best = calls if len(calls) > len(best) else best
    return best


def _calls(tree: ast.Module, restore: bool) -> list[tuple[ast.Call, bool]]:
    """All of a list, or one; of anything else none."""
    value = getattr(tree.body[0], "value", None) if tree.body else None
    calls = [one for one in (value.elts if isinstance(value, ast.List) else [value]) if isinstance(one, ast.Call)]
    return [(one, restore) for one in calls] if not isinstance(value, ast.List) or calls == value.elts else []


def _call(call: ast.Call, tools: Tools, restore: bool) -> Named | None:
    """None for a tool that is not offered, or what is no literal. TypeError for a key that is none."""
    name, given = dotted(call.func), {}
    if call.args or name not in {function_of(tool).get("name") for tool in tools}:
        return None
    try:
        for one in call.keywords:
            value = _literal(one.value)
            if one.arg is None and not isinstance(value, dict):
                return None
            given |= value if one.arg is None else {one.arg: value}
    except ValueError:
        return None
    if restore:
        given = {own_name(key) if isinstance(key, str) else key: value for key, value in given.items()}
    try:
        return name, json.loads(json.dumps(given, allow_nan=False))
    except (ValueError, TypeError):
        return None


def _literal(node: ast.expr | None) -> Any:
    """ValueError for what is none, TypeError for a key that is none."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as constant):
            return constant
        case ast.List(elts=items) | ast.Set(elts=items):
            return [_literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_literal(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_literal(key): _literal(value) for key, value in pairs if key is not None}
        case ast.JoinedStr(values=parts) if all(isinstance(part, ast.Constant) for part in parts):
            return "".join(str(part.value) for part in parts)  # pyright: ignore
        case ast.Name(id=name) if name in NAMES:
            return NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _literal(operand)
            if type(number) in (int, float):
                return -number if isinstance(sign, ast.USub) else number
    raise ValueError("no literal")


PYTHONIC, LFM2 = all_or_none(_pythonic), all_or_none(_lfm2)
