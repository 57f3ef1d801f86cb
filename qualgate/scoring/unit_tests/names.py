"""Owners of the names that tests use: the candidate, the tests themselves, the prompt, or a module."""

from __future__ import annotations

import ast
import builtins
import sys

from qualgate.sandbox.inside.asserting import exception_names, isinstance_names
from qualgate.sandbox.inside.remote import names_class


class BadTests(ValueError):
    """Tests that cannot be used, and why."""


def error_names(tree: ast.Module) -> set[str]:
    """Names that stand for exceptions and for nothing else."""
    placed = exception_names(tree)
    ids = set(map(id, [*placed, *isinstance_names(tree)]))
    other = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in ids}
    return {node.id for node in placed} - other


def names(
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
    """Raise BadTests if one of the candidate's names receives another's result, or is compared with it.

    An example is `close(f(1), 2)`: the candidate's own `close` would judge its own `f`.
    """
    bound: dict[str, set[str]] = {}  # what the tests bind → the candidate's names in its value

    def owners(node: ast.AST) -> set[str]:
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        return (names & remote).union(*(bound.get(name, ()) for name in names))

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
                    bound.setdefault(inner.id, set()).update(owners(value))  # pyrefly: ignore[bad-argument-type]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords) if len(caller := owners(func)) > 0:
                names_in_arguments = {name for arg in (*args, *keywords) for name in owners(arg)}
                mixed = names_in_arguments - caller
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
