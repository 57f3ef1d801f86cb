"""Runs the candidate's program and answers questions about it. Nothing here is trusted: what leaves is only values.

A question is {"nonce", "op", "args", "name"?, "kwargs"?} on one line, a reply {"nonce", "value", "args"?} or
{"nonce", "raised": [nearest builtin exception, message], "error"?: [its arguments, its own classes, itself]}. The
candidate runs in this very interpreter and may take it apart; whoever asks knows the right values, and they never come
in here.
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
    "await": lambda x: _loop().run_until_complete(x),
    "aiter": aiter,
    "anext": lambda x: _loop().run_until_complete(anext(x)),
    "delitem": operator.delitem,
    "contains": operator.contains,
    "enter": lambda x: type(x).__enter__(x),
    "exit": lambda x: type(x).__exit__(x, None, None, None),
} | {name: getattr(operator, name) for name in (*ARITHMETIC, *ORDER, *UNARY)}
_OPS |= {"i" + name.rstrip("_"): getattr(operator, "i" + name.rstrip("_")) for name in ARITHMETIC}
_loops: list[Any] = []


def _loop() -> Any:
    """One event loop for all that is awaited."""
    if not _loops:
        import asyncio

        _loops.append(asyncio.new_event_loop())
    return _loops[0]


def serve(questions: BinaryIO, replies: BinaryIO) -> None:
    module = ModuleType("answer")
    sys.modules["answer"] = module  # for pickle, dataclasses and typing.get_type_hints
    kept: list[Any] = []
    places: dict[int, int] = {}  # id → place; what is kept lives on, so ids stay apart
    loads, dumps = json.loads, json.dumps

    def keep(x: Any) -> list[Any]:
        place = places.setdefault(id(x), len(kept))
        if place == len(kept):
            kept.append(x)
        return ["o", place, type(x).__name__[:100]]

    def named(name: str) -> Any:
        if name in module.__dict__:
            return module.__dict__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"name {name!r} is not defined")

    def received(form: Any) -> Any:
        match form:
            case ["N", name]:
                return named(name)
            case ["x", source]:
                return eval(source, module.__dict__)
        return decode(form, lambda number, _: kept[number])

    def reply_to(question: dict[str, Any]) -> dict[str, Any]:
        if question["op"] == "load":
            program = compile(question["args"][0], "<answer>", "exec", dont_inherit=True)
            exec(program, module.__dict__)
            return {"value": [name in module.__dict__ for name in question["args"][1]]}
        args = [received(form) for form in question["args"]]
        kwargs = {key: received(form) for key, form in question.get("kwargs", {}).items()}
        head = [named(question["name"])] if "name" in question else []
        reply = {"value": encode(_OPS[question["op"]](*head, *args, **kwargs), keep, True)}
        sent = [*question["args"], *question.get("kwargs", {}).values()]
        after = [  # it may have worked in place
            encode(arg, keep, True) if type(arg) in CHANGEABLE else form
            for form, arg in zip(sent, [*args, *kwargs.values()], strict=True)
        ]
        if after != sent:
            reply["args"] = after
        return reply

    def raised(error: BaseException) -> dict[str, Any]:
        mro = type.__dict__["__mro__"].__get__(type(error))
        own = [kind.__name__ for kind in mro[: mro.index(_builtin(type(error)))]]
        said: dict[str, Any] = {"raised": [_builtin(type(error)).__name__, _message(error)]}
        try:
            args = [encode(arg, keep, True) for arg in error.args]
        except NotPlain:
            args = said["raised"][1:]
        if own or args != said["raised"][1:]:
            said["error"] = [args, own, keep(error.with_traceback(None))]
        return said

    for line in iter(questions.readline, b""):
        question = loads(line)
        try:
            reply = reply_to(question)
        except NotPlain as error:
            reply = {"large": str(error)[:MAX_MESSAGE]}
        except BaseException as error:
            try:
                reply = raised(error)
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
