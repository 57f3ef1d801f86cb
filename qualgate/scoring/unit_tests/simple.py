"""Tests of a simple form, read into steps that are evaluated here: literals, calls, comparisons, little arithmetic."""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from qualgate.sandbox.inside.far import BadReply
from qualgate.sandbox.inside.remote import same

Scope = dict[str, Any]
Step = Callable[[Scope], Any]
_LARGE = 2**4096  # products and quotients of larger numbers are not formed here


class _NotSimple(Exception):
    """This test needs a whole Python."""


_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: same, ast.IsNot: lambda a, b: not same(a, b),
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (abs, set, frozenset, sorted, list, tuple, dict, len, str, int, float, bool, sum, min, max, any, all)
}
_MATH: dict[str, Callable[..., Any]] = {f.__name__: f for f in (math.isclose, math.fabs, math.isnan, math.isinf)}


def steps(tree: ast.Module, remote: set[str]) -> tuple[Step, ...] | None:
    """Return one step per statement, each taking their common scope; None if the test needs a whole Python."""
    try:
        return tuple(step for node in tree.body for step in _statement(node, tree, remote, {}))
    except _NotSimple:
        return None


def _statement(node: ast.stmt, tree: ast.Module, remote: set[str], names: dict[str, str]) -> list[Step]:
    """Read one statement into steps. _NotSimple if it is not of the few known kinds.

    names: the tests' name of a candidate's function → its own name. remote: the candidate's names.
    """
    match node:
        case (
            ast.Pass()
            | ast.Expr(value=ast.Constant() | ast.Name())
            | ast.Import(names=[ast.alias(name="math", asname=None)])
        ):
            return []
        case ast.FunctionDef(name="check", args=ast.arguments(args=[_], defaults=[], vararg=None, kwarg=None)):
            return []  # read where it is called
        case ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[ast.Name(id=name)], keywords=[])) if (
            name in remote
        ):
            checks = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "check"]
            if len(checks) != 1 or "check" in remote:
                raise _NotSimple
            inner = names | {checks[0].args.args[0].arg: name}
            return [step for line in checks[0].body for step in _statement(line, tree, remote, inner)]
        case ast.Expr(value=ast.Call() as call):
            return [_expression(call, remote, names)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in remote and name not in names:
            evaluate = _expression(value, remote, names)
            return [lambda scope: scope.__setitem__(name, evaluate(scope))]
        case ast.Assert(test=test):
            holds = _expression(test, remote, names)
            return [lambda scope: _assert(holds(scope), node.lineno)]
    raise _NotSimple


def _assert(holds: Any, line: int) -> None:
    if not holds:
        raise AssertionError(f"an assertion failed (line {line} of the tests)")


def _expression(node: ast.expr, remote: set[str], names: dict[str, str]) -> Step:
    """Read an expression into a step that evaluates it in a scope. _NotSimple if it is not of the few known kinds."""

    def read(inner: ast.expr) -> Step:
        return _expression(inner, remote, names)

    match node:
        case ast.Constant(value=value):
            return lambda scope: value
        case ast.Name(id=name) if name not in remote and name not in names and name not in dir(builtins):
            return lambda scope: scope[name]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            steps, kind = [read(item) for item in items], {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return lambda scope: kind([step(scope) for step in steps])
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = [(read(key), read(value)) for key, value in zip(keys, values, strict=True) if key is not None]
            return lambda scope: {key(scope): value(scope) for key, value in pairs}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            apply, inner = _UNARY[type(op)], read(operand)
            return lambda scope: apply(inner(scope))
        case ast.BoolOp(op=op, values=values):
            steps, stops = [read(value) for value in values], isinstance(op, ast.Or)
            return lambda scope: _chain(steps, stops, scope)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply, first, second = _ARITHMETIC[type(op)], read(left), read(right)
            return lambda scope: _numbers(apply, first(scope), second(scope))
        case ast.Compare(left=left, ops=ops, comparators=rest):
            operands, tests = [read(left), *map(read, rest)], [_COMPARE[type(op)] for op in ops]
            return lambda scope: _compare(tests, operands, scope)
        case ast.Subscript(value=value, slice=ast.Constant() | ast.UnaryOp(operand=ast.Constant()) as key):
            container, index = read(value), read(key)
            return lambda scope: container(scope)[index(scope)]
        case ast.Call(func=func, args=args, keywords=keywords) if not any(isinstance(arg, ast.Starred) for arg in args):
            if any(keyword.arg is None for keyword in keywords):
                raise _NotSimple
            call = _function(func, remote, names)
            steps, keyed = ([read(arg) for arg in args], {k.arg: read(k.value) for k in keywords if k.arg is not None})
            return lambda scope: call(scope)(
                *[arg(scope) for arg in steps], **{key: value(scope) for key, value in keyed.items()}
            )
    raise _NotSimple


def _function(func: ast.expr, remote: set[str], names: dict[str, str]) -> Step:
    """Return the step that gives the function of a call: the candidate's, a known builtin or one of `math`."""
    match func:
        case ast.Name(id=name) if name in names or name in remote:
            own_name = names.get(name, name)
            return lambda scope: scope[own_name]
        case ast.Name(id=name) if name in _FUNCTIONS:
            return lambda scope: _FUNCTIONS[name]
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _MATH and "math" not in remote:
            return lambda scope: _MATH[name]
    raise _NotSimple


def _chain(parts: list[Step], stops: bool, scope: Scope) -> Any:
    value: Any = None
    for part in parts:
        value = part(scope)
        if bool(value) is stops:
            break
    return value


def _compare(tests: list[Callable[[Any, Any], Any]], operands: list[Step], scope: Scope) -> bool:
    """Evaluate a chain of comparisons, `a < b < c`, up to the first that fails."""
    left = operands[0](scope)
    for test, operand in zip(tests, operands[1:], strict=True):
        right = operand(scope)
        if not test(left, right):
            return False
        left = right
    return True


_NUMBERS = (int, float, complex, Decimal, Fraction, date, timedelta)


def _large(x: Any) -> bool:
    parts = (x.numerator, x.denominator) if issubclass(type(x), (int, Fraction)) else ()
    return any(abs(part) > _LARGE for part in parts)


def _numbers(apply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Calculate with numbers and dates; also add lists or texts, which repeats nothing."""
    if apply is operator.add and type(left) is type(right) and type(left) in (str, list, tuple, bytes):
        return left + right
    if not issubclass(type(left), _NUMBERS) or not issubclass(type(right), _NUMBERS):
        raise TypeError(f"unsupported operands: {type(left).__name__} and {type(right).__name__}")
    if any(_large(x) for x in (left, right)):
        raise BadReply("a number too large to calculate with")
    return apply(left, right)
