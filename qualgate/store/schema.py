"""All tables of the store, and the append-only ones."""

from __future__ import annotations

from qualgate.store.tables import (
    cases,
    decisions,
    draft_steps,
    evalsets,
    metadata,
    scores,
    sealed,
    verdicts,
)

__all__ = ["APPEND_ONLY", "WRITTEN_ONCE", "metadata"]

# Rows of these tables never change; the triggers of migrations/ refuse it.
APPEND_ONLY = frozenset(table.name for table in (decisions, sealed, verdicts))
# Written once, without a trigger: they are sealed with their run, and only the owner deletes them, see `prune`.
WRITTEN_ONCE = frozenset(table.name for table in (cases, draft_steps, evalsets, scores))
