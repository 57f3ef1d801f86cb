"""The candidate, as tests see it: ask the far side, and read its replies as values, objects and errors."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import Any

from .remote import Named, Remote, attribute, coroutine, keep, remote_of, slot
from .values import CHANGEABLE, KEPT, NotPlain, decode, encode

Ask = Callable[[dict[str, Any]], dict[str, Any]]
MAX_QUESTIONS = 100_000
PAUSES = (0.0, 0.0, 0.001, 0.01)  # seconds that turns over there take while nothing happens here


class CannotCross(Exception):
    """The tests pass a value that cannot cross (their own function, say), which is no fault of the candidate's."""


class BadReply(Exception):
    """A reply that is no value: too large, an object in place of a value, or a forgery."""


class Source:
    """An expression to evaluate on the far side: a lambda among a call's arguments."""

    def __init__(self, text: str) -> None:
        self.text = text


class Far:
    """The candidate, as tests see it. `ask` carries a question's form over and brings the reply's form back."""

    def __init__(self, ask: Ask, errors: Iterable[str] = (), *, awaits: bool = False) -> None:
        """errors: names that the tests use for exceptions of the answer's own; awaits: coroutines may be awaited."""
        self._ask, self._awaits = ask, awaits
        self.errors = {name: type(name, (BaseException,), {}) for name in errors}
        self._loop: Any = None  # the tests' newest event loop
        self._loops = 0  # of the tests, so far
        self._waits: dict[int, Any] = {}  # the number of a task over there → a future of its state when it is done
        self._states: dict[int, str] = {}  # of those that ended without a waiter
        self._quiet, self._asked = 0, 0  # turns in which nothing else was asked; questions up to the last one
        self.questions = 0
        self.fault: CannotCross | BadReply | None = None  # the first; tests may have swallowed it
        self.raised: BaseException | None = None  # the last that came from the far side
        self.unequal = ""  # the class of an object that was found unequal to a value

    def named(self, name: str) -> Callable[..., Any]:
        """The candidate's global `name`, to be called or looked into."""
        return Named(self, name)

    def do(self, op: str, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Return the result of `op`. Raises the far side's exception (as the nearest builtin one), BadReply, or
        CannotCross."""
        try:
            return self._do(op, args, name, kwargs)
        except (CannotCross, BadReply) as error:
            self.fault = self.fault or error
            raise

    def _do(self, op: str, args: tuple[Any, ...], name: str | None, kwargs: dict[str, Any]) -> Any:
        """Ask the far side to do `op` and return the value that it replies with; raise the exception that it raised.

        name: of the function, None if the object is an argument. CannotCross for arguments, BadReply for replies that
        cannot cross.
        """
        self.questions += 1
        if self.questions > MAX_QUESTIONS:
            raise BadReply(f"more than {MAX_QUESTIONS} questions")
        try:
            forms = [encode(arg, _handle) for arg in args]
            question: dict[str, Any] = {"op": op, "args": forms}
            if kwargs:
                question["kwargs"] = {key: encode(arg, _handle) for key, arg in kwargs.items()}
        except NotPlain as error:
            raise CannotCross(f"an argument of {name or op} cannot cross: {error}") from None
        if name is not None:
            question["name"] = name
        if self._awaits:
            question |= self._loop_now()
        reply = self._ask(question)
        try:
            match reply:
                case {"raised": [str(kind), str(message)]}:
                    raise self._exception(kind, message, reply.get("error"))
                case {"large": str(reason)}:
                    raise BadReply(f"a value that cannot cross: {reason}")
                case {"value": form, **rest}:
                    value = decode(form, self._object, self._stand_in)
                    if type(rest.get("args")) is list:
                        self._take_changes((*args, *kwargs.values()), rest["args"])
                    return value
        except NotPlain as error:
            raise BadReply(str(error)) from None
        raise BadReply("not a reply")

    def _loop_now(self) -> dict[str, Any]:
        """Return the tests' newest event loop, by number, and whether it runs now; {} without an open one."""
        asyncio = sys.modules.get("asyncio")
        running = asyncio and asyncio._get_running_loop()
        if running is not None and running is not self._loop:
            self._loop, self._loops, self._waits, self._states = running, self._loops + 1, {}, {}
        if self._loop is None or self._loop.is_closed():
            return {}
        return {"loop": self._loops, "running": running is not None}

    def ended(self, number: int) -> Any:
        """Return a future of a task's state when it is done. Each turn of the tests' loop is one of the candidate's."""
        future = self._loop.create_future()
        if number in self._states:
            future.set_result(self._states.pop(number))
            return future
        if not self._waits:
            self._loop.call_soon(self._turn)
        self._waits[number] = future
        return future

    def _turn(self) -> None:
        """Give the far side's tasks a turn, and repeat that in the tests' loop while some of them are waited for."""
        self._waits = {number: future for number, future in self._waits.items() if not future.done()}  # or cancelled
        self._quiet = self._quiet + 1 if self.questions == self._asked else 0
        if not self._waits:
            return
        try:
            for number, state in self.do("turn", PAUSES[min(self._quiet, len(PAUSES) - 1)]):
                future = self._waits.pop(number, None)
                if future is None:
                    self._states[number] = state
                else:
                    future.set_result(state)
        except BaseException as error:
            for future in self._waits.values():
                future.set_exception(error)
            self._waits = {}
        self._asked = self.questions
        if self._waits:
            self._loop.call_soon(self._turn)

    def _object(self, number: int, kind: str) -> Any:
        remote = Remote(self, number, kind)
        return coroutine(remote) if kind == "coroutine" and self._awaits else remote

    def _stand_in(self, value: Any, number: int, kind: str) -> Any:
        return keep(value, Remote(self, number, kind))

    def undecided(self, reason: str) -> CannotCross:
        """Record the fault of tests that leave a verdict to the answer."""
        self.fault = self.fault or CannotCross(reason)
        return CannotCross(reason)

    def refused(self, reason: str) -> BadReply:
        """Record the fault of an answer that gave something else than a value."""
        self.fault = self.fault or BadReply(reason)
        return BadReply(reason)

    def _exception(self, kind: str, message: str, error: Any) -> BaseException:
        """Return the far side's exception as one of ours, and remember it.

        It is of the builtin class, or of the standard library's if the tests have imported that, also derived from its
        own classes among `errors`.
        """
        error_class = getattr(builtins, kind, None)
        if not (isinstance(error_class, type) and issubclass(error_class, BaseException)):
            error_class = Exception
        args: list[Any] = [message]
        match error:
            case [list(forms), list(own), form, list(modules)] if len(own) < 20:
                with contextlib.suppress(NotPlain):  # an exception that holds an object would ask it what it looks like
                    args = [decode(form, _refused) for form in forms]
                if own:
                    names = dict.fromkeys(name for name in own if isinstance(name, str) and name in self.errors)
                    bases = [self.errors[name] for name in names]
                    remote = decode(form, self._object)
                    members: dict[str, Any] = {"__str__": lambda _: message}
                    members["__getattr__"] = lambda _, name: attribute(remote, name)
                    if (standard := _standard_error(modules, own)) is not None and issubclass(standard, error_class):
                        error_class, members["__init__"] = standard, lambda *_: None  # what it is made of is asked for
                    error_class = type(str(own[0]), (*bases, error_class), members)
        try:
            self.raised = error_class(*args)
        except TypeError:  # UnicodeDecodeError takes five arguments
            self.raised = ValueError(message)
        return self.raised

    def _take_changes(self, args: tuple[Any, ...], forms: list[Any]) -> None:
        """Copy changes of arguments back, for functions that work in place."""
        for arg, form in zip(args, forms, strict=False):
            if type(arg) not in CHANGEABLE:
                continue
            after = decode(form, self._object, self._stand_in)
            if type(after) is type(arg):
                arg.clear()
                arg.extend(after) if hasattr(arg, "extend") else arg.update(after)


def _handle(x: Any) -> list[Any]:
    """Return the form of a value that crosses as a name: an object of the far side's, its source, or a builtin.

    NotPlain else.
    """
    if type(x) in KEPT:
        x = remote_of(x)
    if type(x) is Remote:
        return ["o", *slot(x, "_place")]
    if type(x) is Named:
        return ["N", slot(x, "_name")]
    if type(x) is Source:
        return ["x", x.text]
    if type(x) is CoroutineType and x.cr_code is coroutine.__code__ and x.cr_frame is not None and not x.cr_running:
        remote = x.cr_frame.f_locals["remote"]
        x.close()  # the candidate awaits it
        return _handle(remote)
    if getattr(builtins, getattr(x, "__name__", ""), None) is x:
        return ["N", x.__name__]  # sum, sorted …: the far side has its own
    raise NotPlain(f"a {type(x).__name__}")


def _refused(*_: Any) -> Any:
    raise NotPlain("an object")


def _standard_error(modules: list[Any], names: list[Any]) -> type[Exception] | None:
    """Return the nearest class of the standard library, except those that steer a test run; None without one."""
    for module, name in zip(modules, names, strict=False):
        if isinstance(module, str) and isinstance(name, str) and module.partition(".")[0] in sys.stdlib_module_names:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and issubclass(kind, Exception) and not module.startswith("unittest"):
                return kind
    return None
