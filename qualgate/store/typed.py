"""Read stored JSON back into frozen records, checking every value against its field's type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from math import isfinite
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from qualgate.errors import IntegrityError

T = TypeVar("T")
Reader = Callable[[Any], Any]
LARGEST = 2**63  # bound on integers; qualgate writes none beyond it


def read(kind: type[T], text: str) -> T:
    """Return the record or plain values in `text`; missing fields get their defaults.

    Raises IntegrityError for invalid JSON, another shape, an unknown field, or an impossible value.
    """
    try:
        return cast(T, _reader(kind)(json.loads(text)))
    except (ValueError, TypeError, RecursionError) as error:
        name = getattr(kind, "__name__", "value")
        raise IntegrityError(
            f"a stored {name} is not what was recorded ({error!s:.200}). Restore the store from a backup."
        ) from None


@lru_cache(maxsize=512)
def _reader(kind: Any) -> Reader:
    """Return the converter from plain values to this type; cached, since a page shows hundreds of records."""
    arguments = get_args(kind)
    match get_origin(kind) or kind:
        case shape if is_dataclass(shape):
            return lambda value: _record(cast(type, shape), value)
        case shape if shape in (Union, UnionType):
            return _one_of(arguments)
        case shape if shape is Literal:
            return _where(lambda value: value in arguments)
        case shape if shape is tuple:
            return lambda value: _tuple(arguments, value)
        case shape if shape in (dict, Mapping):
            return lambda value: {name: _reader(arguments[1])(item) for name, item in _shaped(dict, value).items()}
        case shape if shape is Any:
            return lambda value: value
        case shape if shape is float:
            return _where(lambda value: _is_whole(value) or (type(value) is float and isfinite(value)))
        case shape if shape is int:
            return _where(_is_whole)
        case shape if shape in (str, bool):
            return lambda value: _shaped(shape, value)
    return _where(lambda value: False)


def _where(fits: Callable[[Any], bool]) -> Reader:
    return lambda value: _checked(fits(value), value)


def _shaped(shape: Any, value: Any) -> Any:
    return _checked(type(value) is shape, value)


def _one_of(options: tuple[Any, ...]) -> Reader:
    # Every union in the records is of one type and None.
    [kind] = (option for option in options if option is not type(None))
    return lambda value: _checked(type(None) in options, None) if value is None else _reader(kind)(value)


def _tuple(arguments: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    types = [arguments[0]] * len(_shaped(list, value)) if arguments[-1] is Ellipsis else arguments
    return tuple(_reader(shape)(item) for shape, item in zip(types, value, strict=True))


def _record(kind: type, body: Any) -> Any:
    readers, needed = _fields(kind)
    if wrong := (needed - _shaped(dict, body).keys()) | (body.keys() - readers.keys()):
        raise ValueError(f"{kind.__name__} with missing or unknown keys: {', '.join(sorted(wrong))}")
    return kind(**{name: readers[name](value) for name, value in body.items()})


@lru_cache(maxsize=64)
def _fields(kind: type) -> tuple[dict[str, Reader], frozenset[str]]:
    """Return the reader of each field, and the fields without a default."""
    needed = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}, frozenset(needed)


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < LARGEST


def _checked(fits: bool, value: Any) -> Any:
    if not fits:
        raise ValueError(f"{type(value).__name__} {value!r:.60} where another kind of value was recorded")
    return value
