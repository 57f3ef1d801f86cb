"""The near end of what lives behind the wall: each use of it is a question, each answer a plain value.

An object that cannot cross stays where it is; a `Remote` stands for it. What a stranger's `__eq__` or `__contains__`
says is never asked: it equals a plain value if the plain value below it does (of a list's subclass that compares as
lists do), and holds, in the sense of `in`, what iterating it yields. Whether two such objects are equal is not to be
known: tests that ask it decide nothing. An object that a function returned takes no part in arithmetic and order and
has no methods with arguments: what the tests expect would go over with them (`f(x) - e`, `f(x).equals(e)`). An object
that the tests make themselves, by calling a class (`Stack()`, told by its capital), does and has.

A constant of a class that adds to a builtin (a named tuple, a member of an IntEnum) is that builtin's value here; what
the class adds is asked for. A coroutine is one here, too. Awaiting it runs it over there to its first wait, and on in
turns that take place as long as the tests' own loop runs: so several may wait for each other.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CoroutineType
from typing import Any

from .values import ARITHMETIC, CHANGEABLE, CONSTANT, KEPT, ORDER, UNARY, NotPlain, decode, encode

Ask = Callable[[dict[str, Any]], dict[str, Any]]
MAX_QUESTIONS = 100_000
PAUSES = (0.0, 0.0, 0.001, 0.01)  # seconds that turns over there take while nothing happens here


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

    def __init__(self, ask: Ask, errors: Iterable[str] = (), *, awaits: bool = False) -> None:
        """errors: names that the tests use for exceptions of the answer's own; awaits: coroutines may be awaited."""
        self._ask, self._awaits = ask, awaits
        self.errors = {name: type(name, (BaseException,), {}) for name in errors}
        self._loop: Any = None  # the tests' newest event loop
        self._loops = 0  # of the tests, so far
        self._waits: dict[int, Any] = {}  # the number of a task over there → a future of its state when it is done
        self._states: dict[int, str] = {}  # of those that ended as nobody waited
        self._quiet, self._asked = 0, 0  # turns in which nothing else was asked; questions up to the last one
        self.questions = 0
        self.fault: CannotCross | BadReply | None = None  # the first; tests may have swallowed it
        self.raised: BaseException | None = None  # the last that came from the far side
        self.unequal = ""  # the class of an object that was found unequal to a value

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
                    value = decode(form, self._object, self._kept)
                    if type(rest.get("args")) is list:
                        self._take_changes((*args, *kwargs.values()), rest["args"])
                    return value
        except NotPlain as error:
            raise BadReply(str(error)) from None
        raise BadReply("not a reply")

    def _loop_now(self) -> dict[str, Any]:
        asyncio = sys.modules.get("asyncio")
        running = asyncio and asyncio._get_running_loop()
        if running is not None and running is not self._loop:
            self._loop, self._loops, self._waits, self._states = running, self._loops + 1, {}, {}
        if self._loop is None or self._loop.is_closed():
            return {}
        return {"loop": self._loops, "running": running is not None}

    def ended(self, number: int) -> Any:
        """A future of a task's state when it is done. Each turn of the tests' loop is one of the candidate's."""
        future = self._loop.create_future()
        if number in self._states:
            future.set_result(self._states.pop(number))
            return future
        if not self._waits:
            self._loop.call_soon(self._turn)
        self._waits[number] = future
        return future

    def _turn(self) -> None:
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
        return _coroutine(remote) if kind == "coroutine" and self._awaits else remote

    def _kept(self, value: Any, number: int, kind: str) -> Any:
        held = _KEPT[type(value)](value)
        held.__dict__[_REMOTE] = Remote(self, number, kind)
        return held

    def undecided(self, reason: str) -> CannotCross:
        """The fault of tests that leave a verdict to the answer."""
        self.fault = self.fault or CannotCross(reason)
        return CannotCross(reason)

    def _exception(self, kind: str, message: str, error: Any) -> BaseException:
        """What the far side raised: a builtin exception, or one of the standard library's if the tests have imported
        it, which is also one of `errors` if it was."""
        found = getattr(builtins, kind, None)
        if not (isinstance(found, type) and issubclass(found, BaseException)):
            found = Exception
        args: list[Any] = [message]
        match error:
            case [list(forms), list(own), form, list(modules)] if len(own) < 20:
                with contextlib.suppress(NotPlain):  # an exception that holds an object would ask it what it looks like
                    args = [decode(form, _refused) for form in forms]
                if own:
                    names = dict.fromkeys(name for name in own if isinstance(name, str) and name in self.errors)
                    bases = [self.errors[name] for name in names]
                    asked = {"__str__": lambda _: message, "__getattr__": _error_attribute(decode(form, self._object))}
                    if (standard := _standard_error(modules, own)) is not None and issubclass(standard, found):
                        found, asked["__init__"] = standard, lambda *_: None  # what it is made of is asked for
                    found = type(str(own[0]), (*bases, found), asked)
        try:
            self.raised = found(*args)
        except TypeError:  # UnicodeDecodeError takes five arguments
            self.raised = ValueError(message)
        return self.raised

    def _take_changes(self, args: tuple[Any, ...], forms: list[Any]) -> None:
        """Functions that work in place change their arguments: so do ours."""
        for arg, form in zip(args, forms, strict=False):
            if type(arg) not in CHANGEABLE:
                continue
            after = decode(form, self._object, self._kept)
            if type(after) is type(arg):
                arg.clear()
                arg.extend(after) if hasattr(arg, "extend") else arg.update(after)


def _handle(x: Any) -> list[Any]:
    if type(x) in KEPT:
        x = x.__dict__[_REMOTE]
    if type(x) is Remote:
        return ["o", *object.__getattribute__(x, "_place")]
    if type(x) is Named:
        return ["N", object.__getattribute__(x, "_name")]
    if type(x) is Source:
        return ["x", x.text]
    if type(x) is CoroutineType and x.cr_code is _coroutine.__code__ and x.cr_frame is not None and not x.cr_running:
        remote = x.cr_frame.f_locals["remote"]
        x.close()  # the candidate awaits it
        return _handle(remote)
    if getattr(builtins, getattr(x, "__name__", ""), None) is x:
        return ["N", x.__name__]  # sum, sorted …: the far side has its own
    raise NotPlain(f"a {type(x).__name__}")


def _refused(*_: Any) -> Any:
    raise NotPlain("an object")


def _only_values(x: Any) -> list[Any]:
    if type(x) is Remote or type(x) is Named:
        raise _Object
    raise NotPlain(f"a {type(x).__name__}")


class _Object(Exception):
    """One of the answer's own is in a value of the tests."""


def same(one: Any, other: Any) -> bool:
    """`one is other`, also for what is behind the wall: the answer itself says which object that is."""
    if type(one) is Remote and type(other) is Remote:
        return _get(one, "_place") == _get(other, "_place")
    return one is other


class Remote:
    """An object behind the wall."""

    __slots__ = ("_far", "_made", "_method", "_place")

    def __init__(self, far: Far, number: int, kind: str) -> None:
        _set(self, _far=far, _place=(number, kind), _made=False, _method=False)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        far, kind = _get(self, "_far"), _get(self, "_place")[1]
        try:
            encode(other, _only_values)
        except _Object:
            raise far.undecided(f"two objects of the answer's own are compared (one is a {kind[:100]})") from None
        except NotPlain:  # an object of the tests' own: they say
            return NotImplemented
        value = _do(self, "plain")
        if type(value) is not Remote:
            return value == other
        far.unequal = far.unequal or kind[:100]
        return False

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:  # the same for all: whether two are equal must be asked
        return hash(Remote)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """For isinstance: the builtin type that it is or adds to."""
        base = _do(self, "base")
        return base if isinstance(base, type) else object

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (args or kwargs) and _get(self, "_method") and not _get(self, "_made"):
            raise _get(self, "_far").undecided(
                "a method of an object that the answer returned is called with arguments"
            )
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

    def __delitem__(self, key: Any) -> None:
        _do(self, "delitem", key)

    def __contains__(self, item: Any) -> bool:
        if _get(self, "_made"):
            return _do(self, "contains", item) is True
        return any(one is item or one == item for one in self)

    def __enter__(self) -> Any:
        return _do(self, "enter")

    def __exit__(self, kind: Any, *_: Any) -> None:
        _refuse_left_by(kind, self)
        _do(self, "exit")

    def __aiter__(self) -> Any:
        return _do(self, "aiter")

    async def __anext__(self) -> Any:
        return await _awaited(self, "anext")

    def __await__(self) -> Any:
        return _awaited(self, "await").__await__()

    async def __aenter__(self) -> Any:
        return await _awaited(self, "aenter")

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        _refuse_left_by(kind, self)
        await _awaited(self, "aexit")

    def __len__(self) -> int:
        return _do(self, "len")

    def __bool__(self) -> bool:
        return _do(self, "bool") is True

    def __str__(self) -> str:
        return _do(self, "str")

    def __repr__(self) -> str:
        return _do(self, "repr")


def _refuse_left_by(kind: Any, remote: Remote) -> None:
    if kind is not None and not issubclass(kind, AssertionError):
        raise _get(remote, "_far").undecided("the answer's own with block is left by an exception")


def _operator(op: str, swapped: bool) -> Callable[..., Any]:
    def apply(self: Remote, *others: Any) -> Any:
        if not _get(self, "_made"):
            if op in UNARY:
                raise TypeError(f"bad operand type for {op}: {_get(self, '_place')[1][:100]}")
            return NotImplemented
        operands = (*others, self) if swapped else (self, *others)
        value = _get(self, "_far").do(op, *operands)
        if type(value) is Remote:
            _set(value, _made=True)
        return value

    return apply


for _name in (*ARITHMETIC, *ORDER, *UNARY):
    setattr(Remote, f"__{_name.rstrip('_')}__", _operator(_name, swapped=False))
for _name in ARITHMETIC:
    setattr(Remote, f"__r{_name.rstrip('_')}__", _operator(_name, swapped=True))
    setattr(Remote, f"__i{_name.rstrip('_')}__", _operator("i" + _name.rstrip("_"), swapped=False))


def _get(remote: Remote | Named, slot: str) -> Any:
    return object.__getattribute__(remote, slot)


def _set(remote: Remote, **slots: Any) -> None:
    for slot, value in slots.items():
        object.__setattr__(remote, slot, value)


def _do(remote: Remote, op: str, *args: Any, **kwargs: Any) -> Any:
    return _get(remote, "_far").do(op, remote, *args, **kwargs)


async def _coroutine(remote: Remote) -> Any:
    return await _awaited(remote, "await")


async def _awaited(remote: Remote, op: str) -> Any:
    from asyncio import CancelledError

    far, cancelled = _get(remote, "_far"), None
    number, state = _do(remote, op)
    while not state:
        try:
            state = await far.ended(number)
        except CancelledError as error:
            cancelled = error
            far.do("cancel", number)
    if state == "cancelled":
        if cancelled is None:  # a group of tasks takes that for no failure
            raise far.undecided("a coroutine of the answer's own was cancelled, and not by the tests")
        raise cancelled
    return far.do("result", number)


_REMOTE = "_qualgate_remote"


def _kept_class(base: type) -> type:
    """Values of `base` that know more: what `base` has not is asked for, and what they look like."""

    def attribute(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(_do(self.__dict__[_REMOTE], "getattr", name), False)

    kind: Any = type(base.__name__, (base,), {"__getattr__": attribute})
    kind.__repr__ = lambda self: repr(self.__dict__[_REMOTE])
    kind.__str__ = lambda self: str(self.__dict__[_REMOTE])
    return kind


_KEPT = {base: _kept_class(base) for base in CONSTANT}
KEPT.update(_KEPT.values())


def _standard_error(modules: list[Any], names: list[Any]) -> type[Exception] | None:
    """The nearest class that is the standard library's own. Those that steer a run of tests are none."""
    for module, name in zip(modules, names, strict=False):
        if isinstance(module, str) and isinstance(name, str) and module.partition(".")[0] in sys.stdlib_module_names:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and issubclass(kind, Exception) and not module.startswith("unittest"):
                return kind
    return None


def _error_attribute(remote: Any) -> Callable[[Any, str], Any]:
    def attribute(_: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(_do(remote, "getattr", name), False)

    return attribute


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

    def __instancecheck__(self, x: Any) -> bool:
        if type(x) is not Remote and type(x) not in KEPT:
            return False
        return _get(self, "_far").do("isinstance", x, self) is True
