"""Judged loads, append-only and sealed. A load measures servers under many users, not their answers, so it is no run
and its result no verdict."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, func, select

from qualgate.errors import UsageError
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.sealed import record_of, rows_of, sealed_row, store_rows
from qualgate.store.tables import sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLoad:
    """One `qualgate load`. gate_file: its text; policy_sha256: of the rules and settings that the result depends on;
    exit: the command's exit code; body: the content of load.json."""

    load_id: str
    created_at: str
    gate_name: str
    gate_file: str
    policy_sha256: str
    exit: int
    body: dict[str, Any]


def add(store: Store, gate_name: str, gate_file: str, policy_sha256: str, exit_: int, body: dict[str, Any]) -> str:
    """Store a load and return its id, which no run has."""
    load = StoredLoad(
        load_id=f"load-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created_at=plain.now(),
        gate_name=plain.storable(gate_name),
        gate_file=plain.storable(gate_file),
        policy_sha256=policy_sha256,
        exit=exit_,
        body=body,
    )
    row = sealed_row("load", load, name=load.gate_name, part=load.load_id, at=load.created_at)
    store_rows(store, [row])
    return load.load_id


def newest(store: Store, limit: int, offset: int = 0, gate_name: str | None = None) -> tuple[StoredLoad, ...]:
    """Return loads from `offset`, the newest first; of all gate files, or of one name. Raises IntegrityError for a
    changed load."""
    rows = _rows(gate_name).order_by(None).order_by(sealed.c.at.desc(), sealed.c.part.desc())
    with store.read() as connection:
        chosen = connection.execute(rows.limit(limit).offset(offset))
        return tuple(record_of(StoredLoad, row) for row in chosen)


def count(store: Store, gate_name: str | None = None) -> int:
    """Return the number of loads; of all gate files, or of one name."""
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(_rows(gate_name).subquery())).scalar_one()


def one_load(store: Store, load_id: str) -> StoredLoad:
    """Return one load. Raises UsageError if it does not exist, IntegrityError if it was changed."""
    with store.read() as connection:
        row = connection.execute(rows_of("load", part=load_id)).one_or_none()
    if row is None:
        raise UsageError(f"the store has no load {load_id!r:.80}. `qualgate runs --loads` lists them.")
    return record_of(StoredLoad, row)


def _rows(gate_name: str | None) -> Select[Any]:
    return rows_of("load", **({} if gate_name is None else {"name": gate_name}))
