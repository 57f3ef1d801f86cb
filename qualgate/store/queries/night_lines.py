"""Nights of all nightly files and undelivered digests, for the dashboard."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import select

from qualgate.store.database import Store
from qualgate.store.nights import Night, night_of
from qualgate.store.sealed import rows_of
from qualgate.store.tables import digests, sealed

READ = 5_000  # the newest nights that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class NightLine:
    """One gate file and model: its newest night, and the exit codes of its nights."""

    newest: Night
    exits: tuple[int, ...]  # the newest last
    shown_run: str | None  # the newest run of its nights


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDigest:
    """A digest that is not delivered yet. target: holds no secret."""

    nightly: str
    target: str
    created_at: str
    attempts: int
    error: str  # of the last attempt; "" before the first


def night_lines(store: Store, most: int = 30) -> tuple[NightLine, ...]:
    """Return a line for each nightly file, gate and model. most: nights of each."""
    with store.read() as connection:
        newest = rows_of("night").order_by(None).order_by(sealed.c.sealed_id.desc())
        nights = [night_of(row) for row in connection.execute(newest.limit(READ))]
    by_item: dict[tuple[str, str, str], list[Night]] = defaultdict(list)
    for night in nights:
        by_item[night.nightly, night.gate, night.model].append(night)
    return tuple(
        NightLine(
            newest=history[0],
            exits=tuple(night.exit for night in reversed(history[:most])),
            shown_run=next((night.run_id for night in history if night.run_id is not None), None),
        )
        for _, history in sorted(by_item.items())
    )


def waiting_digests(store: Store) -> tuple[WaitingDigest, ...]:
    """Return undelivered digests, the oldest first."""
    names = ("nightly", "target", "created_at", "attempts", "error")
    waiting = select(*(digests.c[name] for name in names)).where(digests.c.delivered_at.is_(None))
    with store.read() as connection:
        rows = connection.execute(waiting.order_by(digests.c.digest_id)).all()
    return tuple(WaitingDigest(**row._asdict()) for row in rows)
