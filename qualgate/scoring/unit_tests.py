"""Unit tests written as `assert` lines, read so that a candidate's values are compared where it cannot reach.

A name that the tests use is one of: the entry point (always the candidate's), bound by the tests themselves, a builtin,
a module of the standard library (`math.isclose`), defined by the prompt (which is the evalset's, so its helpers are
taken from there and not from the answer). So an answer that defines its own `abs`, `set` or `math` changes nothing.
Any other name makes the tests unusable where an entry point is declared: it would be the answer that compares. Where
none is, unknown names are the candidate's, and must not be handed one another's results (but for objects of a class).

Names that stand only where a class of exceptions does (`except ParseError`, `pytest.raises(ParseError)`) may be the
answer's own: that it raises its own exception is what such tests ask.

Tests of a simple form are evaluated here: asserts over literals, the candidate's calls, comparisons, arithmetic on
numbers and a few builtins, at the top or in HumanEval's `check(candidate)`. All others (loops, random inputs, methods,
classes, unittest's cases, `await`) run in a second sandbox: `read` says which by leaving `steps` None.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from qualgate.sandbox.inside.asserting import (
    asserts,
    exception_names,
    foreign_words,
    isinstance_names,
    marks_coroutine,
)
from qualgate.sandbox.inside.far import BadReply, Far
from qualgate.sandbox.inside.remote import names_class, same

Scope = dict[str, Any]
Step = Callable[[Scope], Any]
MAX_SOURCE = 2**20
_LARGE = 2**4096  # products and quotients of larger numbers are not formed here


class BadTests(ValueError):
    """The tests themselves cannot be used; the reason says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Tests, ready to be sat. `steps`: to be run here, in order; None: `source` needs a second sandbox."""

    source: str
    support: str  # the prompt's own helpers and imports
    remote: tuple[str, ...]  # names that are the candidate's
    errors: tuple[str, ...]  # those of its exceptions that the tests expect
    steps: tuple[Step, ...] | None


def read(tests: str, entry_point: str | None = None, prompt: str = "") -> Exam:
    """The exam that `tests` are. BadTests when they are no Python or assert nothing."""
    if len(tests) > MAX_SOURCE:
        raise BadTests(f"the tests have more than {MAX_SOURCE} characters")
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else error
        raise BadTests(f"the tests are not Python: {said}{where}") from None
    if not any(map(asserts, ast.walk(tree))):
        raise BadTests("the tests assert nothing of the answer; write what must hold, as `assert f(1) == 2`")
    if missing := sorted(foreign_words(tree)):
        raise BadTests(f"the tests import what is in no sandbox: {', '.join(missing)[:200]}")
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check and not any(_calls(node, "check") for node in tree.body):
        if entry_point is None:
            raise BadTests("tests with check(candidate) need `entry_point`, the name of the function it is called with")
        call = f"\ncheck({entry_point})\n"
        tests += call
        tree.body.append(ast.parse(call).body[0])
    for call in _uncalled(tree):
        tests += f"\n{call}\n"
        tree.body.append(ast.parse(call).body[0])
    try:
        support = helpers(prompt, entry_point)
        errors = _errors(tree)
        remote, modules = _names(tree, entry_point, support, errors)
        errors &= remote
        remote -= errors
        if not remote:
            raise BadTests("the tests call nothing of the answer")
        steps = _steps(tree, remote) if _imports_only(support) else None
        support.body = [ast.Import(names=[ast.alias(name=name)]) for name in sorted(modules)] + support.body
        lambdas = _Lambdas()
        rewritten = ast.fix_missing_locations(lambdas.visit(tree))
        source = ast.unparse(rewritten) if lambdas.found else tests
    except BadTests:
        raise
    except (RecursionError, ValueError) as error:  # ValueError: an int too long for unparse
        raise BadTests(f"the tests cannot be read: {error}") from None
    return Exam(
        source=source,
        support=ast.unparse(ast.fix_missing_locations(support)),
        remote=tuple(sorted(remote)),
        errors=tuple(sorted(errors)),
        steps=steps,
    )


def helpers(prompt: str, entry_point: str | None) -> ast.Module:
    """What a prompt that starts a program defines, without the entry point; empty for a prompt in words."""
    tree = program_start(prompt, entry_point)
    if tree is None:
        return ast.Module(body=[], type_ignores=[])
    return ast.Module(body=[node for node in tree.body if getattr(node, "name", None) != entry_point], type_ignores=[])


def program_start(prompt: str, entry_point: str | None) -> ast.Module | None:
    """The tree of a prompt that is Python and defines the entry point, else None."""
    for ending in ("", "\n    pass\n"):
        try:
            tree = ast.parse(prompt + ending)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(getattr(node, "name", None) == entry_point for node in tree.body):
            return tree
    return None


def sit(exam: Exam, far: Far) -> None:
    """Evaluate the exam's steps here. Raises AssertionError, or what evaluating raises."""
    assert exam.steps is not None
    scope: Scope = {name: far.named(name) for name in exam.remote}
    for step in exam.steps:
        step(scope)


def _errors(tree: ast.Module) -> set[str]:
    """Names that stand for exceptions and for nothing else."""
    placed = exception_names(tree)
    ids = set(map(id, [*placed, *isinstance_names(tree)]))
    other = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in ids}
    return {node.id for node in placed} - other


def _uncalled(tree: ast.Module) -> list[str]:
    """Calls of the tests that nothing calls. BadTests for other asserts that would never run."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found = []
    for node in tree.body:
        if not any(map(asserts, ast.walk(node))):
            continue
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                raise BadTests(
                    f"the tests assert in a main block, which is not run (line {node.lineno}): take them out of it"
                )
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if name in used:
                    continue
                if isinstance(node, ast.ClassDef):
                    runs = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
                else:
                    runs = name.startswith("test") and not ast.unparse(node.args)
                if not runs or not all(map(marks_coroutine, node.decorator_list)):
                    raise BadTests(
                        f"nothing runs the tests' {name} (line {node.lineno}): call it, or make it a function test_… "
                        "without parameters and decorators"
                    )
                calls = {ast.ClassDef: "__unittest__({})", ast.AsyncFunctionDef: "__await__({}())"}
                found.append(calls.get(type(node), "{}()").format(name))
    return found


def _calls(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=called))):
            return called == name
    return False


def _imports_only(support: ast.Module) -> bool:
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in support.body)


def _names(
    tree: ast.Module, entry_point: str | None, support: ast.Module, errors: set[str]
) -> tuple[set[str], set[str]]:
    """The names in `tree` that are the candidate's, and those of the standard library's modules."""
    used, bound, bases, plain = set(), set(), set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name)):
                bases.add(id(node.value))
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
                plain |= set() if id(node) in bases else {name}
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add((other or name).partition(".")[0])
    helped = {node.id for node in ast.walk(support) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in support.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                helped.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                helped |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
    # `math`, used as `math.…` and in no other way
    modules = (used - plain - bound) & set(sys.stdlib_module_names) - {entry_point}
    remote = used - bound - helped - modules - set(dir(builtins)) - {"__unittest__", "__await__"}
    if entry_point is None:
        _apart(tree, remote)
    elif unknown := sorted(remote - errors - {entry_point}):
        raise BadTests(
            f"the tests use names that neither they nor the prompt define: {', '.join(unknown)[:200]}; of the answer "
            f"they use `entry_point` alone, {entry_point[:60]!r}: define the others in the tests, or correct that one"
        )
    if entry_point is not None and entry_point in used:
        remote.add(entry_point)
    if not remote and entry_point is None:  # a function that is named as a builtin is: `assert sum(10, 15) == 6`
        remote = {name for node in tree.body if (name := _first_called(node)) is not None}
    return remote, modules


def _apart(tree: ast.Module, remote: set[str]) -> None:
    """BadTests if one of the candidate's names is handed another's result, or compared with it: `close(f(1), 2)`."""
    held: dict[str, set[str]] = {}  # what the tests bind → the candidate's names in its value

    def owners(node: ast.AST) -> set[str]:
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        return (names & remote).union(*(held.get(name, ()) for name in names))

    for _ in range(2):  # a loop's end may come before its start
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    targets = [target]
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value)
                ):
                    targets = [target]
                case _:
                    continue
            for inner in (inner for target in targets for inner in ast.walk(target)):
                if isinstance(inner, ast.Name):
                    held.setdefault(inner.id, set()).update(owners(value))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords) if len(caller := owners(func)) > 0:
                given = {name for arg in (*args, *keywords) for name in owners(arg)}
                mixed = given - caller
            case ast.Compare(left=left, comparators=[right]):
                mixed = owners(left) ^ owners(right) if owners(left) and owners(right) else set()
            case _:
                continue
        if mixed := sorted(name for name in mixed if not names_class(name)):
            raise BadTests(f"the answer's own {', '.join(mixed)[:200]} would compare; declare the entry_point")


def _first_called(node: ast.stmt) -> str | None:
    match node:
        case ast.Assert(test=ast.Compare(left=ast.Call(func=ast.Name(id=name)))):
            return name
    return None


class _Lambdas(ast.NodeTransformer):
    """A lambda handed to a call goes over as its text: it holds nothing but what the candidate is given anyway."""

    found = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        local = isinstance(node.func, ast.Attribute) or (
            isinstance(node.func, ast.Name) and node.func.id in dir(builtins)
        )
        if not local and any(map(_closed_lambda, node.args)):
            self.found = True
            node.args = [_as_source(arg) if _closed_lambda(arg) else arg for arg in node.args]
        return node


def _closed_lambda(node: ast.expr) -> bool:
    if not isinstance(node, ast.Lambda):
        return False
    bound = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names - bound <= set(dir(builtins))


def _as_source(node: ast.expr) -> ast.expr:
    return ast.Call(func=ast.Name(id="__source__", ctx=ast.Load()), args=[ast.Constant(ast.unparse(node))], keywords=[])


# ------------------------------------------------------------------------------- the form evaluated here


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


def _steps(tree: ast.Module, remote: set[str]) -> tuple[Step, ...] | None:
    try:
        return tuple(step for node in tree.body for step in _statement(node, tree, remote, {}))
    except _NotSimple:
        return None


def _statement(node: ast.stmt, tree: ast.Module, remote: set[str], names: dict[str, str]) -> list[Step]:
    """`names`: what the tests call a candidate's function → its name."""
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
            held = _expression(value, remote, names)
            return [lambda scope: scope.__setitem__(name, held(scope))]
        case ast.Assert(test=test):
            holds = _expression(test, remote, names)
            return [lambda scope: _assert(holds(scope), node.lineno)]
    raise _NotSimple


def _assert(holds: Any, line: int) -> None:
    if not holds:
        raise AssertionError(f"an assertion failed (line {line} of the tests)")


def _expression(node: ast.expr, remote: set[str], names: dict[str, str]) -> Step:
    def read(inner: ast.expr) -> Step:
        return _expression(inner, remote, names)

    match node:
        case ast.Constant(value=value):
            return lambda scope: value
        case ast.Name(id=name) if name not in remote and name not in names and name not in dir(builtins):
            return lambda scope: scope[name]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            parts, kind = [read(item) for item in items], {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return lambda scope: kind([part(scope) for part in parts])
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = [(read(key), read(value)) for key, value in zip(keys, values, strict=True) if key is not None]
            return lambda scope: {key(scope): value(scope) for key, value in pairs}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            apply, inner = _UNARY[type(op)], read(operand)
            return lambda scope: apply(inner(scope))
        case ast.BoolOp(op=op, values=values):
            parts, stops = [read(value) for value in values], isinstance(op, ast.Or)
            return lambda scope: _chain(parts, stops, scope)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply, one, other = _ARITHMETIC[type(op)], read(left), read(right)
            return lambda scope: _numbers(apply, one(scope), other(scope))
        case ast.Compare(left=left, ops=ops, comparators=rest):
            operands, tests = [read(left), *map(read, rest)], [_COMPARE[type(op)] for op in ops]
            return lambda scope: _compare(tests, operands, scope)
        case ast.Subscript(value=value, slice=ast.Constant() | ast.UnaryOp(operand=ast.Constant()) as key):
            held, at = read(value), read(key)
            return lambda scope: held(scope)[at(scope)]
        case ast.Call(func=func, args=args, keywords=keywords) if not any(isinstance(arg, ast.Starred) for arg in args):
            if any(keyword.arg is None for keyword in keywords):
                raise _NotSimple
            call = _function(func, remote, names)
            given, named = [read(arg) for arg in args], {k.arg: read(k.value) for k in keywords if k.arg is not None}
            return lambda scope: call(scope)(
                *[arg(scope) for arg in given], **{key: value(scope) for key, value in named.items()}
            )
    raise _NotSimple


def _function(func: ast.expr, remote: set[str], names: dict[str, str]) -> Step:
    match func:
        case ast.Name(id=name) if name in names or name in remote:
            called = names.get(name, name)
            return lambda scope: scope[called]
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


def _numbers(apply: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Arithmetic on numbers and dates; Python's on lists and texts, too, if nothing is repeated."""
    if apply is operator.add and type(one) is type(other) and type(one) in (str, list, tuple, bytes):
        return one + other
    if not issubclass(type(one), _NUMBERS) or not issubclass(type(other), _NUMBERS):
        raise TypeError(f"unsupported operands: {type(one).__name__} and {type(other).__name__}")
    if any(_large(x) for x in (one, other)):
        raise BadReply("a number too large to calculate with")
    return apply(one, other)
