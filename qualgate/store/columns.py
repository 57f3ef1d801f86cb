"""The kinds of values that columns hold. SQLite keeps a value of any kind in any column, and gives it back from a
damaged file: what is read here is of its column's kind, or `WrongKind`. PostgreSQL's text cannot hold U+0000, which
models do say: there it is written as two characters that it can hold, so both databases give back the same text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import sqlalchemy
from sqlalchemy import Dialect, MetaData


class WrongKind(Exception):
    """A value that is not of its column's kind: the file is damaged. `Store` says where."""


class _Exact:
    """Mixed into a type: what is read is of `kind`, or NULL where the column may hold it."""

    kind: type
    required = False  # by `require`

    def adapt(self, cls: Any, **options: Any) -> Any:
        """SQLAlchemy's copy of it for a dialect, exact where the dialect has a class of its own for it."""
        copied = super().adapt(_both(type(self), cls), **options)  # type: ignore[misc]
        copied.required = self.required
        return copied

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Runs for every value of every row: as little as can be."""
        kind, required = self.kind, self.required

        def exact(value: Any) -> Any:
            if type(value) is kind or (value is None and not required):
                return value
            raise WrongKind(f"{type(value).__name__} for {kind.__name__}")

        return exact


@cache
def _both(ours: type, theirs: type) -> type:
    return theirs if issubclass(theirs, _Exact) else type(f"Exact{theirs.__name__}", (ours, theirs), {})


class _Characters(_Exact):
    """Text of any characters but lone surrogates."""

    kind = str

    def bind_processor(self, dialect: Dialect) -> Any:
        """What the database is given."""
        return without_nul if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """The mirror image."""
        exact = super().result_processor(dialect, coltype)
        return (lambda value: with_nul(exact(value))) if dialect.name == "postgresql" else exact


def without_nul(text: str | None) -> str | None:
    """U+0000 as U+0001 U+0001, and U+0001 as U+0001 U+0002: texts sort as they did."""
    if text is None or ("\0" not in text and "\1" not in text):
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def with_nul(text: str | None) -> str | None:
    """The mirror image of `without_nul`."""
    if text is None or "\1" not in text:
        return text
    return text.replace("\1\1", "\0").replace("\1\2", "\1")


class Text(_Characters, sqlalchemy.Text):
    """Of any length."""


class String(_Characters, sqlalchemy.String):
    """Of a length that nobody holds it to: SQLite does not, and what one store holds the other must."""


class Integer(_Exact, sqlalchemy.Integer):
    """To 64 bits."""

    kind = int


class Float(_Exact, sqlalchemy.Float):
    """64 bits."""

    kind = float


class LargeBinary(_Exact, sqlalchemy.LargeBinary):
    """Bytes."""

    kind = bytes


class Floats(LargeBinary):
    """An array of float64, little-endian. One whose every number is a float32, as an engine's log-probs are, takes half
    the room: see `narrow`. Whoever reads it gets float64, so no seal knows of it."""

    def bind_processor(self, dialect: Dialect) -> Any:
        """What the database is given."""
        bound = super().bind_processor(dialect)
        return (lambda blob: bound(narrow(blob))) if bound else narrow

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """The mirror image."""
        exact = super().result_processor(dialect, coltype)
        return lambda value: wide(exact(value))


_NARROW = b"f"  # behind the numbers: no float64s take as many bytes


def narrow(blob: bytes | None) -> bytes | None:
    """float64s as float32s where that loses no bit; anything else as it is, what is narrow already too."""
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
    """The mirror image of `narrow`. What neither it nor `seal` made stays, for `seal` to refuse."""
    if blob is None or len(blob) % 4 != 1 or blob[-1:] != _NARROW:
        return blob
    count = len(blob) // 4
    return struct.pack(f"<{count}d", *struct.unpack(f"<{count}f", blob[:-1]))


class Boolean(sqlalchemy.Boolean):
    """0 and 1 in SQLite, a kind of its own in PostgreSQL."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """The truth of it."""
        if dialect.name == "postgresql":
            return None

        def exact(value: Any) -> bool | None:
            if value is None or (type(value) is int and value in (0, 1)):
                return None if value is None else value == 1
            raise WrongKind(f"{type(value).__name__} for bool")

        return exact


def require(metadata: MetaData) -> None:
    """Columns that are never NULL give none. A query whose join or maximum may find nothing says what stands there."""
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, _Exact):
                column.type.required = not column.nullable


SQL_KINDS = {
    Text: "text", String: "text", Integer: "integer", Float: "real", LargeBinary: "blob", Floats: "blob",
    Boolean: "integer",
}  # fmt: skip


def wrong_value(metadata: MetaData, read: Callable[[str], Iterable[tuple[Any, ...]]]) -> str:
    """For a message: the first value of a wrong kind, with its table, column and row; "" where every one is right.

    read: gives the rows of a SELECT, text as bytes.
    """
    for table in metadata.sorted_tables:
        key = [column.name for column in table.primary_key]
        for column in table.columns:
            expected = SQL_KINDS[type(column.type)]
            missing = "" if column.nullable else f" OR {column.name} IS NULL"
            named = ", ".join(f"quote({name})" for name in key)
            wrong = f"(typeof({column.name}) NOT IN ('{expected}', 'null'){missing})"
            if expected == "text":  # SQL cannot tell whether bytes are UTF-8; Python can
                rows = read(f"SELECT {named}, typeof({column.name}), {wrong}, {column.name} FROM {table.name}")
                found = next((row for row in rows if row[-2] or not _is_text(row[-1])), None)
            else:
                rows = read(f"SELECT {named}, typeof({column.name}) FROM {table.name} WHERE {wrong}")
                found = next(iter(rows), None)
            if found is not None:
                row = ", ".join(f"{name} {_plain(value)}" for name, value in zip(key, found, strict=False))
                kind = _plain(found[len(key)])
                what = "is missing" if kind == "null" else "is no UTF-8" if kind == expected else f"is {kind}"
                return f"{table.name}.{column.name} of the row with {row} {what}, where {expected} was recorded"
    return ""


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or isinstance(value.decode("utf-8"), str)
    except UnicodeDecodeError:
        return False


def _plain(value: Any) -> str:
    return f"{value.decode('utf-8', 'backslashreplace') if isinstance(value, bytes) else value!s:.80}"
