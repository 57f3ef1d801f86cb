"""Nights of all nightly files side by side, and digests that nobody has yet: for the dashboard."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import select

from qualgate.store.database import Store
from qualgate.store.night_tables import digests, nights
from qualgate.store.nights import Night

READ = 5_000  # nights, the newest of all


@dataclass(frozen=True, slots=True, kw_only=True)
class NightLine:
    """One gate file and model: its newest night, and how the nights before ended."""

    newest: Night
    exits: tuple[int, ...]  # the newest last
    shown_run: str | None  # the newest night's that came to a run


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDigest:
    """Not delivered yet. `target` holds no secret."""

    nightly: str
    target: str
    created_at: str
    attempts: int
    error: str  # of the last attempt; "" before the first


def night_lines(store: Store, most: int = 30) -> tuple[NightLine, ...]:
    """By nightly file, gate and model. most: nights of each."""
    with store.read() as connection:
        rows = connection.execute(select(nights).order_by(nights.c.night_id.desc()).limit(READ)).all()
    of: dict[tuple[str, str, str], list[Night]] = defaultdict(list)
    for row in rows:
        night = Night(**{name: getattr(row, name) for name in Night.__dataclass_fields__})
        of[night.nightly, night.gate, night.model].append(night)
    return tuple(
        NightLine(
            newest=found[0],
            exits=tuple(night.exit for night in reversed(found[:most])),
            shown_run=next((night.run_id for night in found if night.run_id is not None), None),
        )
        for _, found in sorted(of.items())
    )


def waiting_digests(store: Store) -> tuple[WaitingDigest, ...]:
    """The oldest first."""
    names = ("nightly", "target", "created_at", "attempts", "error")
    waiting = select(*(digests.c[name] for name in names)).where(digests.c.delivered_at.is_(None))
    with store.read() as connection:
        rows = connection.execute(waiting.order_by(digests.c.digest_id)).all()
    return tuple(WaitingDigest(**row._asdict()) for row in rows)
