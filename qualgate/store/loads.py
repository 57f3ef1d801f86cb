"""Loads that rules judged, append-only, each sealed: how servers bear many users says nothing of what they answer, so a
load is no run, and its word no verdict on one."""

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
    """One `qualgate load`. gate_file: its text. policy_sha256: of what its words depend on beside the servers and
    their cases. exit: the command's. body: as load.json has it."""

    load_id: str
    created_at: str
    gate_name: str
    gate_file: str
    policy_sha256: str
    exit: int
    body: dict[str, Any]


def add(store: Store, gate_name: str, gate_file: str, policy_sha256: str, exit_: int, body: dict[str, Any]) -> str:
    """Write it, once and for good; its id, which no run has."""
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
    """The newest first, from `offset`; of all gate files, or of those of one name. IntegrityError for one that is not
    what was recorded."""
    rows = _of(select(loads), gate_name).order_by(loads.c.created_at.desc(), loads.c.load_id.desc())
    with store.read() as connection:
        return tuple(_load(row) for row in connection.execute(rows.limit(limit).offset(offset)))


def count(store: Store, gate_name: str | None = None) -> int:
    """Of all gate files, or of those of one name."""
    with store.read() as connection:
        return connection.execute(_of(select(func.count()).select_from(loads), gate_name)).scalar_one()


def one_load(store: Store, load_id: str) -> StoredLoad:
    """UsageError for one that is not there, IntegrityError for one that is not what was recorded."""
    with store.read() as connection:
        row = connection.execute(select(loads).where(loads.c.load_id == load_id)).one_or_none()
    if row is None:
        raise UsageError(f"the store has no load {load_id!r:.80}. `qualgate runs --loads` lists them.")
    return _load(row)


def _of(rows: Select[Any], gate_name: str | None) -> Select[Any]:
    return rows if gate_name is None else rows.where(loads.c.gate_name == gate_name)


def _load(row: Any) -> StoredLoad:
    held = {name: value for name, value in row._mapping.items() if name != "sha256"}
    if row.sha256 != content_hash(held):
        raise IntegrityError(f"load {row.load_id:.64} is not what was recorded. Restore the store from a backup.")
    return StoredLoad(body=json.loads(held.pop("body_json")), **held)
