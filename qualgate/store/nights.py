"""Results of each night, append-only, and digests until they are delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update

from qualgate.errors import Exit
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.postgresql import lasting
from qualgate.store.sealed import record_of, rows_of, sealed_row, store_rows
from qualgate.store.tables import digests, sealed


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
    night = replace(night, said=plain.storable(night.said))
    part = f"{night.gate}: {night.model}"  # names of gates hold no ": "
    row = sealed_row("night", night, run_id=night.run_id, name=night.nightly, part=part, at=night.due_at)
    store_rows(store, [row])


def gate_of(part: str) -> str:
    """Return the gate in a night's `part`."""
    return part.partition(": ")[0]


def night_of(row: Any) -> Night:
    """Return the night of a row. Raises IntegrityError for a changed one."""
    return record_of(Night, row)


def last_rows(connection: Connection, *where: ColumnElement[bool]) -> Sequence[Any]:
    """Return the row of the newest night of each nightly file, gate file and model, in their order. where: of which
    nights."""
    newest = select(func.max(sealed.c.sealed_id)).where(sealed.c.kind == "night", *where)
    newest = newest.group_by(sealed.c.name, sealed.c.part)
    rows = select(sealed).where(sealed.c.sealed_id.in_(newest))
    return connection.execute(rows.order_by(sealed.c.name, sealed.c.part)).all()


def last_nights(store: Store, nightly: str, gate: str | None = None) -> tuple[Night, ...]:
    """Return the newest night of each gate file and model of a nightly file, in their order. gate: only this gate
    file."""
    with store.read() as connection:
        nights = [night_of(row) for row in last_rows(connection, sealed.c.name == nightly)]
    return tuple(night for night in nights if gate in (None, night.gate))


def failures(store: Store, night: Night) -> int:
    """Return the number of failed tries (13) for the night's due time, up to this one."""
    tries = rows_of("night", name=night.nightly, part=f"{night.gate}: {night.model}", at=night.due_at)
    with store.read() as connection:
        until_then = [other for row in connection.execute(tries) if (other := night_of(row)).began_at <= night.began_at]
    return sum(other.exit == Exit.INFRASTRUCTURE for other in until_then)


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A night that no digest covers yet, and the exit code of the previous one; None if there is none."""

    night_id: int
    night: Night
    before: int | None


def untold(store: Store, nightly: str) -> tuple[Untold, ...]:
    """Return the nights that no digest covers yet, oldest first. Nights of a killed command are among them."""
    covered = select(func.coalesce(func.max(digests.c.last_night), 0)).where(digests.c.nightly == nightly)
    with store.read() as connection:
        last = connection.execute(covered).scalar_one()
        earlier = last_rows(connection, sealed.c.name == nightly, sealed.c.sealed_id <= last)
        later = connection.execute(rows_of("night", name=nightly).where(sealed.c.sealed_id > last)).all()
    exits = {row.part: night_of(row).exit for row in earlier}
    fresh = []
    for row in later:
        night = night_of(row)
        fresh.append(Untold(night_id=row.sealed_id, night=night, before=exits.get(row.part)))
        exits[row.part] = night.exit
    return tuple(fresh)


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
    _add_digests(store, rows or [row | {"target": "", "body_json": "{}", "delivered_at": time}])


@lasting
def _add_digests(store: Store, rows: Sequence[dict[str, Any]]) -> None:
    """Insert digests unless they exist: a repetition after a lost connection has the same times."""
    with store.write() as connection:
        matches = and_(*(digests.c[name] == value for name, value in rows[0].items()))
        if connection.execute(select(digests.c.digest_id).where(matches)).first() is None:
            connection.execute(insert(digests), rows)


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
