"""Near ends of objects behind the wall: each use is a question, each reply a plain value.

An object that cannot stays there; a `Remote` stands for it. A foreign `__eq__` or `__contains__` is never asked: the
object equals a plain value if the plain value below it does (for a list's subclass that compares as lists do), and
contains (`in`) what iterating it yields. Two such objects are equal if the values below them are; without such values
that is unknown, and tests that depend on it have no verdict. An object that a function returned has no arithmetic, no
order and no methods with arguments, which would reveal what the tests expect (`f(x) - e`, `f(x).equals(e)`). Tests of
objects that need these have no verdict; for a value of the answer's own class (`class D(dict)`) the answer is wrong,
since it could have returned the value. An object that the tests make by calling a class (`Stack()`, recognized by its
capital) has all of them.

A constant of a class derived from a builtin (a named tuple, a member of an IntEnum) is that builtin's value here; the
class's additions are requested. A coroutine is a coroutine here, too. Awaiting it runs it there to its first wait, and
on in turns while the tests' own loop runs: so several may wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .values import ARITHMETIC, CONSTANT, KEPT, ORDER, UNARY, NotPlain, encode


def _only_values(x: Any) -> list[Any]:
    if type(x) is Remote or type(x) is Named:
        raise _Object
    raise NotPlain(f"a {type(x).__name__}")


class _Object(Exception):
    """An object of the answer's is in a value of the tests."""


def same(first: Any, second: Any) -> bool:
    """Return `first is second`, also for objects behind the wall, which the answer itself identifies."""
    if type(first) is Remote and type(second) is Remote:
        return slot(first, "_place") == slot(second, "_place")
    return first is second


class Remote:
    """An object behind the wall."""

    __slots__ = ("_far", "_made", "_owner", "_place")

    def __init__(self, far: Any, number: int, kind: str) -> None:
        """far: the `Far` behind which it lives. _owner: the object of which it is a method, or another attribute."""
        _set(self, _far=far, _place=(number, kind), _made=False, _owner=None)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        far, kind = slot(self, "_far"), slot(self, "_place")[1]
        if type(other) is Remote:
            return _equal(self, other)
        try:
            encode(other, _only_values)
        except _Object:
            raise _compared(self) from None
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
    def __class__(self) -> type:  # pyrefly: ignore[bad-override]
        """The builtin type that the object has or derives from, for isinstance."""
        base = _do(self, "base")
        return base if isinstance(base, type) else object

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it. A method of an object that the answer returned takes no arguments: they could be expected values."""
        owner = slot(self, "_owner")
        if (args or kwargs) and owner is not None and not slot(self, "_made"):
            far, kind = slot(self, "_far"), slot(owner, "_place")[1][:100]
            if _adds_to_builtin(owner):
                raise far.refused(f"a {kind} of the answer's own, not the value itself, is asked by a method")
            raise far.undecided("a method of an object that the answer returned is called with arguments")
        return _do(self, "call", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, _do(self, "getattr", name), slot(self, "_made"))

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
        if slot(self, "_made"):
            return _do(self, "contains", item) is True
        return any(element is item or element == item for element in self)

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
        raise slot(remote, "_far").undecided("the answer's own with block is left by an exception")


def _operator(op: str, swapped: bool) -> Callable[..., Any]:
    """Return a method for an operator. swapped: it stands for `other + self`."""

    def apply(self: Remote, *others: Any) -> Any:
        if not slot(self, "_made"):
            if op in UNARY:
                raise TypeError(f"bad operand type for {op}: {slot(self, '_place')[1][:100]}")
            return NotImplemented
        operands = (*others, self) if swapped else (self, *others)
        value = slot(self, "_far").do(op, *operands)
        if type(value) is Remote:
            _set(value, _made=True)
        return value

    return apply


for _name in (*ARITHMETIC, *ORDER, *UNARY):
    setattr(Remote, f"__{_name.rstrip('_')}__", _operator(_name, swapped=False))
for _name in ARITHMETIC:
    setattr(Remote, f"__r{_name.rstrip('_')}__", _operator(_name, swapped=True))
    setattr(Remote, f"__i{_name.rstrip('_')}__", _operator("i" + _name.rstrip("_"), swapped=False))


def slot(remote: Remote | Named, name: str) -> Any:
    """Return one of its own slots: its attributes are those of the object it stands for."""
    return object.__getattribute__(remote, name)


def _set(remote: Remote, **slots: Any) -> None:
    for slot, value in slots.items():
        object.__setattr__(remote, slot, value)


def _do(remote: Remote, op: str, *args: Any, **kwargs: Any) -> Any:
    return slot(remote, "_far").do(op, remote, *args, **kwargs)


async def coroutine(remote: Remote) -> Any:
    """Await a coroutine of the answer's for the tests: one that is not begun can cross, as `remote`."""
    return await _awaited(remote, "await")


async def _awaited(remote: Remote, op: str) -> Any:
    """Wait for a coroutine of the far side; return its result. A cancellation here cancels it there."""
    from asyncio import CancelledError

    far, cancelled = slot(remote, "_far"), None
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
    """Return a subclass of `base` that asks the far side for other attributes, and for its looks."""
    kind: Any = type(base.__name__, (base,), {"__getattr__": lambda self, name: attribute(remote_of(self), name)})
    kind.__repr__ = lambda self: repr(remote_of(self))
    kind.__str__ = lambda self: str(remote_of(self))
    return kind


_KEPT = {base: _kept_class(base) for base in CONSTANT}
KEPT.update(_KEPT.values())


def keep(value: Any, remote: Remote) -> Any:
    """Return `value`, of a type in CONSTANT, as a stand-in for `remote`."""
    stand_in = _KEPT[type(value)](value)
    stand_in.__dict__[_REMOTE] = remote
    return stand_in


def remote_of(value: Any) -> Remote:
    """Return the remote that a value of a class in KEPT stands for."""
    return value.__dict__[_REMOTE]


def attribute(remote: Remote, name: str) -> Any:
    """Ask for an attribute that a stand-in lacks here, except for Python's own names."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _attribute(remote, _do(remote, "getattr", name), False)


def _attribute(owner: Remote | Named, value: Any, made: bool) -> Any:
    if type(value) is Remote:
        _set(value, _made=made, _owner=owner)
    return value


def _equal(first: Remote, second: Remote) -> bool:
    """Compare two objects of the far side by value. Incomparable ones are unequal if their class extends a builtin."""
    values = [_do(remote, "plain") for remote in (first, second)]
    if all(type(value) is not Remote for value in values):
        return values[0] == values[1]
    if _adds_to_builtin(first) or _adds_to_builtin(second):
        slot(first, "_far").unequal = slot(first, "_place")[1][:100]
        return False
    raise _compared(first)


def _compared(remote: Remote) -> Exception:
    kind = slot(remote, "_place")[1][:100]
    return slot(remote, "_far").undecided(f"two objects of the answer's own are compared (one is a {kind})")


def _adds_to_builtin(remote: Remote | Named) -> bool:
    """Return whether its class derives from a builtin, by its own account."""
    base = _do(remote, "base") if type(remote) is Remote else object
    return isinstance(base, type) and base is not object


def names_class(name: str) -> bool:
    """Return whether a name is a class's, by its capital: the candidate's own claim does not count."""
    return name.lstrip("_")[:1].isupper()


class Named:
    """A global of the candidate's, looked up anew at each use."""

    def __init__(self, far: Any, name: str) -> None:
        object.__setattr__(self, "_far", far)
        object.__setattr__(self, "_name", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it. The result of a class, recognized by its capital, is an object that the tests made themselves."""
        value = slot(self, "_far").do("call", *args, name=slot(self, "_name"), **kwargs)
        if type(value) is Remote:
            _set(value, _made=names_class(slot(self, "_name")))
        return value

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, slot(self, "_far").do("getattr", self, name), names_class(slot(self, "_name")))

    def __instancecheck__(self, x: Any) -> bool:
        if type(x) is not Remote and type(x) not in KEPT:
            return False
        return slot(self, "_far").do("isinstance", x, self) is True
