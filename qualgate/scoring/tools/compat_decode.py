"""Decode text to calls as BFCL does, before `compat` judges them.

Prompt mode: `[f(a=1), g.h(b="x")]`, read as a Python expression and never run. Function-calling mode:
`[{"name": {"parameter": value}}]`, the arguments an object or its JSON text.

As in the reference: a fence or brackets may be missing; positional arguments are dropped; a name stands for its own
text, as does a call without keywords; every unary operator negates (`+5` is -5, `not True` is -1).
Its one `eval`, for `2 * 3` and the like, is arithmetic on constants here: an operand that is a name or a call, and a
result beyond the caps (a format with a width, too), cannot be decoded. Java and JavaScript: `compat_source`.
"""

from __future__ import annotations

import ast
import json
import operator
import warnings
from collections.abc import Callable
from typing import Any

from qualgate.scoring.json_value import depth
from qualgate.scoring.strict_json import MAX_DEPTH
from qualgate.scoring.text import MARKS_ON_ONE_LETTER, stackable

MAX_TEXT = 2**17  # characters that are read; the compiler's own trees take some hundred bytes for each
MAX_BITS = 2**13  # of a computed whole number; more digits than that Python does not write
MAX_WRITTEN = 2**16  # characters of a repeated text or list, written out


class CannotDecode(ValueError):
    """The text holds no calls in BFCL's format: `output=None` for `compat.check`. `str(error)` says why."""


def decode(text: str) -> list[dict[str, Any]]:
    """Decode the calls of a prompt-mode answer."""
    text = text.strip("`\n ")
    text = ("" if text.startswith("[") else "[") + text + ("" if text.endswith("]") else "]")
    if len(text) > MAX_TEXT:
        raise CannotDecode(f"more than {MAX_TEXT:,} characters")
    if not text.isascii() and not stackable(text):  # Python puts names into a normal form, in quadratic time
        raise CannotDecode(f"more than {MARKS_ON_ONE_LETTER} marks on one letter")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a model's text is no concern of the user's
            tree: Any = ast.parse(text.strip().strip("'"), mode="eval").body
        if isinstance(tree, ast.Call):
            return [_call(tree)]
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise CannotDecode("no list of calls")
        return [_call(item) for item in tree.elts]
    except CannotDecode:
        raise
    except SyntaxError as error:
        raise CannotDecode(f"no Python expression: {error.msg}") from None
    except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise CannotDecode(f"{type(error).__name__}: {error}"[:200]) from None


def decode_function_calling(text: str) -> Any:
    """Decode the calls of a function-calling answer; `compat.check` checks their shape."""
    try:
        parsed = json.loads(text)
        calls = [_loaded(item) for item in parsed] if isinstance(parsed, list) else parsed
        if depth(calls) > MAX_DEPTH:
            raise CannotDecode(f"more than {MAX_DEPTH} levels of nesting")
        return calls
    except CannotDecode:
        raise
    except (RecursionError, ValueError) as error:
        raise CannotDecode(f"no JSON: {error}"[:200]) from None


def _loaded(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    return {name: json.loads(given) if isinstance(given, str) else given for name, given in call.items()}


def _call(node: ast.AST) -> dict[str, Any]:
    """Return a call as {name: arguments}, without positional ones, as BFCL reads it. CannotDecode for no call."""
    if not isinstance(node, ast.Call):
        raise CannotDecode("an item of the list is no call")
    parts, function = [], node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    arguments: dict[Any, Any] = {keyword.arg: _value(keyword.value) for keyword in node.keywords}  # None for `**`
    return {".".join(reversed(parts)): arguments}


def _value(node: ast.AST | None) -> Any:
    """Return an argument's value as BFCL's resolve_ast_by_type does; names and calls become text.

    CannotDecode for others.
    """
    match node:
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.UnaryOp(operand=ast.Constant(value=value)):
            negated: Any = value  # whatever the operator
            return -negated
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.BinOp():
            return _computed(node)
        case ast.Name(id=name):
            return name
        case ast.Call(keywords=[]):
            return ast.unparse(node)
        case ast.Call():
            return _call(node)
        case ast.Subscript(value=value, slice=index):
            return f"{ast.unparse(value)}[{ast.unparse(index)}]"
    raise CannotDecode(f"a {type(node).__name__} is no value")


_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.BitAnd: operator.and_,
}  # fmt: skip


def _computed(node: ast.AST) -> Any:
    """Evaluate an expression of constants as Python does, within the caps."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_computed(operand))
        case ast.List(elts=items):
            return [_computed(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_computed(item) for item in items)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = _computed(left), _computed(right)
            _refuse_large(op, first, second)
            return _BINARY[type(op)](first, second)
    raise CannotDecode(f"a {type(node).__name__} is not computed")


def _refuse_large(op: ast.operator, first: Any, second: Any) -> None:
    """Raise CannotDecode if an operation of constants would give a number or text beyond the caps."""
    match op, first, second:
        case ast.Pow(), int(), int():
            large = second > 0 and first.bit_length() * second > MAX_BITS
        case ast.LShift(), int(), int():
            large = first.bit_length() + second > MAX_BITS
        case ast.Mult(), int(), int():
            large = first.bit_length() + second.bit_length() > MAX_BITS
        case (ast.Mult(), str() | bytes() | list() | tuple() as items, int() as times) | (
            ast.Mult(), int() as times, str() | bytes() | list() | tuple() as items,
        ):  # fmt: skip
            large = times > 1 and len(repr(items)) * times > MAX_WRITTEN
        case ast.Mod(), str() | bytes() as form, _:
            large = not set(str(form)).isdisjoint("*0123456789")  # "%99999999d"
        case _:
            large = False
    if large:
        raise CannotDecode("a computation too large")
