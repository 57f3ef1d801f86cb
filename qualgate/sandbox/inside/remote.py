"""The near end of what lives behind the wall: each use of it is a question, each answer a plain value.

An object that cannot cross stays where it is; a `Remote` stands for it. It equals nothing, not even itself, and holds
nothing in the sense of `in` but what iterating it yields: what a stranger's `__eq__` or `__contains__` says is never
asked.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from .values import NotPlain, decode, encode

Ask = Callable[[dict[str, Any]], dict[str, Any]]
MAX_QUESTIONS = 100_000


class CannotCross(Exception):
    """The tests hand over what cannot cross (their own function, say). No fault of the candidate's."""


class BadReply(Exception):
    """What came back is no value: too large, or written by someone else."""


class Source:
    """An expression that is evaluated on the far side: a lambda among a call's arguments."""

    def __init__(self, text: str) -> None:
        self.text = text


class Far:
    """The candidate, as tests see it. `ask` carries a question's form over and brings the reply's form back."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._questions = 0
        self.fault: CannotCross | BadReply | None = None  # the first; tests may have swallowed it

    def named(self, name: str) -> Callable[..., Any]:
        """The candidate's global `name`, to be called or looked into."""
        return Named(self, name)

    def do(self, op: str, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        """The result of `op`. Raises what the far side raised (as the nearest builtin exception), BadReply,
        or CannotCross."""
        try:
            return self._do(op, args, name, kwargs)
        except (CannotCross, BadReply) as error:
            self.fault = self.fault or error
            raise

    def _do(self, op: str, args: tuple[Any, ...], name: str | None, kwargs: dict[str, Any]) -> Any:
        self._questions += 1
        if self._questions > MAX_QUESTIONS:
            raise BadReply(f"more than {MAX_QUESTIONS} questions")
        try:
            sent = [encode(arg, _handle) for arg in args]
            question: dict[str, Any] = {"op": op, "args": sent}
            if kwargs:
                question["kwargs"] = {key: encode(arg, _handle) for key, arg in kwargs.items()}
        except NotPlain as error:
            raise CannotCross(f"an argument of {name or op} cannot cross: {error}") from None
        if name is not None:
            question["name"] = name
        reply = self._ask(question)
        try:
            match reply:
                case {"raised": [str(kind), str(message)]}:
                    raise _exception(kind, message)
                case {"large": str(reason)}:
                    raise BadReply(f"a value that cannot cross: {reason}")
                case {"value": form, **rest}:
                    value = decode(form, lambda number, kind: Remote(self, number, kind))
                    if value is None and type(rest.get("args")) is list:
                        self._take_changes(args, rest["args"])
                    return value
        except NotPlain as error:
            raise BadReply(str(error)) from None
        raise BadReply("not a reply")

    def _take_changes(self, args: tuple[Any, ...], forms: list[Any]) -> None:
        """Functions that work in place return None and change their arguments: so do ours."""
        for arg, form in zip(args, forms, strict=False):
            if type(arg) not in (list, dict, set):
                continue
            after = decode(form, lambda number, kind: Remote(self, number, kind))
            if type(after) is type(arg):
                arg.clear()
                arg.extend(after) if type(arg) is list else arg.update(after)


def _handle(x: Any) -> list[Any]:
    if type(x) is Remote:
        return ["o", *object.__getattribute__(x, "_place")]
    if type(x) is Named:
        return ["N", object.__getattribute__(x, "_name")]
    if type(x) is Source:
        return ["x", x.text]
    if getattr(builtins, getattr(x, "__name__", ""), None) is x:
        return ["N", x.__name__]  # sum, sorted …: the far side has its own
    raise NotPlain(f"a {type(x).__name__}")


def _exception(kind: str, message: str) -> BaseException:
    found = getattr(builtins, kind, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        found = Exception
    try:
        return found(message)
    except TypeError:  # UnicodeDecodeError takes five arguments
        return ValueError(message)


class Remote:
    """An object behind the wall."""

    __slots__ = ("_far", "_place")

    def __init__(self, far: Far, number: int, kind: str) -> None:
        object.__setattr__(self, "_far", far)
        object.__setattr__(self, "_place", (number, kind))

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _do(self, "call", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return _do(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _do(self, "setattr", name, value)

    def __getitem__(self, key: Any) -> Any:
        return _do(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _do(self, "setitem", key, value)

    def __iter__(self) -> Iterator[Any]:
        return _do(self, "iter")

    def __next__(self) -> Any:
        return _do(self, "next")

    def __len__(self) -> int:
        return _do(self, "len")

    def __bool__(self) -> bool:
        return _do(self, "bool") is True

    def __str__(self) -> str:
        return _do(self, "str")

    def __repr__(self) -> str:
        return _do(self, "repr")

    def __add__(self, other: Any) -> Any:
        return _do(self, "add", other)

    def __sub__(self, other: Any) -> Any:
        return _do(self, "sub", other)

    def __mul__(self, other: Any) -> Any:
        return _do(self, "mul", other)


def _do(remote: Remote, op: str, *args: Any, **kwargs: Any) -> Any:
    return object.__getattribute__(remote, "_far").do(op, remote, *args, **kwargs)


class Named:
    """A global of the candidate's, found anew at each use."""

    def __init__(self, far: Far, name: str) -> None:
        object.__setattr__(self, "_far", far)
        object.__setattr__(self, "_name", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        far, name = object.__getattribute__(self, "_far"), object.__getattribute__(self, "_name")
        return far.do("call", *args, name=name, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_far").do("getattr", self, name)
