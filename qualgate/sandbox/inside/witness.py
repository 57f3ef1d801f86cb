"""Runs tests in an interpreter that the candidate's code has not touched; its values come one by one, as plain values.

The first line in is {"tests", "support", "remote": names, "entry_point"}. A line out is {"ask": question} or, once,
{"verdict": true | false | null, "error_type", "reason"}.
"""

from __future__ import annotations

import ast
import json
import random
from typing import Any, BinaryIO

from .remote import BadReply, CannotCross, Far, Source


def serve(lines: BinaryIO, out: BinaryIO) -> None:
    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode("ascii") + b"\n")
        out.flush()

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        send({"ask": question})
        try:
            return json.loads(lines.readline())
        except (ValueError, RecursionError) as error:
            raise BadReply(f"not JSON: {error}") from None

    send(_run(json.loads(lines.readline()), Far(ask)))


def _run(task: dict[str, Any], far: Far) -> dict[str, Any]:
    random.seed(0)
    held: list[bool] = []
    scope: dict[str, Any] = {"__name__": "tests", "__source__": Source, "__held__": lambda: held.append(True)}
    try:
        exec(compile(task["support"], "<prompt>", "exec", dont_inherit=True), scope)
        counted = ast.fix_missing_locations(_Counted().visit(ast.parse(task["tests"])))
        code = compile(counted, "<tests>", "exec", dont_inherit=True)
    except BaseException as error:
        return {"verdict": None, "error_type": "tests", "reason": f"{type(error).__name__}: {error}"}
    scope |= {name: far.named(name) for name in task["remote"]}
    try:
        exec(code, scope)
        outcome = {"verdict": True, "error_type": None, "reason": ""}
        if not held or not far.questions:
            missing = "make no assertion" if far.questions else "ask the answer nothing"
            outcome = {"verdict": None, "error_type": "tests", "reason": f"as they ran, the tests {missing}"}
    except AssertionError as error:
        outcome = wrong("wrong_value", f"an assertion failed{_line(error)}")
    except BaseException as error:
        outcome = wrong(_kind(error), f"{type(error).__name__}: {str(error)[:300]}{_line(error)}")
    if isinstance(far.fault, CannotCross):
        return {"verdict": None, "error_type": "tests", "reason": str(far.fault)}
    return wrong("reply", str(far.fault)) if far.fault else outcome


class _Counted(ast.NodeTransformer):
    """Has the tests call `__held__` after each assertion that held, and where an exception is caught in place of an
    `assert False`. A handler that would catch that very assertion proves nothing."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        return [node] if isinstance(node.test, ast.Constant) else [node, _held(node)]

    def visit_Try(self, node: ast.Try) -> ast.AST:
        for handler in node.handlers:
            names = (
                {inner.id for inner in ast.walk(handler.type) if isinstance(inner, ast.Name)} if handler.type else {""}
            )
            other = not names & {"", "AssertionError", "Exception", "BaseException"}
            if any(map(_fails, node.orelse)) or (any(map(_fails, node.body)) and other):
                handler.body.insert(0, _held(handler))
        self.generic_visit(node)
        return node


def _fails(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _held(node: ast.stmt | ast.ExceptHandler) -> ast.stmt:
    call = ast.Call(func=ast.Name(id="__held__", ctx=ast.Load()), args=[], keywords=[])
    return ast.copy_location(ast.Expr(call), node)


def wrong(error_type: str, reason: str) -> dict[str, Any]:
    return {"verdict": False, "error_type": error_type, "reason": reason}


def _kind(error: BaseException) -> str:
    return "memory" if isinstance(error, MemoryError) else "exception"


def _line(error: BaseException) -> str:
    """Where in the tests' own text it happened."""
    frame, line = error.__traceback__, 0
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<tests>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return f" (line {line} of the tests)" if line else ""
