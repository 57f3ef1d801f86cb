"""The near end of what lives behind the wall: each use of it is a question, each answer a plain value.

An object that cannot cross stays where it is; a `Remote` stands for it. It equals nothing, not even itself, and holds
nothing in the sense of `in` but what iterating it yields: what a stranger's `__eq__` or `__contains__` says is never
asked. It takes no part in arithmetic, and an object that a function returned has no methods with arguments: what the
tests expect would go over with them (`f(x) - e`, `f(x).equals(e)`). An object that the tests make themselves, by
calling a class (`Stack()`, told by its capital), has.
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
        self.questions = 0
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
        self.questions += 1
        if self.questions > MAX_QUESTIONS:
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
                    if type(rest.get("args")) is list:
                        self._take_changes((*args, *kwargs.values()), rest["args"])
                    return value
        except NotPlain as error:
            raise BadReply(str(error)) from None
        raise BadReply("not a reply")

    def no_method(self) -> CannotCross:
        """The fault of tests that hand a value to a method of what a function returned."""
        self.fault = self.fault or CannotCross(
            "a method of an object that the answer returned is called with arguments"
        )
        return CannotCross(str(self.fault))

    def _take_changes(self, args: tuple[Any, ...], forms: list[Any]) -> None:
        """Functions that work in place change their arguments: so do ours."""
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

    __slots__ = ("_far", "_made", "_method", "_place")

    def __init__(self, far: Far, number: int, kind: str) -> None:
        _set(self, _far=far, _place=(number, kind), _made=False, _method=False)

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (args or kwargs) and _get(self, "_method") and not _get(self, "_made"):
            raise _get(self, "_far").no_method()
        return _do(self, "call", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return _attribute(_do(self, "getattr", name), _get(self, "_made"))

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


def _get(remote: Remote | Named, slot: str) -> Any:
    return object.__getattribute__(remote, slot)


def _set(remote: Remote, **slots: Any) -> None:
    for slot, value in slots.items():
        object.__setattr__(remote, slot, value)


def _do(remote: Remote, op: str, *args: Any, **kwargs: Any) -> Any:
    return _get(remote, "_far").do(op, remote, *args, **kwargs)


def _attribute(value: Any, made: bool) -> Any:
    if type(value) is Remote:
        _set(value, _made=made, _method=True)
    return value


def names_class(name: str) -> bool:
    """By its capital: the candidate's own word on it counts nothing."""
    return name.lstrip("_")[:1].isupper()


class Named:
    """A global of the candidate's, found anew at each use."""

    def __init__(self, far: Far, name: str) -> None:
        object.__setattr__(self, "_far", far)
        object.__setattr__(self, "_name", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = _get(self, "_far").do("call", *args, name=_get(self, "_name"), **kwargs)
        if type(value) is Remote:
            _set(value, _made=names_class(_get(self, "_name")))
        return value

    def __getattr__(self, name: str) -> Any:
        return _attribute(_get(self, "_far").do("getattr", self, name), names_class(_get(self, "_name")))
