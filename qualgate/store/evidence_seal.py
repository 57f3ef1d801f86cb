"""One digest of a run's stored evidence, from its rows' seals without recomputing them: 0.5 s for 100,000 answers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Select, select

from qualgate.records.identity import content_hash
from qualgate.store.database import Store
from qualgate.store.sealed import JUDGED_BY, rows_of
from qualgate.store.tables import arms, runs, sealed, units


@dataclass(frozen=True, slots=True)
class SealBefore:
    """A run's seal as read before the write lock was taken, so that nobody waits while it is computed."""

    run_id: str
    written: object  # `Store.written` before it was read
    seal: str

    def now(self, store: Store, connection: Connection) -> str:
        """Return the seal in a write transaction: this one if nobody wrote meanwhile, else computed again."""
        return self.seal if store.written == self.written else evidence_seal(connection, self.run_id)


def seal_before(store: Store, run_id: str) -> SealBefore:
    """Return the seal of a run, to be used in a later write transaction."""
    written = store.written
    with store.read() as connection:
        return SealBefore(run_id, written, evidence_seal(connection, run_id))


def evidence_seal(connection: Connection, run_id: str) -> str:
    """Return the sha256 of the seals of the run, its arms, answers, later scorings, early stops and judges'
    replies, and of the times and attempts that no seal covers. People's votes may come at any time: a verdict holds
    their digest.

    It changes with everything that qualgate records, but not with a text or score changed in the database;
    `check_evidence` finds those.
    """
    return content_hash([_rows(connection, statement) for statement in _sealed(run_id)])


def _sealed(run_id: str) -> tuple[Select, ...]:
    """Return the queries whose rows make up the seal, each in a fixed order. The order of the queries is part of the
    seal."""
    return (
        select(runs.c.status, runs.c.sha256, runs.c.created_at, runs.c.finished_at).where(runs.c.run_id == run_id),
        select(arms.c.name, arms.c.sha256).where(arms.c.run_id == run_id).order_by(arms.c.position),
        select(units.c.status, units.c.sha256, units.c.attempts)
        .where(units.c.run_id == run_id)
        .order_by(units.c.unit_id),
        *(
            rows_of(kind, run_id=run_id).with_only_columns(sealed.c.part, sealed.c.sha256)
            for kind in (*JUDGED_BY, "judgement")
        ),
    )


def _rows(connection: Connection, statement: Select) -> list[list[object]]:
    return [list(row) for row in connection.execute(statement)]
