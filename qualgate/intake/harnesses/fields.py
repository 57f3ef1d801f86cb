"""Read fields of untrusted JSON: what is of another kind counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import nan
from typing import Any

from qualgate.errors import UsageError
from qualgate.records.identity import sha256_text


def mapping(value: Any) -> dict[str, Any]:
    """An object, {} for anything else."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """A list, [] for anything else."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """A text, "" for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: Any) -> int | None:
    """A count from 0; None for anything else."""
    return value if type(value) is int and 0 <= value < 2**31 else None


def number(value: Any) -> float | None:
    """A number, true and false as 1 and 0; None for anything else, and NaN beyond a double."""
    try:
        return float(value) if isinstance(value, bool | int | float) else None
    except OverflowError:
        return nan


def read_score(where: str, name: str, value: Any, words: Mapping[str, float | None]) -> float | None:
    """A score: a number, a text of one, or a word for one. UsageError names what is neither."""
    if isinstance(value, list | dict):
        raise UsageError(f"{where}: the score {name!r:.60} is no number")
    if not isinstance(value, str):
        return number(value)
    word = value.strip()
    if (key := word if word in words else word.lower()) in words:
        return words[key]
    try:
        return float(word)
    except ValueError:
        raise UsageError(
            f"{where}: the score {name!r:.60} is {value!r:.40}, which is neither a number nor a word for one"
        ) from None


def digest(value: Any) -> str:
    """12 hex digits for any value, a NaN or a date of a YAML file included."""
    try:
        return sha256_text(json.dumps(value, sort_keys=True, default=str))[:12]
    except (TypeError, ValueError, RecursionError):  # keys of several kinds
        return sha256_text(repr(value))[:12]


def shown(value: Any) -> str:
    """A value for one line of a message; a long one by its hash."""
    line = value if isinstance(value, str) else repr(value)
    return line if len(line) <= 60 and line.isprintable() else digest(value)
