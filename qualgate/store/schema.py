"""Every table of the store, whichever file names it, and which of them are history."""

from __future__ import annotations

from qualgate.store.night_tables import nights
from qualgate.store.tables import (
    cases,
    decisions,
    draft_steps,
    evalsets,
    judgements,
    loads,
    metadata,
    prunings,
    scores,
    scorings,
    stoppings,
    verdicts,
)

__all__ = ["APPEND_ONLY", "WRITTEN_ONCE", "metadata"]

# What a row says is never changed once it is there; the database refuses it (the triggers of migrations/).
APPEND_ONLY = frozenset(
    table.name for table in (decisions, judgements, loads, nights, prunings, scorings, stoppings, verdicts)
)
# Written once, though no trigger says so: they are sealed with their run. Only the owner takes them out, see `prune`.
WRITTEN_ONCE = frozenset(table.name for table in (cases, draft_steps, evalsets, scores))
