"""Plain Python values as tagged JSON: what may cross the wall between model-written code and a verdict.

    None, bool, str      themselves; an int below 2**53 too
    a list               [tag, content …]: i int (hexadecimal), f float, c complex, b bytes, B bytearray, l list,
                         t tuple, s set, z frozenset, q deque, d dict (as pairs), T a type (its name),
                         v an instance of exactly one of STANDARD (its name, its parts)
    ["o", n, name]       anything else: the n-th object that its side keeps, of the class `name`
    ["k", value, n, name]  the same, but of a class that adds to a builtin and compares as that does: its value, too

Exact builtin types and a closed list of the standard library's cross by value and are that very type again on the other
side, so that Python's own `==` compares them. All others are opaque: a class whose `__eq__` says yes to everything must
not reach a comparison. STANDARD's constructors are given checked parts alone, of capped size: an int, a list or a hash
made of them takes no time to speak of.
"""

from __future__ import annotations

import builtins
import sys
from collections import Counter, OrderedDict, defaultdict, deque

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_DEPTH = 100
MAX_NODES = 500_000
MAX_DIGITS = 10_000  # of a Decimal, before its exponent or in it
EXACT = 2**53  # ints below it are JSON numbers
TYPES = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, type(None))
} | {"range": range, "object": object, "type": type}
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
CHANGEABLE = {list, dict, set, deque, bytearray, OrderedDict, Counter, defaultdict}  # in place
CONSTANT = {int, float, complex, str, bytes, tuple, frozenset}
# Of the operator module: what the tests' own objects of the answer's classes may be asked.
ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
)  # fmt: skip
ORDER, UNARY = ("lt", "le", "gt", "ge"), ("neg", "pos", "abs", "invert")
KEPT: set[type] = set()  # the classes that stand here for values of ["k", …]
# What a class may say for itself and still behave as the builtin it adds to.
_ITS_OWN = {
    "__new__", "__init__", "__module__", "__doc__", "__dict__", "__hash__", "__repr__", "__str__", "__format__",
    "__eq__", "__ne__", "__dir__", "__reduce__", "__reduce_ex__", "__sizeof__", "__getnewargs__", "__getnewargs_ex__",
    "__getstate__", "__init_subclass__", "__subclasshook__", "__class__", "__class_getitem__",
}  # fmt: skip


class NotPlain(ValueError):
    """The value is too large, too deep, or no value of this form at all."""


def encode(value: Any, opaque: Callable[[Any], list[Any]], keep: bool = False) -> Any:
    """`value` as tagged JSON. `opaque(x)` gives the form of an object that cannot cross. NotPlain beyond the caps.

    keep: an instance of a subclass stays on this side, too ("o" or "k"); else it goes as the builtin below it.
    """
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
        if kind is list or kind is tuple or (kind is deque and x.maxlen is None):
            return [_TAGS[kind], *[walk(item, depth + 1) for item in x]]
        if kind is set or kind is frozenset:
            members = [walk(item, depth + 1) for item in x]
            return opaque(x) if keep and any(map(_opaque, members)) else [_TAGS[kind], *members]
        if kind is dict:
            pairs = [[walk(key, depth + 1), walk(item, depth + 1)] for key, item in x.items()]
            return opaque(x) if keep and any(_opaque(key) for key, _ in pairs) else ["d", *pairs]
        if kind is complex:
            return ["c", x.real.hex(), x.imag.hex()]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "B", x.hex()]
        if kind in KEPT:
            return opaque(x)
        if type in _mro(kind):
            name = _type_name(x)
            return opaque(x) if name is None else ["T", name]
        standard = _standard(kind)
        if standard is not None:
            parts, kinds = STANDARD[standard][0](x), STANDARD[standard][1]
            forms = [walk(part, depth + 1) for part in parts or ()]
            said = parts is not None and not any(
                _opaque(form) for form, kind in zip(forms, kinds, strict=False) if kind
            )
            return ["v", standard, *forms] if said else opaque(x)
        base = _base(kind)
        if base is None:
            return opaque(x)
        if not keep:
            return walk(plain(x), depth + 1)
        if base not in CONSTANT or _overrides(kind, base):
            return opaque(x)
        return ["k", walk(_PLAIN[base](x), depth + 1), *opaque(x)[1:]]

    return walk(value, 0)


_TAGS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z", deque: "q"}


def plain(x: Any) -> Any:
    """The value of a standard type under an instance of a subclass that compares as it does; else `x` itself."""
    base = _base(type(x))
    return x if base is None else _PLAIN[base](x) if base in _PLAIN else _build(*_parts(x, base))


def builtin_base(kind: type) -> type:
    """The nearest builtin type that `kind` is or adds to."""
    return next(base for base in _mro(kind) if _type_name(base) is not None)  # at the latest, object


def _parts(x: Any, base: type) -> tuple[str, list[Any]]:
    name = _standard(base) or ""
    return name, STANDARD[name][0](x)


def _mro(kind: type) -> tuple[type, ...]:
    return type.__dict__["__mro__"].__get__(kind)


def _base(kind: type) -> type | None:
    """The builtin or standard type whose equality `kind` has inherited, or None."""
    for base in _mro(kind)[1:]:
        if base in _PLAIN or _standard(base) is not None:
            return base if kind.__eq__ is base.__eq__ and kind.__ne__ is base.__ne__ else None
    return None


def _overrides(kind: type, base: type) -> bool:
    """Whether a class on the way to `base` does otherwise what `base` does."""
    mro = _mro(kind)
    own = {name for one in mro[: mro.index(base)] if one.__module__ != "enum" for name in one.__dict__}
    return any(name not in _ITS_OWN and hasattr(base, name) for name in own)


def _opaque(form: Any) -> bool:
    """Whether a hashable value's form holds an object: no set of those could be compared with another."""
    return type(form) is list and (form[0] == "o" or (form[0] in ("t", "z", "k") and any(map(_opaque, form[1:]))))


def _type_name(kind: type) -> str | None:
    if type(kind) is type and kind in _NAMES:
        return _NAMES[kind]
    if issubclass(kind, BaseException) and getattr(builtins, kind.__name__, None) is kind:
        return kind.__name__
    return _standard(kind)


def decode(
    form: Any, opaque: Callable[[int, str], Any], kept: Callable[[Any, int, str], Any] = lambda value, *_: value
) -> Any:
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
                return set(_hashable([walk(item, depth + 1) for item in _closed(items)]))
            case ["z", *items]:
                return frozenset(_hashable([walk(item, depth + 1) for item in _closed(items)]))
            case ["d", *items]:
                pairs = list(_pairs(items))
                keys = _hashable([walk(key, depth + 1) for key in _closed([key for key, _ in pairs])])
                return dict(zip(keys, [walk(item, depth + 1) for _, item in pairs], strict=True))
            case ["T", str(name)]:
                return _type(name)
            case ["v", str(name), *parts] if name in STANDARD:
                return _build(name, [walk(part, depth + 1) for part in (_closed(parts) if "keys" in name else parts)])
            case ["k", value, int(number), str(name)] if type(number) is int and number >= 0:
                below = walk(value, depth + 1)
                if type(below) not in CONSTANT:
                    raise NotPlain("no value that a class could add to")
                return kept(below, number, name)
            case ["o", int(number), str(name)] if type(number) is int and number >= 0:
                return opaque(number, name)
        raise NotPlain("not a value")

    try:
        return walk(form, 0)
    except NotPlain:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:  # digits that are none, an unhashable key
        raise NotPlain(str(error)) from None


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        match item:
            case [key, value]:
                yield key, value
            case _:
                raise NotPlain("a dict's item is a pair")


def _closed(forms: list[Any]) -> list[Any]:
    """`forms` of members, unless one holds an object: whether it equals another is not to be asked."""
    if any(map(_opaque, forms)):
        raise NotPlain("an object among the members of a set")
    return forms


def _hashable(items: list[Any]) -> list[Any]:
    """`items`, unless many share one hash: building a set of those takes quadratic time, and it would be ours."""
    if len(items) > 100 and max(Counter(map(hash, items)).values()) > 100:
        raise NotPlain("more than 100 members with one hash")
    return items


# --------------------------------------------------------------------------------- the standard library's types
# Each: what an instance consists of (None: it cannot be said), the types of these parts, how it is built from them.


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
    return [x.maps] if len(x.maps) < 100 and all(type(one) is dict for one in x.maps) else None


def _chain_map(kind: Any, maps: list[Any]) -> Any:
    if len(maps) > 100 or any(type(one) is not dict for one in maps):  # each look-up asks all of them
        raise NotPlain("no parts of a ChainMap")
    return kind(*maps)


def _zone(x: Any) -> Any:
    """A time zone as a fixed offset, which compares alike; None for a naive time."""
    if x.tzinfo is None or type(x.tzinfo) is sys.modules["datetime"].timezone:
        return x.tzinfo
    offset = x.utcoffset()
    return None if offset is None else sys.modules["datetime"].timezone(offset)


def _attributes(*names: str) -> Callable[[Any], list[Any]]:
    return lambda x: [getattr(x, name) for name in names]


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
    "dict_keys": (lambda x: [tuple(x)], ((tuple,),), lambda kind, keys: dict.fromkeys(_hashable(keys)).keys()),
    "dict_values": (lambda x: [list(x)], ((list,),), lambda kind, values: dict(enumerate(values)).values()),
    "dict_items": (_dict_of, ((dict,),), lambda kind, held: held.items()),
    "odict_keys": (lambda x: [tuple(x)], ((tuple,),), lambda kind, keys: OrderedDict.fromkeys(_hashable(keys)).keys()),
    "odict_values": (lambda x: [list(x)], ((list,),), lambda kind, values: OrderedDict(enumerate(values)).values()),
    "odict_items": (_dict_of, ((dict,),), lambda kind, held: OrderedDict(held).items()),
    "mappingproxy": (_dict_of, ((dict,),), None),
    "memoryview": (lambda x: [bytes(x)] if x.ndim == 1 and x.format == "B" else None, ((bytes,),), None),
    "SimpleNamespace": (lambda x: [dict(x.__dict__)], ((dict,),), lambda kind, held: kind(**held)),
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


def _standard(kind: type) -> str | None:
    """The name in STANDARD of exactly this type, or None."""
    if _UNNAMED.get(kind.__name__) is kind:
        return kind.__name__
    module = str(kind.__module__).partition(".")[0]
    name = f"{module}.{kind.__name__}"
    return name if name in STANDARD and getattr(sys.modules.get(module), kind.__name__, None) is kind else None


def _type(name: str) -> type:
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


def _build(name: str, parts: list[Any]) -> Any:
    _, kinds, build = STANDARD[name]
    if kinds and (len(parts) != len(kinds) or any(k and type(p) not in k for p, k in zip(parts, kinds, strict=True))):
        raise NotPlain(f"no parts of a {name}")
    kind = _type(name)
    return kind(*parts) if build is None else build(kind, *parts)
