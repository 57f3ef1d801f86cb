"""The verdict on a variant in the last run of the same gate file. Reads no answer, however large the store is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from qualgate.records import Verdict
from qualgate.store.database import Store
from qualgate.store.queries.newest import CURRENT_VERDICT
from qualgate.store.queries.superseded import nights_until
from qualgate.store.rows import check_verdict
from qualgate.store.tables import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictBefore:
    """The newest verdict on a variant in an earlier run."""

    run_id: str
    created_at: str  # of the run
    verdict: Verdict


def run_before(store: Store, run_id: str) -> str | None:
    """Return the last complete run of the same gate file before this one; None if there is none."""
    with store.read() as connection:
        return next(iter(nights_until(connection, run_id)[-2:-1]), None)


def verdict_before(store: Store, run_id: str, variant: str) -> VerdictBefore | None:
    """Return the verdict in the last complete run of the same gate file before this one; None if there is none.
    Raises IntegrityError for a changed verdict."""
    with store.read() as connection:
        earlier = nights_until(connection, run_id)[:-1]
        statement = (
            select(CURRENT_VERDICT, runs.c.created_at.label("began"))
            .join(runs, runs.c.run_id == CURRENT_VERDICT.c.run_id)
            .where(CURRENT_VERDICT.c.run_id.in_(earlier[-1:]), CURRENT_VERDICT.c.variant == variant)
        )
        row = connection.execute(statement).one_or_none()
        if row is None:
            return None
        return VerdictBefore(run_id=row.run_id, created_at=row.began, verdict=check_verdict(row))
