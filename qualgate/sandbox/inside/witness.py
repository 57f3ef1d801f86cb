"""Run tests in an interpreter that the candidate's code has not touched; the candidate's values arrive as plain values.

The first line in is {"tests", "support", "remote": names, "errors": names}. A line out is {"ask": question} or, once,
{"verdict": true | false | null, "error_type", "reason"}.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from typing import Any, BinaryIO

from .asserting import asserts, expects_exception, stand_in
from .far import BadReply, CannotCross, Far, Source
from .remote import same


def serve(lines: BinaryIO, out: BinaryIO) -> None:
    """Run the one task of the first line, ask as its tests do, and report the verdict."""

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode("ascii") + b"\n")
        out.flush()

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        send({"ask": question})
        try:
            return json.loads(lines.readline())
        except (ValueError, RecursionError) as error:
            raise BadReply(f"not JSON: {error}") from None

    task = json.loads(lines.readline())
    send(_run(task, Far(ask, task["errors"], awaits=True)))


def _run(task: dict[str, Any], far: Far) -> dict[str, Any]:
    """Run the tests; return verdict, error type and reason.

    No verdict if the tests do not compile, assert nothing, ask nothing, skip themselves, or hand over what cannot
    cross.
    """
    random.seed(0)
    assertions: list[bool] = []
    scope: dict[str, Any] = {"__name__": "tests", "__source__": Source, "__held__": lambda: assertions.append(True)}
    scope |= {"__same__": same, "__await__": _awaited, "__unittest__": _unittest}
    stand_in()
    try:
        exec(compile(task["support"], "<prompt>", "exec", dont_inherit=True), scope)
        counted = ast.fix_missing_locations(_Counted().visit(ast.parse(task["tests"])))
        code = compile(counted, "<tests>", "exec", dont_inherit=True)
    except BaseException as error:
        return {"verdict": None, "error_type": "tests", "reason": f"{type(error).__name__}: {error}"}
    scope |= {name: far.named(name) for name in task["remote"]} | far.errors
    try:
        exec(code, scope)
        outcome = {"verdict": True, "error_type": None, "reason": ""}
        if not assertions or not far.questions:
            missing = "make no assertion" if far.questions else "ask the answer nothing"
            outcome = {"verdict": None, "error_type": "tests", "reason": f"as they ran, the tests {missing}"}
    except AssertionError as error:
        note = f"; a {far.unequal} of the answer's own equals no value of the tests" if far.unequal else ""
        outcome = wrong("wrong_value", f"an assertion failed{_line(error)}{note}")
    except BaseException as error:
        outcome = wrong(_kind(error), f"{type(error).__name__}: {_text(error)}{_line(error)}")
        if type(error) is getattr(sys.modules.get("unittest"), "SkipTest", None):
            outcome = {"verdict": None, "error_type": "tests", "reason": "the tests skip themselves"}
    if isinstance(far.fault, CannotCross):
        return {"verdict": None, "error_type": "tests", "reason": str(far.fault)}
    return wrong("reply", str(far.fault)) if far.fault else outcome


def _awaited(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def _unittest(case: Any) -> None:
    import unittest

    unittest.defaultTestLoader.loadTestsFromTestCase(case).debug()  # raises what fails


class _Counted(ast.NodeTransformer):
    """Make the tests call `__held__` after each assertion that held, and where an exception is caught in place of an
    `assert False`. A handler that would catch that very assertion proves nothing. `is` becomes `__same__`."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        call: ast.expr = _call("__same__", node.left, node.comparators[0])
        return ast.copy_location(call if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), call), node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        return [node, _held(node)] if asserts(node.value) else node

    def visit_With(self, node: ast.With | ast.AsyncWith) -> Any:
        own = any(isinstance(inner, ast.Assert) for inner in ast.walk(node))
        self.generic_visit(node)
        expects = any(expects_exception(item.context_expr) for item in node.items)
        return [node, _held(node)] if expects and not own else node

    visit_AsyncWith = visit_With

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        self.generic_visit(node)
        return [node] if isinstance(node.test, ast.Constant) else [node, _held(node)]

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """Count an assertion in each handler that takes the place of an `assert False`.

        A handler that would catch that very assertion proves nothing.
        """
        for handler in node.handlers:
            names = (
                {inner.id for inner in ast.walk(handler.type) if isinstance(inner, ast.Name)} if handler.type else {""}
            )
            lets_through = not names & {"", "AssertionError", "Exception", "BaseException"}
            if any(map(_fails, node.orelse)) or (any(map(_fails, node.body)) and lets_through):
                handler.body.insert(0, _held(handler))
        self.generic_visit(node)
        return node


def _fails(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _held(node: ast.stmt | ast.ExceptHandler) -> ast.stmt:
    return ast.copy_location(ast.Expr(_call("__held__")), node)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(args), keywords=[])


def wrong(error_type: str, reason: str) -> dict[str, Any]:
    """Return the verdict of failed tests."""
    return {"verdict": False, "error_type": error_type, "reason": reason}


def _kind(error: BaseException) -> str:
    return "memory" if isinstance(error, MemoryError) else "exception"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:  # the tests raise what the answer returned, and that has a word in it
        return ""


def _line(error: BaseException) -> str:
    """Return the last of the tests' lines in a traceback, as " (line 3 of the tests)"; "" without one."""
    frame, line = error.__traceback__, 0
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<tests>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return f" (line {line} of the tests)" if line else ""
