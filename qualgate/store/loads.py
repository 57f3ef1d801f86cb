"""Judged loads, append-only and sealed. A load measures servers under many users, not their answers, so it is no run
and its result no verdict."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, func, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.identity import content_hash
from qualgate.store import plain
from qualgate.store.database import Store, if_absent
from qualgate.store.postgresql import lasting
from qualgate.store.tables import loads


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
    row = {
        "load_id": f"load-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        "created_at": plain.now(),
        "gate_name": plain.storable(gate_name),
        "gate_file": plain.storable(gate_file),
        "policy_sha256": policy_sha256,
        "exit": exit_,
        "body_json": plain.to_json(body),
    }
    _add(store, row | {"sha256": content_hash(row)})
    return str(row["load_id"])


@lasting
def _add(store: Store, row: dict[str, Any]) -> None:
    with store.write() as connection:
        connection.execute(if_absent(connection, loads), [row])


def newest(store: Store, limit: int, offset: int = 0, gate_name: str | None = None) -> tuple[StoredLoad, ...]:
    """Return loads from `offset`, the newest first; of all gate files, or of one name. Raises IntegrityError for a
    changed load."""
    rows = _of(select(loads), gate_name).order_by(loads.c.created_at.desc(), loads.c.load_id.desc())
    with store.read() as connection:
        return tuple(_load(row) for row in connection.execute(rows.limit(limit).offset(offset)))


def count(store: Store, gate_name: str | None = None) -> int:
    """Return the number of loads; of all gate files, or of one name."""
    with store.read() as connection:
        return connection.execute(_of(select(func.count()).select_from(loads), gate_name)).scalar_one()


def one_load(store: Store, load_id: str) -> StoredLoad:
    """Return one load. Raises UsageError if it does not exist, IntegrityError if it was changed."""
    with store.read() as connection:
        row = connection.execute(select(loads).where(loads.c.load_id == load_id)).one_or_none()
    if row is None:
        raise UsageError(f"the store has no load {load_id!r:.80}. `qualgate runs --loads` lists them.")
    return _load(row)


def _of(rows: Select[Any], gate_name: str | None) -> Select[Any]:
    return rows if gate_name is None else rows.where(loads.c.gate_name == gate_name)


def _load(row: Any) -> StoredLoad:
    columns = {name: value for name, value in row._mapping.items() if name != "sha256"}
    if row.sha256 != content_hash(columns):
        raise IntegrityError(f"load {row.load_id:.64} is not what was recorded. Restore the store from a backup.")
    return StoredLoad(body=json.loads(columns.pop("body_json")), **columns)
