"""Encode plain Python values as tagged JSON, which may cross the wall between model-written code and a verdict.

    None, bool, str      themselves; an int below 2**53 too
    a list               [tag, content …]: i int (hexadecimal), f float, c complex, b bytes, B bytearray, l list,
                         t tuple, s set, z frozenset, q deque, d dict (as pairs), T a type (its name),
                         v an instance of exactly one of STANDARD (its name, its parts)
    ["o", n, name]       anything else: the n-th object that its side keeps, of the class `name`
    ["k", value, n, name]  the same, but of a class that adds to a builtin and compares as that does: its value, too

Exact builtin types and a closed list of the standard library's cross by value and have the same type on the other side,
so that Python's own `==` compares them. All others are opaque: a class whose `__eq__` is always true must not reach a
comparison. STANDARD's constructors get only checked parts of capped size: an int, a list or a hash of them takes
negligible time.
"""

from __future__ import annotations

import builtins
from collections import Counter, OrderedDict, defaultdict, deque

from .standard import MAX_NODES, STANDARD, TYPES, NotPlain, build, hashable, standard_name, type_named

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_DEPTH = 100
EXACT = 2**53  # ints below it are JSON numbers
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
_TAGS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z", deque: "q"}
_KINDS = {tag: kind for kind, tag in _TAGS.items()}


def encode(value: Any, opaque: Callable[[Any], list[Any]], keep: bool = False) -> Any:
    """Encode `value` as tagged JSON. `opaque(x)` gives the form of objects that cannot cross. NotPlain beyond the caps.

    keep: an instance of a subclass stays on this side, too ("o" or "k"); else it goes as the builtin below it.
    """
    return _Encoder(opaque, keep).form(value, 0)


class _Encoder:
    def __init__(self, opaque: Callable[[Any], list[Any]], keep: bool) -> None:
        self.opaque, self.keep = opaque, keep
        self.left = MAX_NODES

    def form(self, x: Any, depth: int) -> Any:
        """Return the form of a value at this depth. NotPlain for too deep or too large a value."""
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise NotPlain(f"more than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_NODES} parts")
        kind = type(x)
        if x is None or kind is bool or kind is str:
            return x
        if kind is int:
            return x if -EXACT < x < EXACT else ["i", format(x, "x")]
        if kind is float:
            return ["f", x.hex()]
        if kind is list or kind is tuple or (kind is deque and x.maxlen is None):
            return [_TAGS[kind], *[self.form(item, depth + 1) for item in x]]
        if kind is set or kind is frozenset:
            members = [self.form(item, depth + 1) for item in x]
            return self.opaque(x) if self.keep and any(map(_opaque, members)) else [_TAGS[kind], *members]
        if kind is dict:
            pairs = [[self.form(key, depth + 1), self.form(item, depth + 1)] for key, item in x.items()]
            return self.opaque(x) if self.keep and any(_opaque(key) for key, _ in pairs) else ["d", *pairs]
        if kind is complex:
            return ["c", x.real.hex(), x.imag.hex()]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "B", x.hex()]
        return self.rarer(x, kind, depth)

    def rarer(self, x: Any, kind: type, depth: int) -> Any:
        """Encode a type, an instance of a standard type or of a class derived from a builtin, or an object."""
        if kind in KEPT:
            return self.opaque(x)
        if self.keep and kind.__module__ == "numpy" and hasattr(x, "item") and getattr(x, "shape", None) == ():
            item = x.item()  # a number of numpy's is the number
            return self.opaque(x) if type(item) is kind else self.form(item, depth + 1)
        if type in _mro(kind):
            name = _type_name(x)
            return self.opaque(x) if name is None else ["T", name]
        standard = standard_name(kind)
        if standard is not None:
            parts, kinds = STANDARD[standard][0](x), STANDARD[standard][1]
            forms = [self.form(part, depth + 1) for part in parts or ()]
            is_plain = parts is not None and not any(
                _opaque(form) for form, kind in zip(forms, kinds, strict=False) if kind
            )
            return ["v", standard, *forms] if is_plain else self.opaque(x)
        base = _base(kind)
        if base is None:
            return self.opaque(x)
        if not self.keep:
            return self.form(plain(x), depth + 1)
        if base not in CONSTANT or _overrides(kind, base):
            return self.opaque(x)
        return ["k", self.form(_PLAIN[base](x), depth + 1), *self.opaque(x)[1:]]


def plain(x: Any) -> Any:
    """Return the standard value under an instance of a subclass that compares alike; else `x` itself."""
    base = _base(type(x))
    return x if base is None else _PLAIN[base](x) if base in _PLAIN else build(*_parts(x, base))


def builtin_base(kind: type) -> type:
    """Return the nearest builtin type that `kind` is or derives from."""
    return next(base for base in _mro(kind) if _type_name(base) is not None)  # at the latest, object


def _parts(x: Any, base: type) -> tuple[str, list[Any]]:
    name = standard_name(base) or ""
    return name, STANDARD[name][0](x)


def _mro(kind: type) -> tuple[type, ...]:
    return type.__dict__["__mro__"].__get__(kind)


def _base(kind: type) -> type | None:
    """Return the builtin or standard type whose equality `kind` inherits, or None."""
    for base in _mro(kind)[1:]:
        if base in _PLAIN or standard_name(base) is not None:
            return base if kind.__eq__ is base.__eq__ and kind.__ne__ is base.__ne__ else None
    return None


def _overrides(kind: type, base: type) -> bool:
    """Return whether a class between `kind` and `base` overrides behaviour of `base`."""
    mro = _mro(kind)
    own = {name for ancestor in mro[: mro.index(base)] if ancestor.__module__ != "enum" for name in ancestor.__dict__}
    return any(name not in _ITS_OWN and hasattr(base, name) for name in own)


def _opaque(form: Any) -> bool:
    """Return whether a hashable value's form contains an object, which would make sets of it incomparable."""
    return type(form) is list and (form[0] == "o" or (form[0] in ("t", "z", "k") and any(map(_opaque, form[1:]))))


def _type_name(kind: type) -> str | None:
    if type(kind) is type and kind in _NAMES:
        return _NAMES[kind]
    if issubclass(kind, BaseException) and getattr(builtins, kind.__name__, None) is kind:
        return kind.__name__
    return standard_name(kind)


def decode(
    form: Any, opaque: Callable[[int, str], Any], stand_in: Callable[[Any, int, str], Any] = lambda value, *_: value
) -> Any:
    """Decode tagged JSON from an untrusted source. NotPlain for everything that `encode` never writes."""
    try:
        return _Decoder(opaque, stand_in).value(form, 0)
    except NotPlain:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:  # digits that are none, an unhashable key
        raise NotPlain(str(error)) from None


class _Decoder:
    def __init__(self, opaque: Callable[[int, str], Any], stand_in: Callable[[Any, int, str], Any]) -> None:
        self.opaque, self.stand_in = opaque, stand_in
        self.left = MAX_NODES

    def value(self, x: Any, depth: int) -> Any:
        """Return the value of a form at this depth. NotPlain for what is no form."""
        self.left -= 1
        if depth > MAX_DEPTH + 1 or self.left < 0:
            raise NotPlain("a value with too many levels or parts")
        if x is None or isinstance(x, (bool, str)):
            return x
        if isinstance(x, int):
            if not -EXACT < x < EXACT:
                raise NotPlain("a large int is written in hexadecimal")
            return x
        match x:
            case ["i" | "f" | "c" | "b" | "B", *_]:
                return _of_digits(x)
            case ["l" | "t" | "q" as tag, *items]:
                return _KINDS[tag]([self.value(item, depth + 1) for item in items])
            case ["s" | "z" as tag, *items]:
                return _KINDS[tag](hashable([self.value(item, depth + 1) for item in _closed(items)]))
            case ["d", *items]:
                pairs = list(_pairs(items))
                keys = hashable([self.value(key, depth + 1) for key in _closed([key for key, _ in pairs])])
                return dict(zip(keys, [self.value(item, depth + 1) for _, item in pairs], strict=True))
            case ["T", str(name)]:
                return type_named(name)
            case ["v", str(name), *parts] if name in STANDARD:
                return build(
                    name, [self.value(part, depth + 1) for part in (_closed(parts) if "keys" in name else parts)]
                )
            case ["k" | "o", *_]:
                return self.remote_object(x, depth)
        raise NotPlain("not a value")

    def remote_object(self, x: Any, depth: int) -> Any:
        """Decode an object that the other side keeps, or a value that stands for one."""
        match x:
            case ["k", value, int(number), str(name)] if type(number) is int and number >= 0:
                below = self.value(value, depth + 1)
                if type(below) not in CONSTANT:
                    raise NotPlain("no value that a class could add to")
                return self.stand_in(below, number, name)
            case ["o", int(number), str(name)] if type(number) is int and number >= 0:
                return self.opaque(number, name)
        raise NotPlain("not a value")


def _of_digits(x: Any) -> Any:
    """Return the number or bytes of a form with digits. NotPlain for what is none."""
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
    raise NotPlain("not a value")


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        match item:
            case [key, value]:
                yield key, value
            case _:
                raise NotPlain("a dict's item is a pair")


def _closed(forms: list[Any]) -> list[Any]:
    """Return `forms` of members, unless one contains an object, whose equality must not be asked."""
    if any(map(_opaque, forms)):
        raise NotPlain("an object among the members of a set")
    return forms
