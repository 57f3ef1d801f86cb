"""Find labels in a user's rows: keys with few different values, such as `kind` or `metadata.lang`, become tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_VALUES, LONGEST = 20, 40  # limits of a label: different values, characters of each


def labels_in(rows: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], dict[str, int]]:
    """(tags of each row, key → number of its values). rows: the unread keys of each.

    A label has 2 to `MOST_VALUES` different values, and rows share some of them.
    """
    flat = [dict(_flat(row)) for row in rows]
    values: dict[str, list[str]] = {}
    for row in flat:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    labels = {
        key: len(set(of_key))
        for key, of_key in values.items()
        if all(0 < len(value) <= LONGEST for value in of_key)
        and 2 <= len(set(of_key)) <= min(MOST_VALUES, len(of_key) - 1)
    }
    return [[f"{key}:{value}" for key, value in sorted(row.items()) if key in labels] for row in flat], labels


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield a row's keys and values as text, one level of mappings deep: "meta.topic". "" stands for other values.

    before: prefix of the keys.
    """
    for key, value in row.items():
        if isinstance(value, Mapping) and not before:
            yield from _flat(value, f"{key}.")
        elif isinstance(value, str | int | bool):
            yield f"{before}{key}", str(value)
        else:
            yield f"{before}{key}", ""  # nothing that a label could be
