"""Side evidence: rows of one append-only table, each with a kind, a record as JSON, and a seal of the whole row.

A row is written once. It belongs to a run, or to none (a load). The record is the evidence; `name` and `part` repeat
what a query filters by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Select, select

from qualgate.errors import IntegrityError
from qualgate.records.identity import content_hash
from qualgate.store import plain
from qualgate.store.database import Store, if_absent
from qualgate.store.postgresql import lasting
from qualgate.store.tables import sealed
from qualgate.store.typed import read

Kind = Literal[
    "claim", "judgement", "label", "load", "night", "opening", "person", "preference", "pruning", "scoring", "stopping",
    "vouched",
]  # fmt: skip
Record = TypeVar("Record")
JUDGED_BY: tuple[Kind, ...] = ("scoring", "stopping")  # part of the evidence as the run left it
ONCE = ("judgement", "opening", "pruning", "scoring", "stopping")  # kinds with one row of a run, a name and a part
COVERED = ("kind", "run_id", "name", "part", "at", "body_json", "key")  # by the seal


def sealed_row(
    kind: Kind,
    record: Any,
    *,
    run_id: str | None = None,
    name: str = "",
    part: str = "",
    at: str = "",
) -> dict[str, Any]:
    """Return the row of a record.

    Args:
        kind: Its kind.
        record: A frozen record or plain values.
        run_id: The run that it belongs to; None: to none.
        name: What it is of, for filters.
        part: Which of that name.
        at: Its time, UTC text; "": now.
    """
    row = {
        "kind": kind,
        "run_id": run_id,
        "name": name,
        "part": part,
        "at": at or plain.now(),
        "body_json": plain.to_json(record),
    }
    row["key"] = content_hash([kind, run_id, name, part] if kind in ONCE else row)  # no two rows have the same
    return row | {"sha256": content_hash(row)}


@lasting
def store_rows(store: Store, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows in one transaction. An existing row of the same key stays as it is."""
    with store.write() as connection:
        insert_rows(connection, rows)


def insert_rows(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows in the caller's transaction, as `store_rows` does."""
    connection.execute(if_absent(connection, sealed), rows)


def rows_of(kind: Kind, **columns: Any) -> Select[Any]:
    """Return the query of a kind's rows with these values, in the order in which they were written."""
    matches = (sealed.c[name] == value for name, value in columns.items())
    return select(sealed).where(sealed.c.kind == kind, *matches).order_by(sealed.c.sealed_id)


def chain_heads(connection: Connection, kinds: Sequence[Kind]) -> list[str]:
    """Return the hashes over the first 0, 1, 2, … rows of these kinds, in the order in which they were written."""
    heads: list[str] = ["0" * 64]
    chosen = select(sealed.c.sha256).where(sealed.c.kind.in_(kinds)).order_by(sealed.c.sealed_id)
    for sha256 in connection.scalars(chosen):
        heads.append(content_hash([heads[-1], sha256]))
    return heads


def is_intact(row: Any) -> bool:
    """Whether the row is what was written, under its own key. row: all columns."""
    is_own = row.kind not in ONCE or row.key == content_hash([row.kind, row.run_id, row.name, row.part])
    return is_own and row.sha256 == content_hash({name: getattr(row, name) for name in COVERED})


def check_sealed(row: Any) -> None:
    """Raise IntegrityError for a changed row. row: all columns."""
    if not is_intact(row):
        raise IntegrityError(
            f"{row.kind} {row.part or row.name:.64} is not what was recorded. Restore the store from a backup."
        )


def record_of(kind: type[Record], row: Any) -> Record:
    """Return the row's record. Raises IntegrityError for a changed row."""
    check_sealed(row)
    return read(kind, row.body_json)
