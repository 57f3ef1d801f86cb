"""Column types that check each value they read.

SQLite allows any type in any column, so a damaged file could return anything: a value of another type raises
`WrongKind`. PostgreSQL text cannot hold U+0000, which models do write: it is stored as two other characters, so both
databases return the same text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import sqlalchemy
from sqlalchemy import Dialect, MetaData


class WrongKind(Exception):
    """A value that is not of its column's type: the file is damaged. `Store` reports where."""


class _Exact:
    """Mixin for column types: values read are of type `kind`, or NULL if the column allows it."""

    kind: type
    required = False  # by `require`

    def adapt(self, cls: Any, **options: Any) -> Any:
        """Return SQLAlchemy's copy for a dialect, with this check mixed into a dialect's own class."""
        copied = super().adapt(_checked_type(type(self), cls), **options)  # type: ignore[misc]
        copied.required = self.required
        return copied

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return the check of one value; it runs for every value of every row."""
        kind, required = self.kind, self.required

        def exact(value: Any) -> Any:
            if type(value) is kind or (value is None and not required):
                return value
            raise WrongKind(f"{type(value).__name__} for {kind.__name__}")

        return exact


@cache
def _checked_type(check: type, base: type) -> type:
    """Return a column type that checks values as `check` does. base: a dialect's column type, returned as it is if
    it already checks."""
    return base if issubclass(base, _Exact) else type(f"Exact{base.__name__}", (check, base), {})


class _Characters(_Exact):
    """Text of any characters except lone surrogates."""

    kind = str

    def bind_processor(self, dialect: Dialect) -> Any:
        """Return the conversion for the database."""
        return without_nul if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return the conversion back."""
        exact = super().result_processor(dialect, coltype)
        return (lambda value: with_nul(exact(value))) if dialect.name == "postgresql" else exact


def without_nul(text: str | None) -> str | None:
    """Encode U+0000 as U+0001 U+0001, and U+0001 as U+0001 U+0002, which keeps the sort order."""
    if text is None or ("\0" not in text and "\1" not in text):
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def with_nul(text: str | None) -> str | None:
    """Decode the text of `without_nul`."""
    if text is None or "\1" not in text:
        return text
    return text.replace("\1\1", "\0").replace("\1\2", "\1")


class Text(_Characters, sqlalchemy.Text):
    """Text of any length."""


class String(_Characters, sqlalchemy.String):
    """Text whose length is not enforced: SQLite does not, and both databases must hold the same values."""


class Integer(_Exact, sqlalchemy.Integer):
    """Integers of 64 bits."""

    kind = int


class Float(_Exact, sqlalchemy.Float):
    """Floats of 64 bits."""

    kind = float


class LargeBinary(_Exact, sqlalchemy.LargeBinary):
    """Bytes."""

    kind = bytes


class Floats(LargeBinary):
    """An array of float64, little-endian. If every number is a float32, such as an engine's log-probs, it is stored in
    half the space, see `narrow`. Readers get float64, so seals do not depend on this."""

    def bind_processor(self, dialect: Dialect) -> Any:
        """Return the conversion for the database."""
        bound = super().bind_processor(dialect)
        return (lambda blob: bound(narrow(blob))) if bound else narrow

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return the conversion back."""
        exact = super().result_processor(dialect, coltype)
        return lambda value: wide(exact(value))


_NARROW = b"f"  # marks float32s: with this byte the length is no multiple of 8


def narrow(blob: bytes | None) -> bytes | None:
    """Convert float64s to float32s if that loses no bit; return anything else unchanged."""
    if not blob or len(blob) % 8:
        return blob
    count = len(blob) // 8
    if blob[::8].count(0) != count:  # a float32 leaves the lowest 29 bits of a float64 at 0: most others end here
        return blob
    try:
        numbers = struct.pack(f"<{count}f", *struct.unpack(f"<{count}d", blob)) + _NARROW
    except OverflowError:
        return blob
    return numbers if wide(numbers) == blob else blob


def wide(blob: bytes | None) -> bytes | None:
    """Convert the bytes of `narrow` back. Other bytes stay, for `seal` to refuse."""
    if blob is None or len(blob) % 4 != 1 or blob[-1:] != _NARROW:
        return blob
    count = len(blob) // 4
    return struct.pack(f"<{count}d", *struct.unpack(f"<{count}f", blob[:-1]))


class Boolean(sqlalchemy.Boolean):
    """Booleans: 0 and 1 in SQLite, a native type in PostgreSQL."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return the conversion to bool; None for PostgreSQL."""
        if dialect.name == "postgresql":
            return None

        def exact(value: Any) -> bool | None:
            if value is None or (type(value) is int and value in (0, 1)):
                return None if value is None else value == 1
            raise WrongKind(f"{type(value).__name__} for bool")

        return exact


def require(metadata: MetaData) -> None:
    """Make NOT NULL columns refuse NULL when read. Queries with outer joins or maxima need a default value."""
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, _Exact):
                column.type.required = not column.nullable


SQL_KINDS: dict[type, str] = {
    Text: "text", String: "text", Integer: "integer", Float: "real", LargeBinary: "blob", Floats: "blob",
    Boolean: "integer",
}  # fmt: skip


def wrong_value(metadata: MetaData, read: Callable[[str], Iterable[tuple[Any, ...]]]) -> str:
    """Describe the first value of a wrong type, with its table, column and row; "" if there is none.

    read: executes a SELECT and returns its rows, text as bytes.
    """
    for table in metadata.sorted_tables:
        key = [column.name for column in table.primary_key]
        for column in table.columns:
            expected = SQL_KINDS[type(column.type)]
            or_null = "" if column.nullable else f" OR {column.name} IS NULL"
            key_columns = ", ".join(f"quote({name})" for name in key)
            wrong = f"(typeof({column.name}) NOT IN ('{expected}', 'null'){or_null})"
            if expected == "text":  # SQL cannot tell whether bytes are UTF-8; Python can
                rows = read(f"SELECT {key_columns}, typeof({column.name}), {wrong}, {column.name} FROM {table.name}")
                bad_row = next((row for row in rows if row[-2] or not _is_text(row[-1])), None)
            else:
                rows = read(f"SELECT {key_columns}, typeof({column.name}) FROM {table.name} WHERE {wrong}")
                bad_row = next(iter(rows), None)
            if bad_row is not None:
                row = ", ".join(f"{name} {_plain(value)}" for name, value in zip(key, bad_row, strict=False))
                kind = _plain(bad_row[len(key)])
                fault = "is missing" if kind == "null" else "is no UTF-8" if kind == expected else f"is {kind}"
                return f"{table.name}.{column.name} of the row with {row} {fault}, where {expected} was recorded"
    return ""


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or isinstance(value.decode("utf-8"), str)
    except UnicodeDecodeError:
        return False


def _plain(value: Any) -> str:
    return f"{value.decode('utf-8', 'backslashreplace') if isinstance(value, bytes) else value!s:.80}"
