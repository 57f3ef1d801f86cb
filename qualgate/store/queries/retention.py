"""Runs whose answers `qualgate db prune` must keep."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select

from qualgate.store.prunings import whole_prunings
from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT
from qualgate.store.queries.nights import approved
from qualgate.store.queries.superseded import by_gate
from qualgate.store.tables import arms, runs


def finished_before(connection: Connection, time: str) -> list[str]:
    """Return complete runs, whether they decide or not, that ended before this time (UTC text), oldest first."""
    ended = select(runs.c.run_id).where(runs.c.status == "complete", runs.c.finished_at < time)
    return list(connection.scalars(ended.order_by(runs.c.created_at, runs.c.run_id)))


def in_force(connection: Connection, pruned: Collection[str] | None = None) -> dict[str, str]:
    """Return run → reason to keep it: it is the newest of its gate file, the newest that the gate or a person approved
    for a variant, or a night of the trend since an approved run (see `qualgate.store.queries.nights`).

    Args:
        connection: Of the store.
        pruned: Runs to ignore; None: the pruned runs, each checked.

    Raises:
        IntegrityError: A run is recorded as pruned and is not.
    """
    by_gate_word = select(CURRENT_VERDICT.c.run_id, CURRENT_VERDICT.c.variant).where(
        CURRENT_VERDICT.c.word == "approve"
    )
    by_person = select(CURRENT_DECISION.c.run_id, CURRENT_DECISION.c.variant).where(
        CURRENT_DECISION.c.action == "approve"
    )
    approvals = {tuple(row) for chosen in (by_gate_word, by_person) for row in connection.execute(chosen)}
    away, reasons = whole_prunings(connection) if pruned is None else pruned, dict[str, str]()
    for group in by_gate(connection):
        nights = [run_id for run_id in group if run_id not in away]  # newest first
        if not nights:
            continue
        for arm in connection.scalars(select(arms.c.name).where(arms.c.run_id == nights[0])):
            start, approver = approved(connection, nights[::-1], arm)
            since = nights[: nights.index(start) + 1] if approver else []
            reasons |= dict.fromkeys(since, f"part of the trend of {arm!r} since its approved run")
            newest = next((run_id for run_id in nights if (run_id, arm) in approvals), None)
            reasons |= {newest: f"the newest that approved {arm!r}"} if newest else {}
        reasons[nights[0]] = "the newest of its gate file"
    return reasons
