"""Plain Python values as tagged JSON: what may cross the wall between model-written code and a verdict.

    None, bool, str      themselves; an int below 2**53 too
    a list               [tag, content …]: i int (hexadecimal), f float, c complex, b bytes, B bytearray, l list,
                         t tuple, s set, z frozenset, q deque, d dict (as pairs), T builtin type (its name)
    ["o", n, name]       anything else: the n-th object that its side keeps, of the class `name`

Exact builtin types cross by value, and so do subclasses that keep the builtin's own equality (named tuples, IntEnum,
defaultdict) and Counter and OrderedDict, as the plain value below them. All others are opaque and equal nothing: a
class whose `__eq__` says yes to everything must not reach a comparison.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_DEPTH = 100
MAX_NODES = 500_000
EXACT = 2**53  # ints below it are JSON numbers
TYPES = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, type(None))
}
_NAMES = {kind: name for name, kind in TYPES.items()}
_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: lambda x: complex(complex.real.__get__(x), complex.imag.__get__(x)),
    str: str.__str__,
    bytes: lambda x: bytes.__getitem__(x, slice(None)),
    bytearray: lambda x: bytearray.__getitem__(x, slice(None)),
    list: lambda x: list.__getitem__(x, slice(None)),
    tuple: lambda x: tuple.__getitem__(x, slice(None)),
    set: lambda x: set(set.__iter__(x)),
    frozenset: lambda x: frozenset(frozenset.__iter__(x)),
    dict: lambda x: dict(dict.items(x)),
}
_OWN_EQUALITY = {Counter, OrderedDict}  # of the standard library: equal to a dict of the same items


class NotPlain(ValueError):
    """The value is too large, too deep, or no value of this form at all."""


def encode(value: Any, opaque: Callable[[Any], list[Any]]) -> Any:
    """`value` as tagged JSON. `opaque(x)` gives the form of an object that cannot cross. NotPlain beyond the caps."""
    left = MAX_NODES

    def walk(x: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > MAX_DEPTH or left < 0:
            raise NotPlain(f"more than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_NODES} parts")
        kind = type(x)
        if x is None or kind is bool or kind is str:
            return x
        if kind is int:
            return x if -EXACT < x < EXACT else ["i", format(x, "x")]
        if kind is float:
            return ["f", x.hex()]
        if kind is list or kind is tuple or kind is set or kind is frozenset or kind is deque:
            return [_TAGS[kind], *[walk(item, depth + 1) for item in x]]
        if kind is dict:
            return ["d", *[[walk(key, depth + 1), walk(item, depth + 1)] for key, item in x.items()]]
        if kind is complex:
            return ["c", x.real.hex(), x.imag.hex()]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "B", x.hex()]
        if kind is type and x in _NAMES:
            return ["T", _NAMES[x]]
        plain = _plain(x, kind)
        return opaque(x) if plain is None else walk(plain, depth + 1)

    return walk(value, 0)


_TAGS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z", deque: "q"}


def _plain(x: Any, kind: type) -> Any:
    """The builtin value under an instance of a subclass, or None."""
    for base, plain in _PLAIN.items():
        if base in type.__dict__["__mro__"].__get__(kind):
            return plain(x) if kind in _OWN_EQUALITY or kind.__eq__ is base.__eq__ else None
    return None


def decode(form: Any, opaque: Callable[[int, str], Any]) -> Any:
    """The value of tagged JSON that a stranger may have written. NotPlain for everything that `encode` cannot say."""
    left = MAX_NODES

    def walk(x: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > MAX_DEPTH + 1 or left < 0:
            raise NotPlain("a value with too many levels or parts")
        if x is None or isinstance(x, (bool, str)):
            return x
        if isinstance(x, int):
            if not -EXACT < x < EXACT:
                raise NotPlain("a large int is written in hexadecimal")
            return x
        match x:
            case ["i", str(digits)]:
                return int(digits, 16)
            case ["f", str(digits)]:
                return float.fromhex(digits)
            case ["c", str(real), str(imaginary)]:
                return complex(float.fromhex(real), float.fromhex(imaginary))
            case ["b", str(digits)]:
                return bytes.fromhex(digits)
            case ["B", str(digits)]:
                return bytearray.fromhex(digits)
            case ["l", *items]:
                return [walk(item, depth + 1) for item in items]
            case ["t", *items]:
                return tuple([walk(item, depth + 1) for item in items])
            case ["q", *items]:
                return deque([walk(item, depth + 1) for item in items])
            case ["s", *items]:
                return set(_hashable([walk(item, depth + 1) for item in items]))
            case ["z", *items]:
                return frozenset(_hashable([walk(item, depth + 1) for item in items]))
            case ["d", *items]:
                pairs = list(_pairs(items))
                keys = _hashable([walk(key, depth + 1) for key, _ in pairs])
                return dict(zip(keys, [walk(item, depth + 1) for _, item in pairs], strict=True))
            case ["T", str(name)] if name in TYPES:
                return TYPES[name]
            case ["o", int(number), str(name)] if type(number) is int and number >= 0:
                return opaque(number, name)
        raise NotPlain("not a value")

    try:
        return walk(form, 0)
    except (ValueError, TypeError, OverflowError) as error:  # digits that are none, an unhashable key
        raise NotPlain(str(error)) from None


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        match item:
            case [key, value]:
                yield key, value
            case _:
                raise NotPlain("a dict's item is a pair")


def _hashable(items: list[Any]) -> list[Any]:
    """`items`, unless many share one hash: building a set of those takes quadratic time, and it would be ours."""
    if len(items) > 100 and max(Counter(map(hash, items)).values()) > 100:
        raise NotPlain("more than 100 members with one hash")
    return items
