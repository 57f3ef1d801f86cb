"""Run the candidate's program and answer questions about it. Nothing here is trusted: only values leave.

A question is {"nonce", "op", "args", "name"?, "kwargs"?} on one line, with "loop" and "running" where the tests have
an event loop: its number, and whether it runs now. A reply is {"nonce", "value", "args"?} or
{"nonce", "raised": [nearest builtin exception, message], "error"?: [its arguments, its own classes, itself, their
modules]}. The candidate runs in this very interpreter and may take it apart; whoever asks knows the right values, and
they never come in here.
"""

from __future__ import annotations

import builtins
import json
import operator
import sys
from types import ModuleType

from .values import ARITHMETIC, CHANGEABLE, ORDER, UNARY, NotPlain, builtin_base, decode, encode, plain

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

MAX_MESSAGE = 500
_OPS: dict[str, Any] = {
    "call": lambda f, *args, **kwargs: f(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "base": lambda x: builtin_base(type(x)),
    "plain": plain,
    "aiter": aiter,
    "delitem": operator.delitem,
    "contains": operator.contains,
    "enter": lambda x: type(x).__enter__(x),
    "exit": lambda x: type(x).__exit__(x, None, None, None),
} | {name: getattr(operator, name) for name in (*ARITHMETIC, *ORDER, *UNARY)}
_OPS |= {"i" + name.rstrip("_"): getattr(operator, "i" + name.rstrip("_")) for name in ARITHMETIC}
_AWAITABLE: dict[str, Any] = {  # what to await, by operation; each answers [its number, its state]
    "await": lambda x: x,
    "anext": anext,
    "aenter": lambda x: type(x).__aenter__(x),
    "aexit": lambda x: type(x).__aexit__(x, None, None, None),
}


class _Loop:
    """The candidate's event loop, for the lifetime of the tests' loop. It runs in turns that the tests request, so that
    a coroutine may wait for another that they have yet to begin."""

    def __init__(self, number: int) -> None:
        import asyncio

        self.number, self.runner, self._enter = number, asyncio.Runner(), asyncio._set_running_loop
        self._loop: Any = self.runner.get_loop()
        self._tasks: dict[int, Any] = {}  # by number, from 0
        self._ended: list[int] = []  # since the last turn
        self._turning = False

    def within(self, function: Callable[[], Any]) -> Any:
        """Call `function` with this loop set as running, as for a call from the tests' running loop."""
        self._enter(self._loop)
        try:
            return function()
        finally:
            self._enter(None)

    def begin(self, awaitable: Any) -> list[Any]:
        """Run a coroutine to its first wait, before all else that is ready, as `await` does."""
        number = len(self._tasks)

        async def awaited() -> Any:
            try:
                return await awaitable
            finally:
                self._ended.append(number)
                if self._turning:  # and the loop is not being closed
                    self._loop.stop()

        other_callbacks = list(self._loop._ready)
        self._loop._ready.clear()
        self._tasks[number] = self._loop.create_task(awaited())
        try:
            self._ended = [other for other, _ in self.turn(0) if other != number]
        finally:
            self._loop._ready.extendleft(reversed(other_callbacks))
        return [number, self._state(number)]

    def turn(self, seconds: float) -> list[list[Any]]:
        """Run what is ready; or for `seconds`, but no longer than until a task ends. Return numbers and states of ended
        tasks."""
        end = self._loop.call_later(seconds, self._loop.stop) if seconds else self._loop.call_soon(self._loop.stop)
        self._turning = True
        try:
            self._loop.run_forever()
        finally:
            self._turning = False
            end.cancel()
        ended, self._ended = self._ended, []
        return [[number, self._state(number)] for number in ended]

    def cancel(self, number: int) -> None:
        self._tasks[number].cancel()

    def result(self, number: int) -> Any:
        return self._tasks[number].result()

    def _state(self, number: int) -> str:
        task = self._tasks[number]
        return "cancelled" if task.cancelled() else "done" if task.done() else ""


class _Answer:
    """The candidate's module, and what stays on this side: its objects by number, and its event loop."""

    def __init__(self) -> None:
        self.module = ModuleType("answer")
        sys.modules["answer"] = self.module  # for pickle, dataclasses and typing.get_type_hints
        self._kept: list[Any] = []
        self._places: dict[int, int] = {}  # id → place; what is kept lives on, so ids stay apart
        self._loop: _Loop | None = None

    def reply_to(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a question of the tests, with `args` if the call changed its arguments in place."""
        if question["op"] == "load":
            program = compile(question["args"][0], "<answer>", "exec", dont_inherit=True)
            exec(program, self.module.__dict__)
            return {"value": [name in self.module.__dict__ for name in question["args"][1]]}
        args = [self._received(form) for form in question["args"]]
        kwargs = {key: self._received(form) for key, form in question.get("kwargs", {}).items()}
        head = [self._named(question["name"])] if "name" in question else []
        reply = {"value": encode(self._done(question, [*head, *args], kwargs), self._keep, True)}
        forms = [*question["args"], *question.get("kwargs", {}).values()]
        after = [  # it may have worked in place
            encode(arg, self._keep, True) if type(arg) in CHANGEABLE else form
            for form, arg in zip(forms, [*args, *kwargs.values()], strict=True)
        ]
        if after != forms:
            reply["args"] = after
        return reply

    def raised(self, error: BaseException) -> dict[str, Any]:
        """Return the reply for an exception: its builtin class and message, and its own classes if there are any."""
        mro = type.__dict__["__mro__"].__get__(type(error))
        own_classes = [kind.__name__ for kind in mro[: mro.index(_builtin(type(error)))]]
        modules = [str(kind.__module__) for kind in mro[: len(own_classes)]]
        reply: dict[str, Any] = {"raised": [_builtin(type(error)).__name__, _message(error)]}
        try:
            args = [encode(arg, self._keep, True) for arg in error.args]
        except NotPlain:
            args = reply["raised"][1:]
        if own_classes or args != reply["raised"][1:]:
            reply["error"] = [args, own_classes, self._keep(error.with_traceback(None)), modules]
        return reply

    def _done(self, question: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do what a question asks, within the event loop if the tests run one."""
        op, loop, running = question["op"], self._loop_of(question.get("loop")), question.get("running")
        if loop is None or not running:
            return _OPS[op](*args, **kwargs)
        if op in ("turn", "cancel", "result"):
            return getattr(loop, op)(*args)
        if op in _AWAITABLE:
            return loop.begin(loop.within(lambda: _AWAITABLE[op](*args)))
        return loop.within(lambda: _OPS[op](*args, **kwargs))

    def _loop_of(self, number: int | None) -> _Loop | None:
        """Return our loop for the tests' loop of this number; None without one.

        If the tests have closed their loop, close ours and cancel its tasks.
        """
        if self._loop is not None and self._loop.number != number:
            closed, self._loop = self._loop, None
            closed.runner.close()
        if number is not None and self._loop is None:
            self._loop = _Loop(number)
        return self._loop

    def _keep(self, x: Any) -> list[Any]:
        place = self._places.setdefault(id(x), len(self._kept))
        if place == len(self._kept):
            self._kept.append(x)
        return ["o", place, type(x).__name__[:100]]

    def _named(self, name: str) -> Any:
        if name in self.module.__dict__:
            return self.module.__dict__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"name {name!r} is not defined")

    def _received(self, form: Any) -> Any:
        match form:
            case ["N", name]:
                return self._named(name)
            case ["x", source]:
                return eval(source, self.module.__dict__)
        return decode(form, lambda number, _: self._kept[number])


def serve(questions: BinaryIO, replies: BinaryIO) -> None:
    """Answer the questions, one a line, until there are no more."""
    answer = _Answer()
    loads, dumps = json.loads, json.dumps
    for line in iter(questions.readline, b""):
        question = loads(line)
        try:
            reply = answer.reply_to(question)
        except NotPlain as error:
            reply = {"large": str(error)[:MAX_MESSAGE]}
        except BaseException as error:
            try:
                reply = answer.raised(error)
            except BaseException:  # its class takes part in this
                reply = {"raised": ["Exception", ""]}
        replies.write(dumps({"nonce": question["nonce"]} | reply).encode("ascii") + b"\n")
        replies.flush()


def _builtin(kind: type) -> type:
    mro = type.__dict__["__mro__"].__get__(kind)
    return next(base for base in mro if getattr(builtins, base.__name__, None) is base)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException:  # a class of the candidate's
        return ""
