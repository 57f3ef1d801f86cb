"""A job's answers as rows, made before anybody has to wait for the store, and the units that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from qualgate.records import JobResult, Score, UnitKey
from qualgate.store import bulk, draft_steps
from qualgate.store.rows import KEY, AnyRow, score_rows, unit_row
from qualgate.store.tables import units

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


def planned_units(connection: Connection, run_id: str, arm: str, keys: Iterable[UnitKey]) -> dict[UnitKey, AnyRow]:
    """Of those keys that are the arm's and planned: their ids, their cases' hashes, their status."""
    wanted = [key for key in keys if key.arm == arm]
    found: dict[UnitKey, AnyRow] = {}
    for start in range(0, len(wanted), 200):
        some = set(wanted[start : start + 200])
        # By the two names each, and not by the pair: of pairs SQLite makes a scan over all units of the arm.
        rows = connection.execute(
            select(*KEY, units.c.unit_id, units.c.case_hash, units.c.status).where(
                units.c.run_id == run_id,
                units.c.arm == arm,
                units.c.evalset.in_(sorted({key.evalset for key in some})),
                units.c.case_id.in_(sorted({key.case_id for key in some})),
            )
        ).all()
        found.update((key, row) for row in rows if (key := UnitKey(*row[:4])) in some)
    return found


def answered_units(connection: Connection, planned: Iterable[AnyRow]) -> dict[int, str]:
    """Of those that have an answer by now, its digest by the unit's id."""
    ids = [unit.unit_id for unit in planned]
    return dict(
        bulk.pick(connection, units.c.unit_id, (units.c.unit_id, units.c.answer_sha256), ids, "status = 'done'")
    )
