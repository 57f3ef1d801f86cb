"""Labels in a user's rows: keys with few different values, such as `kind` or `metadata.lang`, become tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_VALUES, LONGEST = 20, 40  # different values of a key that is a label, and characters of one


def labels_in(rows: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], dict[str, int]]:
    """The tags of each row, and key → how many values it has. rows: what of each nothing else reads.

    A label has 2 to `MOST_VALUES` different values, of which rows share some.
    """
    flat = [dict(_flat(row)) for row in rows]
    values: dict[str, list[str]] = {}
    for row in flat:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    labels = {
        key: len(set(found))
        for key, found in values.items()
        if all(0 < len(value) <= LONGEST for value in found)
        and 2 <= len(set(found)) <= min(MOST_VALUES, len(found) - 1)
    }
    return [[f"{key}:{value}" for key, value in sorted(row.items()) if key in labels] for row in flat], labels


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and not before:
            yield from _flat(value, f"{key}.")
        elif isinstance(value, str | int | bool):
            yield f"{before}{key}", str(value)
        else:
            yield f"{before}{key}", ""  # nothing that a label could be
