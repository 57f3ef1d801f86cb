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
from qualgate.store import plain, seal
from qualgate.store.sealed import JUDGED_BY, is_intact, rows_of, sealed_row
from qualgate.store.tables import arms, draft_steps, evalsets, runs, scores, sealed, units
from qualgate.store.typed import read

# Columns of an answer that pruning empties, and tables whose rows of the run it deletes.
EMPTIED = ("text", "token_ids", "logprobs", "margins", "kl", "kl_upper", "calls")
DELETED = (scores, draft_steps)
STAYS = (runs, evalsets, arms, units, sealed)  # sealed by the pruning; the rest has seals of its own
_ANSWERED = or_(*(units.c[name].is_not(None) for name in EMPTIED))


class EvidencePruned(InfrastructureError):
    """A run's answers and scores were pruned: nothing can be decided by it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The record of one pruned run."""

    run_id: str
    created_at: str  # UTC text
    rest_sha256: str  # of every row of the run that stayed

    def __str__(self) -> str:
        return f"pruned on {self.created_at[:10]}"


def pruned(connection: Connection, run_id: str) -> Pruning | None:
    """Return the run's pruning; None if it was never pruned. Raises IntegrityError if the remaining rows changed."""
    pruning = pruned_runs(connection, [run_id]).get(run_id)
    if pruning is None:
        return None
    if pruning.rest_sha256 != _rest_digest(connection, run_id) or _holds_answers(connection, run_id):
        raise _not_what_it_left(run_id)
    return pruning


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
    chosen = rows_of("pruning")
    rows = connection.execute(chosen if run_ids is None else chosen.where(sealed.c.run_id.in_(run_ids))).all()
    for row in rows:
        if not is_intact(row):
            raise IntegrityError(f"the time when run {row.run_id} was pruned is not what was recorded. Restore the "
                                 "store from a backup.")  # fmt: skip
    return {row.run_id: read(Pruning, row.body_json) for row in rows}


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
    pruning = Pruning(run_id=run_id, created_at=plain.now(), rest_sha256=_rest_digest(connection, run_id))
    row = sealed_row("pruning", pruning, run_id=run_id, at=pruning.created_at)
    connection.execute(insert(sealed), row)


def rows_of_run(table: Table, run_id: str) -> Select[Any]:
    """Return the statement that selects a run's rows of a table, by its own column or by its answers'."""
    if "run_id" in table.c:
        return select(table).where(table.c.run_id == run_id)
    return select(table).where(table.c.unit_id.in_(select(units.c.unit_id).where(units.c.run_id == run_id)))


def _not_what_it_left(run_id: str) -> IntegrityError:
    return IntegrityError(
        f"run {run_id} is recorded as pruned, but what is stored of it is not what the pruning left. Restore the store "
        "from a backup; until then, trust nothing in it."
    )


def _holds_answers(connection: Connection, run_id: str) -> bool:
    """Whether any data that a pruning deletes is in the store."""
    answers = rows_of_run(units, run_id).where(_ANSWERED)
    remaining = (answers, *(rows_of_run(table, run_id) for table in DELETED))
    return any(connection.execute(rows.limit(1)).first() is not None for rows in remaining)


def _rest_digest(connection: Connection, run_id: str) -> str:
    """Return the hash of the run's remaining rows, without emptied columns and the cost of a judge's requests."""
    return seal.digest([list(_rows(connection, table, run_id)) for table in STAYS])


def _rows(connection: Connection, table: Table, run_id: str) -> Iterator[list[Any]]:
    columns = [column for column in table.c if column.name not in (*EMPTIED, runs.c.judging_json.name)]
    rows = rows_of_run(table, run_id).with_only_columns(*columns).order_by(*table.primary_key)
    if table is sealed:  # a night may repeat the run later
        rows = rows.where(sealed.c.kind.in_(JUDGED_BY))
    for row in connection.execute(rows):
        yield list(row)
