"""Every table of the store, whichever file names it, and which of them are history."""

from __future__ import annotations

from qualgate.store.night_tables import nights
from qualgate.store.queue_tables import nodes, submission_files
from qualgate.store.tables import (
    archives,
    cases,
    decisions,
    draft_steps,
    evalsets,
    judgements,
    loads,
    metadata,
    scores,
    scorings,
    stoppings,
    verdicts,
)

__all__ = ["APPEND_ONLY", "LET_GO", "WRITTEN_ONCE", "metadata"]

# What a row says is never changed once it is there; the database refuses it (migrations 0001 to 0022).
APPEND_ONLY = frozenset(
    table.name for table in (archives, decisions, judgements, loads, nights, scorings, stoppings, verdicts)
)
# Written once, though no trigger says so: they are sealed with their run. Only the owner takes them out, see `archive`.
WRITTEN_ONCE = frozenset(table.name for table in (cases, draft_steps, evalsets, scores))
# No evidence: nodes that are gone, and what a submission carried until it ended.
LET_GO = frozenset(table.name for table in (nodes, submission_files))
