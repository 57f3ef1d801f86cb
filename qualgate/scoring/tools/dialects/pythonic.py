"""Calls written as a Python list: `[f(a=1, b="x"), g()]`. Read with `ast`, never evaluated.

Only literals are arguments: numbers with a sign, strings, lists, tuples, dictionaries with string keys, and true,
false, null in Python's or JSON's spelling. vLLM drops positional arguments, takes sets as lists and turns number
keys into strings; here those are errors, because the model did not write what the call would then say.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.strict_json import MAX_DIGITS
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools

MEANT = re.compile(r"\[\s*+[A-Za-z_][\w.]*+\s*+\(")
MAX_CHARACTERS = 2**16  # some hundred bytes of tree for each: 20 MB

# Nothing but literals, names, brackets and separators gets as far as the parser: no operator can pile up. Possessive,
# so linear. A triple-quoted string reads as three strings side by side.
_LITERALS = re.compile(r"""(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[\w\s.,:=()\[\]{}]|[-+](?=[\w.]))*+""", re.DOTALL)
_DOTS = re.compile(r"(?:\.\s*+\w++\s*+){16}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES = {"true": True, "false": False, "null": None}


def read(text: str, tools: Tools) -> list[Call]:
    """Read `[f(a=1), g(b="x")]`. BadCall for anything else, such as operators and positional arguments."""
    tree = _parsed(text)
    if not isinstance(tree, ast.List) or not tree.elts:
        raise BadCall("call_shape", "not a list of calls")
    return [_call(item) for item in tree.elts]


def lines(text: str, tools: Tools) -> list[Call]:
    """Read calls such as `f(a=1)`, one per line."""
    return read(f"[{', '.join(line.strip() for line in text.split(chr(10)) if line.strip())}]", tools)


def _parsed(text: str) -> ast.expr:
    """Parse a text as a Python expression. BadCall for any other text.

    Length, operators and chains of dots are capped here, the depth of brackets by the caller.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadCall("too_large", f"more than {MAX_CHARACTERS:,} characters")
    end = _LITERALS.match(text).end()  # pyrefly: ignore[missing-attribute]
    if end < len(text):
        if text[end] in "\"'":
            raise BadCall("unbalanced_quotes", f"a string is not closed: {quote(text[end:])}")
        raise BadCall("not_a_literal", f"{quote(text[end:])} is no literal")
    if _DOTS.search(text):
        raise BadCall("not_a_literal", "a chain of names")
    try:
        with warnings.catch_warnings():  # "\d" is a string all the same, and `1or` a number
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        word = "unbalanced_quotes" if "unterminated" in (error.msg or "") else "not_python"
        raise BadCall(word, error.msg or "not Python") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadCall("not_python", f"{error}"[:200] or "too much for a call") from None


def _call(node: ast.expr) -> Call:
    """Return a call with keyword arguments of literals. BadCall for anything else."""
    if not isinstance(node, ast.Call):
        raise BadCall("call_shape", "an item of the list is not a call")
    if node.args:
        raise BadCall("call_shape", "an argument without a name")
    arguments: dict[str, Any] = {}
    for word in node.keywords:
        if word.arg is None:
            raise BadCall("not_a_literal", "** in a call")
        if word.arg in arguments:
            raise BadCall("duplicate_key", f"the argument {quote(word.arg)} twice in one call")
        arguments[word.arg] = _value(word.value)
    return Call(_name(node.func), arguments)


def _name(node: ast.expr) -> str:
    if not (name := dotted(node)):
        raise BadCall("call_shape", "what is called has no name")
    return name


def dotted(node: ast.expr) -> str:
    """Return the called name, `a.b.c`; "" if the expression is no name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _value(node: ast.expr) -> Any:
    """Return the value of a literal. BadCall for anything else.

    Recursion is as deep as the brackets, so at most MAX_DEPTH.
    """
    match node:
        case ast.Constant(value=str() as text):
            if _SURROGATE.search(text):
                raise BadCall("lone_surrogate", "a lone surrogate is not text")
            return text
        case ast.Constant(value=bool() | None as constant):
            return constant
        case ast.Constant(value=int() | float() as number):
            return _finite(number)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=number)) if type(number) in (
            int,
            float,
        ):
            return _finite(-number if isinstance(sign, ast.USub) else number)  # pyrefly: ignore
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            entries: dict[str, Any] = {}
            for key, value in zip(keys, values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    raise BadCall("not_a_literal", "a key that is no string")
                if key.value in entries:
                    raise BadCall("duplicate_key", f"the key {quote(key.value)} twice in one dictionary")
                entries[key.value] = _value(value)
            return entries
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
    raise BadCall("not_a_literal", f"an argument that is no literal ({type(node).__name__})")


def _finite(number: int | float) -> int | float:
    if isinstance(number, float) and not math.isfinite(number):
        raise BadCall("number_too_long", "a number beyond the range of a double")
    if isinstance(number, int) and number.bit_length() > 4 * MAX_DIGITS:
        raise BadCall("number_too_long", f"a number of more than {MAX_DIGITS} digits")
    return number


def write(calls: Sequence[Call]) -> str:
    """Write a list of calls. ValueError for names that Python could not read."""
    return "[" + ", ".join(map(_written, calls)) + "]"


def write_lines(calls: Sequence[Call]) -> str:
    """Write one call per line. ValueError for names that Python could not read."""
    return "<function_calls>" + "\n".join(map(_written, calls)) + "</function_calls>"


def _written(call: Call) -> str:
    for name in (*call.name.split("."), *call.arguments):
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise ValueError(f"{quote(name)} is no name in Python")
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
