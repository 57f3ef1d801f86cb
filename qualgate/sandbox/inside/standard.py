"""Types of the standard library whose instances cross by value: the parts of each, and how it is rebuilt."""

from __future__ import annotations

import builtins
import sys
from collections import Counter, OrderedDict

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_NODES = 500_000
MAX_DIGITS = 10_000  # of a Decimal, before its exponent or in it
TYPES = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, type(None))
} | {"range": range, "object": object, "type": type}


class NotPlain(ValueError):
    """The value is too large, too deep, or no value of this form at all."""


def hashable(items: list[Any]) -> list[Any]:
    """Return `items`, unless many share one hash: building a set of those would cost us quadratic time."""
    if len(items) > 100 and max(Counter(map(hash, items)).values()) > 100:
        raise NotPlain("more than 100 members with one hash")
    return items


def _decimal(kind: Any, digits: str) -> Any:
    if len(digits) > MAX_DIGITS + 20:
        raise NotPlain(f"a Decimal of more than {MAX_DIGITS} digits")
    number = kind(digits)
    if number.is_finite() and abs(number.adjusted()) > MAX_DIGITS:
        raise NotPlain(f"a Decimal beyond 10**{MAX_DIGITS}")
    return number


def _fraction(kind: Any, above: int, below: int) -> Any:
    if above.bit_length() > 2**16 or below.bit_length() > 2**16:
        raise NotPlain("a Fraction of more than 65536 bits")
    return kind(above, below)


def _range(kind: Any, *ends: int) -> Any:
    if any(end.bit_length() > 256 for end in ends) or abs(ends[1] - ends[0]) // (abs(ends[2]) or 1) > MAX_NODES:
        raise NotPlain(f"a range of more than {MAX_NODES} members")
    return kind(*ends)


def _maps(x: Any) -> list[Any] | None:
    return [x.maps] if len(x.maps) < 100 and all(type(mapping) is dict for mapping in x.maps) else None


def _chain_map(kind: Any, maps: list[Any]) -> Any:
    if len(maps) > 100 or any(type(mapping) is not dict for mapping in maps):  # each look-up asks all of them
        raise NotPlain("no parts of a ChainMap")
    return kind(*maps)


def _zone(x: Any) -> Any:
    """Return a time zone as a fixed offset, which compares alike; None for a naive time."""
    if x.tzinfo is None or type(x.tzinfo) is sys.modules["datetime"].timezone:
        return x.tzinfo
    offset = x.utcoffset()
    return None if offset is None else sys.modules["datetime"].timezone(offset)


def _attributes(*names: str) -> Callable[[Any], list[Any]]:
    return lambda x: [getattr(x, name) for name in names]


# For each: the parts of an instance (None: unknown), the types of these parts, how it is built from them.
_CLOCK = ("hour", "minute", "second", "microsecond")
_INT, _TEXT, _ANY = (int,), (str,), ()
_dict_of, _text_of, _number_of = (lambda x: [dict(x)]), (lambda x: [str(x)]), (lambda x: [int(x)])
STANDARD: dict[str, Any] = {
    "decimal.Decimal": (_text_of, (_TEXT,), _decimal),
    "fractions.Fraction": (_attributes("numerator", "denominator"), (_INT, _INT), _fraction),
    "datetime.date": (_attributes("year", "month", "day"), (_INT,) * 3, None),
    "datetime.timedelta": (_attributes("days", "seconds", "microseconds"), (_INT,) * 3, None),
    "datetime.timezone": (lambda x: [*x.__getinitargs__()], (), None),
    "datetime.time": (
        lambda x: [*_attributes(*_CLOCK)(x), _zone(x), x.fold],
        (*(_INT,) * 4, _ANY, _INT),
        lambda kind, *parts: kind(*parts[:5], fold=parts[5]),
    ),
    "datetime.datetime": (
        lambda x: [*_attributes("year", "month", "day", *_CLOCK)(x), _zone(x), x.fold],
        (*(_INT,) * 7, _ANY, _INT),
        lambda kind, *parts: kind(*parts[:8], fold=parts[8]),
    ),
    "range": (_attributes("start", "stop", "step"), (_INT,) * 3, _range),
    "slice": (_attributes("start", "stop", "step"), (_ANY,) * 3, None),
    "ellipsis": (lambda x: [], (), lambda kind: ...),
    "NotImplementedType": (lambda x: [], (), lambda kind: NotImplemented),
    "dict_keys": (lambda x: [tuple(x)], ((tuple,),), lambda kind, keys: dict.fromkeys(hashable(keys)).keys()),
    "dict_values": (lambda x: [list(x)], ((list,),), lambda kind, values: dict(enumerate(values)).values()),
    "dict_items": (_dict_of, ((dict,),), lambda kind, items: items.items()),
    "odict_keys": (lambda x: [tuple(x)], ((tuple,),), lambda kind, keys: OrderedDict.fromkeys(hashable(keys)).keys()),
    "odict_values": (lambda x: [list(x)], ((list,),), lambda kind, values: OrderedDict(enumerate(values)).values()),
    "odict_items": (_dict_of, ((dict,),), lambda kind, items: OrderedDict(items).items()),
    "mappingproxy": (_dict_of, ((dict,),), None),
    "memoryview": (lambda x: [bytes(x)] if x.ndim == 1 and x.format == "B" else None, ((bytes,),), None),
    "SimpleNamespace": (lambda x: [dict(x.__dict__)], ((dict,),), lambda kind, attributes: kind(**attributes)),
    "collections.OrderedDict": (_dict_of, ((dict,),), None),
    "collections.Counter": (_dict_of, ((dict,),), None),
    "collections.defaultdict": (lambda x: [x.default_factory, dict(x)], (_ANY, (dict,)), None),
    "collections.deque": (lambda x: [list(x), x.maxlen], ((list,), _INT), None),
    "collections.ChainMap": (_maps, ((list,),), _chain_map),
    "collections.UserDict": (lambda x: [x.data], ((dict,),), None),
    "collections.UserList": (lambda x: [x.data], ((list,),), None),
    "collections.UserString": (lambda x: [x.data], (_TEXT,), None),
    "array.array": (lambda x: [x.typecode, list(x)], (_TEXT, (list,)), None),
    "uuid.UUID": (_number_of, (_INT,), lambda kind, number: kind(int=number)),
    "pathlib.PurePosixPath": (_text_of, (_TEXT,), None),
    "pathlib.PosixPath": (_text_of, (_TEXT,), None),
    "ipaddress.IPv4Address": (_number_of, (_INT,), None),
    "ipaddress.IPv6Address": (_number_of, (_INT,), None),
}
_UNNAMED: dict[str, type] = {  # standard types that no module's attribute names, or builtins
    kind.__name__: kind
    for kind in (
        range, slice, type(...), type(NotImplemented), memoryview, type(type.__dict__), type(sys.implementation),
        type({}.keys()), type({}.values()), type({}.items()),
        type(OrderedDict().keys()), type(OrderedDict().values()), type(OrderedDict().items()),
    )
}  # fmt: skip


def standard_name(kind: type) -> str | None:
    """Return the name in STANDARD of exactly this type, or None."""
    if _UNNAMED.get(kind.__name__) is kind:
        return kind.__name__
    module = str(kind.__module__).partition(".")[0]
    name = f"{module}.{kind.__name__}"
    return name if name in STANDARD and getattr(sys.modules.get(module), kind.__name__, None) is kind else None


def type_named(name: str) -> type:
    """Return the type of a "T" form. NotPlain for an unknown name."""
    if name in TYPES:
        return TYPES[name]
    if name in _UNNAMED:
        return _UNNAMED[name]
    if name in STANDARD:
        module, _, kind = name.partition(".")
        return getattr(__import__(module), kind)
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind
    raise NotPlain("not a type")


def build(name: str, parts: list[Any]) -> Any:
    """Build the instance of STANDARD's `name` with these parts. NotPlain for wrong or too large parts."""
    _, kinds, make = STANDARD[name]
    if kinds and (len(parts) != len(kinds) or any(k and type(p) not in k for p, k in zip(parts, kinds, strict=True))):
        raise NotPlain(f"no parts of a {name}")
    kind = type_named(name)
    return kind(*parts) if make is None else make(kind, *parts)
