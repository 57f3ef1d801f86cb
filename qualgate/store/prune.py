"""Delete the answers and scores of old runs from a store. Verdicts, decisions and seals stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, func, literal_column, select, update

from qualgate.errors import IntegrityError, UsageError
from qualgate.store import columns, prunings, seals
from qualgate.store.database import Store
from qualgate.store.evidence import no_such_run
from qualgate.store.evidence_seal import seal_before
from qualgate.store.queries import retention
from qualgate.store.tables import runs, scores, units

NUMBER = 8  # bytes that a number counts as
_OF_BYTES = (columns.Text, columns.String, columns.LargeBinary)
_LENGTH = {"sqlite": "length(CAST({} AS BLOB))", "postgresql": "octet_length({})"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Amount of one run's data to delete, or deleted."""

    run_id: str
    answers: int
    scores: int
    nbytes: int  # of texts, token ids, arrays and scores, without the database's own overhead


def to_prune(store: Store, before: str) -> tuple[list[Amount], int]:
    """Return the runs that ended before this time (UTC text) and may go, oldest first, and how many as old as these
    stay, see `retention.in_force`."""
    with store.read() as connection:
        pruned = prunings.whole_prunings(connection)
        stays = retention.in_force(connection, pruned)
        ended = [run_id for run_id in retention.finished_before(connection, before) if run_id not in pruned]
        may_go = [run_id for run_id in ended if run_id not in stays]
        return [amount(connection, run_id) for run_id in may_go], len(ended) - len(may_go)


def prune_run(store: Store, run_id: str) -> Amount:
    """Delete a complete run's answers and scores in one transaction, and return the amount.

    Raises:
        UsageError: The run is under way, a verdict in force or the trend rests on it, or it changed meanwhile.
        IntegrityError: Its evidence is not what was recorded: damage is not pruned away.
        EvidencePruned: It was pruned before.
    """
    with store.read() as connection:
        _check_may_go(connection, run_id, prunings.emptied_runs(connection))
    before = seal_before(store, run_id)
    if faults := seals.broken_in_run(store, run_id):
        raise IntegrityError(f"run {run_id}: {faults[0]}. Nothing of it was pruned; restore the store from a backup.")
    with store.write(run_id) as connection:
        _check_may_go(connection, run_id, prunings.pruned_runs(connection))  # checked before; others wait for this
        if before.now(store, connection) != before.seal:
            raise UsageError(f"run {run_id} was changed by another process meanwhile. Prune again.")
        removed = amount(connection, run_id)
        ids = select(units.c.unit_id).where(units.c.run_id == run_id)
        for table in prunings.DELETED:
            connection.execute(delete(table).where(table.c.unit_id.in_(ids)))
        emptied = update(units).where(units.c.run_id == run_id)
        connection.execute(emptied.values(dict.fromkeys(prunings.EMPTIED)))
        prunings.add(connection, run_id)
    return removed


def amount(connection: Connection, run_id: str) -> Amount:
    """Return the amount of a run's data to delete."""
    answers = select(func.count()).where(units.c.run_id == run_id, units.c.text.is_not(None))
    sizes = [_nbytes(connection, units, prunings.EMPTIED, run_id)]
    sizes += [_nbytes(connection, table, table.c.keys(), run_id) for table in prunings.DELETED]
    counted = prunings.rows_of_run(scores, run_id).with_only_columns(func.count())
    return Amount(
        run_id=run_id,
        answers=connection.execute(answers).scalar_one(),
        scores=connection.execute(counted).scalar_one(),
        nbytes=sum(sizes),
    )


def _check_may_go(connection: Connection, run_id: str, pruned: Collection[str]) -> None:
    """Raise UsageError unless the run is complete, unpruned and not retained. pruned: ids of pruned runs."""
    run = connection.execute(select(runs.c.status).where(runs.c.run_id == run_id)).one_or_none()
    if run is None:
        raise no_such_run(connection, run_id)
    prunings.refuse_pruned(connection, run_id)
    if run.status != "complete":
        raise UsageError(f"run {run_id} is {run.status} and may still be resumed: only complete runs can be pruned.")
    if (reason := retention.in_force(connection, pruned).get(run_id)) is not None:
        raise UsageError(f"run {run_id} is {reason} and cannot be pruned.")


def _nbytes(connection: Connection, table: Table, names: Sequence[str], run_id: str) -> int:
    """Return the bytes of the run's values in these columns; NULL counts 0."""
    length = _LENGTH[connection.dialect.name]
    sizes = []
    for name in names:
        size = length.format(f'"{name}"') if isinstance(table.c[name].type, _OF_BYTES) else str(NUMBER)
        sizes.append(f'CASE WHEN "{name}" IS NULL THEN 0 ELSE {size} END')
    summed = func.coalesce(func.sum(literal_column(" + ".join(sizes))), 0)
    return int(connection.execute(prunings.rows_of_run(table, run_id).with_only_columns(summed)).scalar_one())
