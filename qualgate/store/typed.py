"""Stored JSON as the frozen records that it was made from, every value of the type that its field declares."""

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
LARGEST = 2**63  # whole numbers beyond it were written by nobody


def read(kind: type[T], text: str) -> T:
    """The record or the tuple of plain values in `text`; fields that it does not name are at their default.

    IntegrityError where it is no such thing: no JSON, another shape, a name or a number that cannot be.
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
    """What makes a value of this kind of plain ones, found once: a page shows hundreds of records of a few kinds."""
    of = get_args(kind)
    match get_origin(kind) or kind:
        case shape if is_dataclass(shape):
            return lambda found: _record(cast(type, shape), found)
        case shape if shape in (Union, UnionType):
            return _one_of(of)
        case shape if shape is Literal:
            return _where(lambda found: found in of)
        case shape if shape is tuple:
            return lambda found: _tuple(of, found)
        case shape if shape in (dict, Mapping):
            return lambda found: {name: _reader(of[1])(item) for name, item in _shaped(dict, found).items()}
        case shape if shape is Any:
            return lambda found: found
        case shape if shape is float:
            return _where(lambda found: _is_whole(found) or (type(found) is float and isfinite(found)))
        case shape if shape is int:
            return _where(_is_whole)
        case shape if shape in (str, bool):
            return lambda found: _shaped(shape, found)
    return _where(lambda found: False)


def _where(fits: Callable[[Any], bool]) -> Reader:
    return lambda found: _checked(fits(found), found)


def _shaped(shape: Any, found: Any) -> Any:
    return _checked(type(found) is shape, found)


def _one_of(kinds: tuple[Any, ...]) -> Reader:
    [kind] = (one for one in kinds if one is not type(None))  # every union of the records is of one kind and None
    return lambda found: _checked(type(None) in kinds, None) if found is None else _reader(kind)(found)


def _tuple(of: tuple[Any, ...], found: Any) -> tuple[Any, ...]:
    each = [of[0]] * len(_shaped(list, found)) if of[-1] is Ellipsis else of
    return tuple(_reader(one)(item) for one, item in zip(each, found, strict=True))


def _record(kind: type, found: Any) -> Any:
    readers, needed = _fields(kind)
    if wrong := (needed - _shaped(dict, found).keys()) | (found.keys() - readers.keys()):
        raise ValueError(f"{kind.__name__} lacks, or does not know, {', '.join(sorted(wrong))}")
    return kind(**{name: readers[name](value) for name, value in found.items()})


@lru_cache(maxsize=64)
def _fields(kind: type) -> tuple[dict[str, Reader], frozenset[str]]:
    """The reader of each field, and which fields have no default."""
    needed = (one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}, frozenset(needed)


def _is_whole(found: Any) -> bool:
    return type(found) is int and abs(found) < LARGEST


def _checked(fits: bool, found: Any) -> Any:
    if not fits:
        raise ValueError(f"{type(found).__name__} {found!r:.60} where another kind of value was recorded")
    return found
