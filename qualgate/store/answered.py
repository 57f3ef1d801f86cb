"""Rows of a job's answers, built before the write transaction, and their planned units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, update

from qualgate.records import JobResult, Score, UnitKey
from qualgate.store import bulk, draft_steps
from qualgate.store.columns import Floats, narrow
from qualgate.store.rows import KEY, SCORE, AnyRow, score_rows, unit_row
from qualgate.store.tables import draft_steps as draft_table
from qualgate.store.tables import scores, units

FLOATS = [column.name for column in units.c if isinstance(column.type, Floats)]
ANSWERED = "status = 'done', error = '', attempts = attempts + 1"


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows that one answer adds to the store."""

    unit: AnyRow  # the planned unit
    row: dict[str, Any]  # sealed
    changed: tuple[Any, ...]  # the row's values as stored, the unit's id last
    scores: list[tuple[Any, ...]]
    steps: list[tuple[Any, ...]]  # draft steps


def answered_rows(
    run_id: str,
    result: JobResult,
    scored: Mapping[UnitKey, Iterable[Score]],
    planned: Mapping[UnitKey, AnyRow],
    *,
    counted: bool,
) -> list[Answered]:
    """Build the rows of each completion of the job, in order. planned: key → unit; counted: derive draft counts from
    the draft steps. Raises IntegrityError for a score that is no number, and for contradictory steps."""
    drifts = {drift.key: drift for drift in result.drifts}
    steps, answers = draft_steps.steps_by_key(result), []
    for completion in result.completions:
        key, unit = completion.key, planned[completion.key]
        if counted:
            completion = draft_steps.with_counts(completion, steps.get(key, ()))
        score_columns, drafts = score_rows(key, scored.get(key, ())), draft_steps.as_rows(steps.get(key, ()))
        row = unit_row(completion, drifts.get(key), score_columns, run_id, result.index, draft_steps.digest(drafts))
        narrowed = {name: narrow(value) if name in FLOATS else value for name, value in row.items()}
        changed, scores_of_it = (*narrowed.values(), unit.unit_id), [(unit.unit_id, *score) for score in score_columns]
        answers.append(Answered(unit, row, changed, scores_of_it, draft_steps.columns(unit.unit_id, drafts)))
    return answers


def put_answered(connection: Connection, new: Sequence[Answered]) -> None:
    """Write the answers in the caller's transaction."""
    if not new:
        return
    columns = [units.c[name] for name in new[0].row]
    bulk.change(connection, units.c.unit_id, columns, [answer.changed for answer in new], also=ANSWERED)
    bulk.put(connection, scores, (scores.c.unit_id, *SCORE), [score for answer in new for score in answer.scores])
    bulk.put(connection, draft_table, draft_table.c.values(), [step for answer in new for step in answer.steps])


def take_back(connection: Connection, given_units: Iterable[AnyRow]) -> None:
    """Remove the units' answers, scores and draft steps in the caller's transaction."""
    nothing = {column.name: None for column in units.c if column.nullable and column.name != "cluster"}
    for unit in given_units:
        for table in (scores, draft_table):
            connection.execute(delete(table).where(table.c.unit_id == unit.unit_id))
        connection.execute(update(units).where(units.c.unit_id == unit.unit_id).values(nothing))


def planned_units(connection: Connection, run_id: str, arm: str, keys: Iterable[UnitKey]) -> dict[UnitKey, AnyRow]:
    """Return key → (id, case hash, status) for those keys that are planned units of the arm."""
    arm_keys = [key for key in keys if key.arm == arm]
    by_key: dict[UnitKey, AnyRow] = {}
    for start in range(0, len(arm_keys), 200):
        batch = set(arm_keys[start : start + 200])
        # By both names separately: for pairs SQLite would scan all units of the arm.
        rows = connection.execute(
            select(*KEY, units.c.unit_id, units.c.case_hash, units.c.status).where(
                units.c.run_id == run_id,
                units.c.arm == arm,
                units.c.evalset.in_(sorted({key.evalset for key in batch})),
                units.c.case_id.in_(sorted({key.case_id for key in batch})),
            )
        ).all()
        by_key.update((key, row) for row in rows if (key := UnitKey(*row[:4])) in batch)
    return by_key


def answered_units(connection: Connection, planned: Iterable[AnyRow]) -> dict[int, str]:
    """Return unit id → answer digest, for the units that have an answer."""
    ids = [unit.unit_id for unit in planned]
    return dict(
        bulk.pick(connection, units.c.unit_id, (units.c.unit_id, units.c.answer_sha256), ids, "status = 'done'")
    )
