"""Read unit tests into an exam: what is run here, what needs a second sandbox, and which names are the candidate's."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

from qualgate.sandbox.inside.asserting import asserts, foreign_words, marks_coroutine
from qualgate.sandbox.inside.far import Far
from qualgate.scoring.unit_tests.names import BadTests, error_names, names
from qualgate.scoring.unit_tests.simple import Scope, Step, steps

MAX_SOURCE = 2**20


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
        message = error.msg if isinstance(error, SyntaxError) else error
        raise BadTests(f"the tests are not Python: {message}{where}") from None
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
        support = _helpers(prompt, entry_point)
        errors = error_names(tree)
        remote, modules = names(tree, entry_point, support, errors)
        errors &= remote
        remote -= errors
        if not remote:
            raise BadTests("the tests call nothing of the answer")
        here = steps(tree, remote) if _imports_only(support) else None
        support.body = [ast.Import(names=[ast.alias(name=name)]) for name in sorted(modules)] + support.body
        lambdas = _Lambdas()
        rewritten = ast.fix_missing_locations(lambdas.visit(tree))
        source = ast.unparse(rewritten) if lambdas.changed else tests
    except BadTests:
        raise
    except (RecursionError, ValueError) as error:  # ValueError: an int too long for unparse
        raise BadTests(f"the tests cannot be read: {error}") from None
    return Exam(
        source=source,
        support=ast.unparse(ast.fix_missing_locations(support)),
        remote=tuple(sorted(remote)),
        errors=tuple(sorted(errors)),
        steps=here,
    )


def _helpers(prompt: str, entry_point: str | None) -> ast.Module:
    """Return the definitions of a prompt that starts a program, without the entry point; none for a prompt in words."""
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


def _uncalled(tree: ast.Module) -> list[str]:
    """Return calls of the test functions that nothing calls. BadTests for other asserts that would never run."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    uncalled = []
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
                calls: dict[type, str] = {ast.ClassDef: "__unittest__({})", ast.AsyncFunctionDef: "__await__({}())"}
                uncalled.append(calls.get(type(node), "{}()").format(name))
    return uncalled


def _calls(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=called))):
            return called == name
    return False


def _imports_only(support: ast.Module) -> bool:
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in support.body)


class _Lambdas(ast.NodeTransformer):
    """Replace a lambda passed to a call by its source text, which contains only what the candidate gets anyway."""

    changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Write lambdas without outer names as source, unless the call is of a builtin or a method."""
        self.generic_visit(node)
        is_local_call = isinstance(node.func, ast.Attribute) or (
            isinstance(node.func, ast.Name) and node.func.id in dir(builtins)
        )
        if not is_local_call and any(map(_closed_lambda, node.args)):
            self.changed = True
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
