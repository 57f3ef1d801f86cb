"""Assertions other than `assert`: unittest's methods, pytest's `raises` and `approx`, numpy's `allclose`.

pytest and numpy themselves are not inside; tests that import them (HumanEval+'s and MBPP+'s do) get only WORDS.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from types import ModuleType

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

WORDS = {"pytest": {"raises", "approx", "fail"}, "numpy": {"allclose", "ndarray", "float32", "float64"}}
MARKS = {"pytest.mark.asyncio", "pytest.mark.anyio"}  # on a test that is awaited, which it is without them, too
_ITSELF = {bool, int, float, complex, list, tuple, str}
RAISES = ("raises", "assertRaises", "assertRaisesRegex")


def asserts(node: ast.AST) -> bool:
    """Return whether `node` asserts something: an assert of more than a true constant, or a call that asserts."""
    if isinstance(node, ast.Assert):
        return not (isinstance(node.test, ast.Constant) and bool(node.test.value))
    name = _called(node)
    return name == "raises" or (name.startswith("assert") and len(name) > len("assert"))


def expects_exception(node: ast.AST) -> bool:
    """Return whether `node` is a call like `pytest.raises(KeyError)`."""
    return _called(node) in RAISES


def exception_names(tree: ast.AST) -> list[ast.Name]:
    """Return the names that stand for exception classes that the tests expect."""
    return _names(_expected(tree))


def isinstance_names(tree: ast.AST) -> list[ast.Name]:
    """Return the names that stand for classes in isinstance calls."""
    return _names(
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) == "isinstance" and len(node.args) == 2
    )


def _expected(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=ast.expr() as kind):
                yield kind
            case ast.Call(args=[kind, *_]) if expects_exception(node):
                yield kind


def _names(kinds: Iterable[ast.expr]) -> list[ast.Name]:
    parts = [part for kind in kinds for part in (kind.elts if isinstance(kind, ast.Tuple) else [kind])]
    return [part for part in parts if isinstance(part, ast.Name)]


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(value=ast.Name(), attr=name)):
            return name
    return ""


def foreign_words(tree: ast.AST) -> set[str]:
    """Return what the tests use of modules that are in no sandbox, except WORDS."""
    foreign, known = set(), dict.fromkeys(sys.stdlib_module_names, "")
    named: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name in WORDS:
                        named[alias.asname or alias.name] = alias.name
                    elif alias.name.partition(".")[0] not in known:
                        foreign.add(alias.name)
            case ast.ImportFrom(module=module, names=names, level=level):
                top = "." if level or module is None else module.partition(".")[0]
                if top not in known:
                    foreign |= {
                        f"{module or '.'}.{alias.name}" for alias in names if alias.name not in WORDS.get(top, ())
                    }
    marks = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and marks_coroutine(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=word) if name in named and word not in WORDS[named[name]]:
                foreign |= set() if id(node) in marks else {f"{named[name]}.{word}"}
    return foreign


def marks_coroutine(node: ast.expr) -> bool:
    """Return whether `node` is a decorator of MARKS."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and ast.unparse(node) in MARKS


def stand_in() -> None:
    """Make `import pytest` and `import numpy`, which the sandbox does not have, give stand-ins with what tests use."""
    words = {
        "pytest": {"raises": raises, "approx": Approx, "fail": _fail, "mark": _Mark},
        "numpy": {"allclose": all_close, "ndarray": type("ndarray", (), {}), "float32": float, "float64": float},
    }
    for name, members in words.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module


def all_close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Compare numbers, lists, tuples and arrays as numpy does: each within atol + rtol * |expected|. ValueError for
    unequal shapes."""
    actual, expected = _listed(actual), _listed(expected)
    lengths = {len(x) for x in (actual, expected) if type(x) in (list, tuple)}
    if lengths:
        if len(lengths - {1}) > 1:
            raise ValueError("operands could not be broadcast together")
        length = max(lengths - {1}, default=1)
        return all(all_close(_at(actual, i), _at(expected, i), rtol, atol) for i in range(length))
    if actual == expected or not (math.isfinite(actual) and math.isfinite(expected)):
        return actual == expected
    return abs(actual - expected) <= atol + rtol * abs(expected)


def _listed(x: Any) -> Any:
    """Convert an array, which stays behind the wall, to lists."""
    return x.tolist() if type(x) not in _ITSELF and hasattr(x, "tolist") else x


def _at(x: Any, i: int) -> Any:
    return x if type(x) not in (list, tuple) else x[i] if len(x) > 1 else x[0]


class _Mark:
    asyncio = anyio = staticmethod(lambda test: test)


def _fail(reason: str = "") -> None:
    raise AssertionError(reason)


class Raises:
    """Context of `with raises(…) as this`: `value` is the exception, afterwards."""

    def __init__(self, expected: Any, match: str | None) -> None:
        self.expected, self.pattern = expected, match
        self.value: Any = None
        self.type: Any = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: Any, value: Any, _: Any) -> bool:
        if kind is None:
            raise AssertionError("no exception was raised")
        self.type, self.value = kind, value
        if not issubclass(kind, self.expected):
            return False
        if self.pattern is not None:
            self.match(self.pattern)
        return True

    def match(self, pattern: str) -> bool:
        """Search the exception's text as unittest and pytest do: AssertionError if the pattern does not match."""
        if not re.search(pattern, str(self.value)):
            raise AssertionError(f"the exception's text does not match {pattern!r}")
        return True


def raises(expected: Any, *args: Any, match: str | None = None, **kwargs: Any) -> Raises:
    """Work as pytest's: return a context manager, or call a given function with its arguments."""
    context = Raises(expected, match)
    if args:
        with context:
            args[0](*args[1:], **kwargs)
    return context


class Approx:
    """Equal to numbers within `rel` of the expected one (1e-6) or `abs` (1e-12), and to lists, tuples and dicts of
    such numbers."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected, self.rel, self.abs = expected, rel, abs

    def __eq__(self, actual: object) -> bool:
        return self._close(actual, self.expected)

    __hash__ = None  # type: ignore[assignment]

    def _close(self, actual: Any, expected: Any) -> bool:
        """Compare numbers within the tolerances, element by element in lists, tuples and dicts."""
        if type(expected) in (list, tuple):
            return (
                type(actual) in (list, tuple)
                and len(actual) == len(expected)
                and all(map(self._close, actual, expected))
            )
        if type(expected) is dict:
            return (
                type(actual) is dict
                and actual.keys() == expected.keys()
                and all(self._close(actual[key], expected[key]) for key in expected)
            )
        if not _number(actual) or not _number(expected):
            return actual == expected
        if actual == expected or not (math.isfinite(actual) and math.isfinite(expected)):
            return actual == expected
        least = 1e-12 if self.abs is None else self.abs
        share = (1e-6 if self.abs is None else 0.0) if self.rel is None else self.rel
        return abs(actual - expected) <= max(least, share * abs(expected))


def _number(x: Any) -> bool:
    return issubclass(type(x), (int, float)) or type(x).__name__ in ("Decimal", "Fraction")
