"""Runs tests in an interpreter that the candidate's code has not touched; its values come one by one, as plain values.

The first line in is {"tests", "support", "remote": names, "entry_point"}. A line out is {"ask": question} or, once,
{"verdict": true | false | null, "error_type", "reason"}.
"""

from __future__ import annotations

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
    scope: dict[str, Any] = {"__name__": "tests", "__source__": Source}
    try:
        exec(compile(task["support"], "<prompt>", "exec", dont_inherit=True), scope)
        code = compile(task["tests"], "<tests>", "exec", dont_inherit=True)
    except BaseException as error:
        return {"verdict": None, "error_type": "tests", "reason": f"{type(error).__name__}: {error}"}
    scope |= {name: far.named(name) for name in task["remote"]}
    try:
        exec(code, scope)
        outcome = {"verdict": True, "error_type": None, "reason": ""}
    except AssertionError as error:
        outcome = wrong("wrong_value", f"an assertion failed{_line(error)}")
    except BaseException as error:
        outcome = wrong(_kind(error), f"{type(error).__name__}: {str(error)[:300]}{_line(error)}")
    if isinstance(far.fault, CannotCross):
        return {"verdict": None, "error_type": "tests", "reason": str(far.fault)}
    return wrong("reply", str(far.fault)) if far.fault else outcome


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
