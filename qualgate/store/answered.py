"""A job's answers as rows, made before anybody has to wait for the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qualgate.records import JobResult, Score, UnitKey
from qualgate.store import draft_steps
from qualgate.store.rows import score_rows, unit_row

Rows = Sequence[tuple[Any, ...]]


def answered_rows(
    run_id: str, result: JobResult, scored: Mapping[UnitKey, Iterable[Score]], *, counted: bool
) -> list[tuple[dict[str, Any], Rows, Rows]]:
    """Of each completion of the job its unit's sealed row, its scores' and its draft steps'. counted: what drafts came
    to is told by their steps. IntegrityError for a score that is no number and steps that contradict themselves."""
    drifts = {drift.key: drift for drift in result.drifts}
    steps, found = draft_steps.steps_by_key(result), []
    for completion in result.completions:
        key = completion.key
        if counted:
            completion = draft_steps.with_counts(completion, steps.get(key, ()))
        said, drafts = score_rows(key, scored.get(key, ())), draft_steps.as_rows(steps.get(key, ()))
        digest = draft_steps.digest(drafts)
        found.append((unit_row(completion, drifts.get(key), said, run_id, result.index, digest), said, drafts))
    return found
