"""Recompute every seal of a store: of runs and their verdicts, of the chain of decisions, of loads and nights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, select

from qualgate.errors import QualgateError
from qualgate.store import judgements, scorings
from qualgate.store.database import Store
from qualgate.store.decisions import check_chain
from qualgate.store.evidence import evidence
from qualgate.store.prunings import EvidencePruned
from qualgate.store.rows import check_arm, check_case, check_run, check_verdict
from qualgate.store.sealed import check_sealed, rows_of
from qualgate.store.tables import arms, cases, runs, sealed, units, verdicts


def broken(store: Store) -> Iterator[str]:
    """Yield a line for each broken seal, in a fixed order; for pruned runs of the remaining seals."""
    with store.read() as connection:
        ids = list(connection.scalars(select(runs.c.run_id).order_by(runs.c.run_id)))
    for run_id in ids:
        for fault in broken_in_run(store, run_id):
            yield f"run {run_id}: {fault}"
    yield from _fault_of(lambda: check_chain(store))
    with store.read() as connection:
        rows = connection.execute(select(sealed).order_by(sealed.c.sealed_id)).all()
    for row in rows:  # also those that name no run, or a kind that is none
        yield from _fault_of(lambda row=row: check_sealed(row))


def broken_in_run(store: Store, run_id: str) -> list[str]:
    """Return a line for each broken seal of one run."""
    return list(_faults_of_run(store, run_id))


def _faults_of_run(store: Store, run_id: str) -> Iterator[str]:
    """Yield each broken seal of a run. Of a pruned run only rows that stay are checked."""
    try:
        yield from evidence(store, run_id).integrity
        with store.read() as connection:
            yield from _faults_of_scorings(connection, run_id)
    except EvidencePruned:
        with store.read() as connection:
            for table, check in ((runs, check_run), (arms, check_arm)):
                yield from _faults_of_rows(connection, table, run_id, check)
            yield from _faults_of_cases(connection, run_id)
    except QualgateError as error:
        yield str(error)
    with store.read() as connection:
        yield from _faults_of_rows(connection, verdicts, run_id, check_verdict)
        replies = connection.execute(rows_of("judgement", run_id=run_id)).all()
    yield from filter(None, map(judgements.fault, replies))


def _faults_of_scorings(connection: Connection, run_id: str) -> Iterator[str]:
    """Yield faults of all scorings but the newest, which is part of the evidence."""
    for number in range(1, scorings.newest_scoring(connection, run_id)):
        fault = scorings.fault(connection, run_id, number, scorings.scores_by_unit(connection, run_id, number))
        yield from filter(None, (fault,))


def _faults_of_cases(connection: Connection, run_id: str) -> Iterator[str]:
    """Yield faults of a run's cases, which its pruning does not seal since runs share cases."""
    hashes = select(units.c.case_hash).where(units.c.run_id == run_id).distinct()
    rows = connection.execute(select(cases).where(cases.c.case_hash.in_(hashes)).order_by(cases.c.case_hash)).all()
    for row in rows:
        yield from _fault_of(lambda row=row: check_case(row))
    if lost := {*connection.scalars(hashes)} - {row.case_hash for row in rows}:
        yield f"case {min(lost)[:12]}, which was asked, is not in the store"


def _faults_of_rows(connection: Connection, table: Any, run_id: str, check: Callable[[Any], object]) -> Iterator[str]:
    for row in connection.execute(select(table).where(table.c.run_id == run_id).order_by(*table.primary_key)):
        yield from _fault_of(lambda row=row: check(row))


def _fault_of(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except QualgateError as error:
        yield str(error)
