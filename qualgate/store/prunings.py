"""Pruned runs, whose answers and scores were deleted: the time, and the seal of the remaining rows.

A pruning's row is written in the transaction that deletes the answers. It seals every remaining row of the run. So a
run counts as pruned only if the row is intact, no answer is back, and nothing else was changed. Answers that are
missing without such a row are damage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, insert, or_, select

from qualgate.errors import InfrastructureError, IntegrityError
from qualgate.identity import content_hash
from qualgate.store import plain, seal
from qualgate.store.tables import arms, draft_steps, evalsets, prunings, runs, scores, scorings, stoppings, units

# Columns of an answer that pruning empties, and tables whose rows of the run it deletes.
EMPTIED = ("text", "token_ids", "logprobs", "margins", "kl", "kl_upper", "calls")
DELETED = (scores, draft_steps)
STAYS = (runs, evalsets, arms, units, scorings, stoppings)  # sealed by the pruning; the rest has seals of its own
_ANSWERED = or_(*(units.c[name].is_not(None) for name in EMPTIED))
SEALED = ("run_id", "created_at", "rest_sha256")


class EvidencePruned(InfrastructureError):
    """A run's answers and scores were pruned: nothing can be decided by it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The record of one pruned run."""

    run_id: str
    created_at: str  # UTC text

    def __str__(self) -> str:
        return f"pruned on {self.created_at[:10]}"


def pruned(connection: Connection, run_id: str) -> Pruning | None:
    """Return the run's pruning; None if it was never pruned. Raises IntegrityError if the remaining rows changed."""
    row = connection.execute(select(prunings).where(prunings.c.run_id == run_id)).one_or_none()
    if row is None:
        return None
    intact = row.sha256 == _digest(row._mapping) and row.rest_sha256 == _rest_digest(connection, run_id)
    if not intact or _holds_answers(connection, run_id):
        raise _not_what_it_left(run_id)
    return Pruning(run_id=run_id, created_at=row.created_at)


def refuse_pruned(connection: Connection, run_id: str) -> None:
    """Raise EvidencePruned for a run that was pruned."""
    if (pruning := pruned(connection, run_id)) is not None:
        raise EvidencePruned(
            f"run {run_id} was {pruning}: its answers and scores are gone, so it is invalid and decides nothing. Run "
            "its gate file again, or read a copy that `qualgate db copy` made before."
        )


def pruned_runs(connection: Connection, run_ids: Collection[str] | None = None) -> dict[str, Pruning]:
    """Return every pruned run, or those of `run_ids`, without checking their remaining rows. Raises IntegrityError for
    a changed pruning."""
    chosen = select(prunings)
    rows = connection.execute(chosen if run_ids is None else chosen.where(prunings.c.run_id.in_(run_ids))).all()
    for row in rows:
        if row.sha256 != _digest(row._mapping):
            raise IntegrityError(f"when run {row.run_id} was pruned is not what was recorded. Restore the store from a "
                                 "backup.")  # fmt: skip
    return {row.run_id: Pruning(run_id=row.run_id, created_at=row.created_at) for row in rows}


def whole_prunings(connection: Connection, run_ids: Collection[str] | None = None) -> dict[str, Pruning]:
    """Return every pruned run, or those of `run_ids`, after checking the remaining rows of each. Raises
    IntegrityError as `pruned` does."""
    recorded = {run_id: pruned(connection, run_id) for run_id in pruned_runs(connection, run_ids)}
    return {run_id: pruning for run_id, pruning in recorded.items() if pruning is not None}


def emptied_runs(connection: Connection, run_ids: Collection[str] | None = None) -> dict[str, Pruning]:
    """Return every pruned run, or those of `run_ids`; raise IntegrityError if the store holds an answer of one: a
    false record must not hide a run. Unlike `whole_prunings` it does not hash the remaining rows, which takes 20 to
    45 ms for a run of 1,200 answers."""
    recorded = pruned_runs(connection, run_ids)
    back = select(units.c.run_id).where(units.c.run_id.in_(recorded), _ANSWERED).limit(1)
    if recorded and (run_id := connection.scalar(back)) is not None:
        raise _not_what_it_left(run_id)
    return recorded


def add(connection: Connection, run_id: str) -> None:
    """Record that the run was pruned, after its answers and scores were deleted."""
    row = {"run_id": run_id, "created_at": plain.now(), "rest_sha256": _rest_digest(connection, run_id)}
    connection.execute(insert(prunings), {**row, "sha256": _digest(row)})


def rows_of(table: Table, run_id: str) -> Select[Any]:
    """Return the statement that selects a run's rows of a table, by its own column or by its answers'."""
    if "run_id" in table.c:
        return select(table).where(table.c.run_id == run_id)
    return select(table).where(table.c.unit_id.in_(select(units.c.unit_id).where(units.c.run_id == run_id)))


def _not_what_it_left(run_id: str) -> IntegrityError:
    return IntegrityError(
        f"run {run_id} is recorded as pruned, and what is stored of it is not what its pruning left. Restore the "
        "store from a backup; nothing can rest on it as it is."
    )


def _holds_answers(connection: Connection, run_id: str) -> bool:
    """Whether any data that a pruning deletes is in the store."""
    answers = rows_of(units, run_id).where(_ANSWERED)
    remaining = (answers, *(rows_of(table, run_id) for table in DELETED))
    return any(connection.execute(rows.limit(1)).first() is not None for rows in remaining)


def _rest_digest(connection: Connection, run_id: str) -> str:
    """Return the hash of the run's remaining rows, without emptied columns and the cost of a judge's requests."""
    return seal.digest([list(_rows(connection, table, run_id)) for table in STAYS])


def _rows(connection: Connection, table: Table, run_id: str) -> Iterator[list[Any]]:
    sealed = [column for column in table.c if column.name not in (*EMPTIED, runs.c.judging_json.name)]
    for row in connection.execute(rows_of(table, run_id).with_only_columns(*sealed).order_by(*table.primary_key)):
        yield list(row)


def _digest(row: Any) -> str:
    return content_hash({name: row[name] for name in SEALED})
