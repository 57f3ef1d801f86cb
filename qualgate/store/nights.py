"""Results of each night, append-only, and digests until they are delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, and_, func, insert, select, update

from qualgate.errors import Exit
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.night_tables import digests, nights
from qualgate.store.postgresql import lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One gate file over one model, or over its own variants, on one night. Times are UTC text."""

    nightly: str  # name of the nightly file; several may share a store
    gate: str  # name of the gate file in it
    model: str  # the folder that took the variants' place; "" where none did
    due_at: str
    began_at: str
    finished_at: str
    run_id: str | None  # None without a run; `said` gives the reason
    repeated: bool  # nothing had changed since that run, whose verdict it repeats
    exit: int
    said: str = ""

    @property
    def name(self) -> str:
        """Name for people: "support", or "support: support-8b-awq"."""
        return f"{self.gate}: {self.model.rstrip('/').rpartition('/')[2]}" if self.model else self.gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A message to one target that is not delivered yet."""

    digest_id: int
    created_at: str
    target: str
    body: dict[str, Any]
    attempts: int
    error: str  # of the last attempt; "" before the first


def add_night(store: Store, night: Night) -> None:
    """Store a night."""
    row = {name: getattr(night, name) for name in Night.__dataclass_fields__}
    _add(store, nights, [row | {"said": plain.storable(night.said)}])


@lasting
def _add(store: Store, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows unless they exist: a repetition after a lost connection has the same times."""
    with store.write() as connection:
        matches = and_(*(table.c[name] == value for name, value in rows[0].items()))
        if connection.execute(select(*table.primary_key).where(matches)).first() is None:
            connection.execute(insert(table), rows)


def last_nights(store: Store, nightly: str, gate: str | None = None, before: str | None = None) -> tuple[Night, ...]:
    """Return the newest night of each gate file and model of a nightly file, in their order. gate: only this gate file;
    before: only nights due before that time."""
    newest = select(func.max(nights.c.night_id)).where(nights.c.nightly == nightly)
    newest = newest.group_by(nights.c.gate, nights.c.model)
    if gate is not None:
        newest = newest.where(nights.c.gate == gate)
    if before is not None:
        newest = newest.where(nights.c.due_at < before)
    rows = select(nights).where(nights.c.night_id.in_(newest)).order_by(nights.c.gate, nights.c.model)
    with store.read() as connection:
        return tuple(_night(row) for row in connection.execute(rows))


def failures(store: Store, night: Night) -> int:
    """Return the number of failed tries (13) for the night's due time, up to this one."""
    of_night = [nights.c[name] == getattr(night, name) for name in ("nightly", "gate", "model", "due_at")]
    failed = nights.c.exit == Exit.INFRASTRUCTURE, nights.c.began_at <= night.began_at
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(nights).where(*of_night, *failed)).scalar_one()


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A night that no digest covers yet, and the exit code of the previous one; None if there is none."""

    night_id: int
    night: Night
    before: int | None


def untold(store: Store, nightly: str) -> tuple[Untold, ...]:
    """Return the nights that no digest covers yet, oldest first. Nights of a killed command are among them."""
    earlier = nights.alias("earlier")
    before = (
        select(func.max(earlier.c.night_id))
        .where(
            earlier.c.nightly == nights.c.nightly,
            earlier.c.gate == nights.c.gate,
            earlier.c.model == nights.c.model,
            earlier.c.night_id < nights.c.night_id,
        )
        .scalar_subquery()
    )
    covered = select(func.coalesce(func.max(digests.c.last_night), 0)).where(digests.c.nightly == nightly)
    rows = select(nights, func.coalesce(before, 0).label("before"))
    rows = rows.where(nights.c.nightly == nightly, nights.c.night_id > covered.scalar_subquery())
    with store.read() as connection:
        untold_rows = connection.execute(rows.order_by(nights.c.night_id)).all()
        ids = [row.before for row in untold_rows]
        codes = {
            row.night_id: row.exit
            for row in connection.execute(select(nights.c.night_id, nights.c.exit).where(nights.c.night_id.in_(ids)))
        }
    return tuple(Untold(night_id=row.night_id, night=_night(row), before=codes.get(row.before)) for row in untold_rows)


def add_digests(store: Store, nightly: str, bodies: Mapping[str, dict[str, Any]], last_night: int) -> None:
    """Store a digest for each target before the first attempt to send any. last_night: the newest night that they
    cover. Without targets an empty digest is stored, so that these nights count as covered."""
    row = {
        "nightly": nightly,
        "created_at": (time := plain.now()),
        "last_night": last_night,
        "attempts": 0,
        "error": "",
    }
    texts = {target: json.dumps(body, ensure_ascii=True, sort_keys=True) for target, body in bodies.items()}
    rows = [row | {"target": target, "body_json": text, "delivered_at": None} for target, text in texts.items()]
    _add(store, digests, rows or [row | {"target": "", "body_json": "{}", "delivered_at": time}])


def undelivered(store: Store, nightly: str) -> tuple[Digest, ...]:
    """Return the undelivered digests of one nightly file, oldest first."""
    waiting = select(digests).where(digests.c.nightly == nightly, digests.c.delivered_at.is_(None))
    waiting = waiting.order_by(digests.c.digest_id)
    with store.read() as connection:
        return tuple(
            Digest(
                digest_id=row.digest_id,
                created_at=row.created_at,
                target=row.target,
                body=json.loads(row.body_json),
                attempts=row.attempts,
                error=row.error,
            )
            for row in connection.execute(waiting)
        )


@lasting
def note_attempt(store: Store, sent: Digest, error: str) -> None:
    """Store the result of an attempt; error "" is a delivery. sent: the digest before the attempt."""
    values = {"attempts": sent.attempts + 1, "error": plain.storable(error)}
    if not error:
        values["delivered_at"] = plain.now()
    with store.write() as connection:
        connection.execute(update(digests).where(digests.c.digest_id == sent.digest_id).values(values))


def _night(row: Any) -> Night:
    return Night(**{name: getattr(row, name) for name in Night.__dataclass_fields__})
