"""Stored JSON as the frozen records that it was made from, every value of the type that its field declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from math import isfinite
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from qualgate.errors import IntegrityError

T = TypeVar("T")
LARGEST = 2**63  # whole numbers beyond it were written by nobody


def read(kind: type[T], text: str) -> T:
    """The record or the tuple of plain values in `text`; fields that it does not name are at their default.

    IntegrityError where it is no such thing: no JSON, another shape, a name or a number that cannot be.
    """
    try:
        return cast(T, _value(kind, json.loads(text)))
    except (ValueError, TypeError, RecursionError) as error:
        name = getattr(kind, "__name__", "value")
        raise IntegrityError(
            f"a stored {name} is not what was recorded ({error!s:.200}). Restore the store from a backup."
        ) from None


def _value(kind: Any, found: Any) -> Any:
    match get_origin(kind) or kind:
        case shape if is_dataclass(shape):
            return _record(cast(type, shape), found)
        case shape if shape in (Union, UnionType):
            return _one_of(get_args(kind), found)
        case shape if shape is Literal:
            return _checked(found in get_args(kind), found)
        case shape if shape is tuple and isinstance(found, list):
            of = get_args(kind)
            each = [of[0]] * len(found) if of[-1] is Ellipsis else of
            return tuple(_value(one, item) for one, item in zip(each, found, strict=True))
        case shape if shape in (dict, Mapping) and isinstance(found, dict):
            return {name: _value(get_args(kind)[1], item) for name, item in found.items()}
        case shape if shape is Any:
            return found
        case shape if shape is float:
            return _checked(_is_whole(found) or (type(found) is float and isfinite(found)), found)
        case shape if shape is int:
            return _checked(_is_whole(found), found)
        case shape if shape in (str, bool):
            return _checked(type(found) is shape, found)
    return _checked(False, found)


def _one_of(kinds: tuple[Any, ...], found: Any) -> Any:
    if found is None:
        return _checked(type(None) in kinds, None)
    [kind] = (one for one in kinds if one is not type(None))  # every union of the records is of one kind and None
    return _value(kind, found)


def _record(kind: type, found: Any) -> Any:
    _checked(type(found) is dict, found)
    hints = _hints(kind)
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    if wrong := (needed - set(found)) | (set(found) - set(hints)):
        raise ValueError(f"{kind.__name__} lacks, or does not know, {', '.join(sorted(wrong))}")
    return kind(**{name: _value(hints[name], value) for name, value in found.items()})


def _is_whole(found: Any) -> bool:
    return type(found) is int and abs(found) < LARGEST


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(fits: bool, found: Any) -> Any:
    if not fits:
        raise ValueError(f"{type(found).__name__} {found!r:.60} where another kind of value was recorded")
    return found
