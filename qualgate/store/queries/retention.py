"""Whose evidence may go: runs not among the last of their gate file, and on which no verdict in force rests."""

from __future__ import annotations

from sqlalchemy import Connection, select

from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT
from qualgate.store.queries.nights import approved
from qualgate.store.queries.superseded import by_gate
from qualgate.store.tables import arms, runs

KEPT = 3  # runs of each gate file


def finished_before(connection: Connection, time: str) -> list[str]:
    """Complete runs, trials too, that ended before this time (UTC text), oldest first."""
    asked = select(runs.c.run_id).where(runs.c.status == "complete", runs.c.finished_at < time)
    return list(connection.scalars(asked.order_by(runs.c.created_at, runs.c.run_id)))


def in_force(connection: Connection, kept: int = KEPT) -> dict[str, str]:
    """Run → why its evidence stays: it is one of the last `kept` of its gate file (one at least), the newest that
    approved a variant or that a person did, or what `qualgate trend` holds later nights against."""
    said = select(CURRENT_VERDICT.c.run_id, CURRENT_VERDICT.c.variant).where(CURRENT_VERDICT.c.word == "approve")
    signed = select(CURRENT_DECISION.c.run_id, CURRENT_DECISION.c.variant).where(CURRENT_DECISION.c.action == "approve")
    yes = {tuple(row) for asked in (said, signed) for row in connection.execute(asked)}
    found: dict[str, str] = {}
    for same in by_gate(connection):
        for arm in connection.scalars(select(arms.c.name).where(arms.c.run_id == same[0])):
            first, by = approved(connection, same[::-1], arm)
            found |= {first: "what later runs of its gate file are held against"} if by else {}
            if (newest := next((one for one in same if (one, arm) in yes), None)) is not None:
                found[newest] = f"the newest that approved {arm!r}"
        found |= dict.fromkeys(same[: max(kept, 1)], f"one of the last {max(kept, 1)} of its gate file")
    return found
