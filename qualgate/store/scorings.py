"""Later scorings of a run, stored beside its recorded scores, never in their place.

Scoring 0 is the recorded one, sealed with its units. Each later one is whole (every answer of every arm, every metric),
written in one transaction and sealed by itself. The newest counts, so all arms are judged by the same scoring.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import nsmallest
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import Calls, Case, Evalset, Score, UnitKey
from qualgate.store import bulk, plain, prunings, seal
from qualgate.store.database import Store
from qualgate.store.postgresql import lasting
from qualgate.store.rescored_sets import RescoredSet, as_rescored
from qualgate.store.rows import KEY, SCORE, AnyRow, check_case, score_rows
from qualgate.store.sealed import is_intact, rows_of, sealed_row
from qualgate.store.tables import cases, evalsets, runs, scores, sealed, units
from qualgate.store.typed import read as read_typed

ScoresByUnit = Mapping[int, Sequence[Sequence[Any]]]  # unit_id → its scores, as `score_rows` orders them


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """An answer to score again."""

    unit_id: int
    key: UnitKey
    text: str
    finish_reason: str
    calls: Calls | None  # see Completion
    scores: tuple[Score, ...]  # of the newest scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """A run's answers and evalsets, with the newest scoring."""

    number: int
    recorded: tuple[Evalset, ...]  # with their cases, as they were when the run began
    evalsets: tuple[Evalset, ...]  # as the newest scoring read them
    answers: tuple[StoredAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScoring:
    """The record of one later scoring."""

    scorers: Mapping[str, str]  # metric → name and version
    sets: Mapping[str, RescoredSet]  # those that it read differently from the recorded ones
    scores_sha256: str  # of the run's answers, by their seals, and their scores in this scoring


def newest_scoring(connection: Connection, run_id: str) -> int:
    """Return the number of the newest scoring; 0 if the run was never scored again."""
    return connection.execute(select(func.count()).select_from(_scorings(run_id).subquery())).scalar_one()


def stored_scorings(connection: Connection, run_id: str) -> list[tuple[str, StoredScoring]]:
    """Return time and record of each later scoring, the oldest first, without checking seals as `fault` does. Raises
    IntegrityError for a broken text, and for numbers that are not 1, 2, … in the order of writing."""
    rows = connection.execute(_scorings(run_id)).all()
    if [row.part for row in rows] != [str(number) for number in range(1, len(rows) + 1)]:
        raise IntegrityError(f"run {run_id}: its later scorings are not what was recorded. Restore the store.")
    return [(row.at, read_typed(StoredScoring, row.body_json)) for row in rows]


def sets_of_scoring(connection: Connection, run_id: str, number: int) -> Mapping[str, RescoredSet]:
    """Return the sets that this scoring read differently from the recorded ones, as `stored_scorings` does."""
    return stored_scorings(connection, run_id)[number - 1][1].sets if number else {}


def newest_sets(connection: Connection, run_id: str) -> Mapping[str, RescoredSet]:
    """Return the sets that the newest scoring read differently from the recorded ones."""
    return sets_of_scoring(connection, run_id, newest_scoring(connection, run_id))


def read(store: Store, run_id: str) -> Scoring:
    """Return the run's answers and cases. Raises UsageError for an incomplete run: it cannot be scored as a whole."""
    with bulk.uncollected(), store.read() as connection:
        status = connection.execute(select(runs.c.status).where(runs.c.run_id == run_id)).scalar()
        if status != "complete":
            raise UsageError(
                f"run {run_id} is not complete ({status or 'there is no such run'}), and only a complete run can be "
                "scored again. Run its gate file: qualgate run"
            )
        return _scoring(connection, run_id)


def sample(store: Store, run_id: str, most: int) -> Scoring:
    """Return up to `most` answers of each arm and their cases. They are drawn by a hash over the run's id and the seals
    of all its answers and scorings, so whoever changes one of them draws others."""
    with store.read() as connection:
        columns = (units.c.unit_id, units.c.arm, units.c.sha256)
        rows = connection.execute(_sealed_units(run_id).with_only_columns(*columns)).all()
        later = connection.execute(_scorings(run_id)).all()
        seals = [*(row.sha256 for row in rows), *(row.sha256 for row in later)]
        seed = seal.digest((run_id,), "".join(seals).encode())
        by_arm: dict[str, list[int]] = {}
        for row in rows:
            by_arm.setdefault(row.arm, []).append(row.unit_id)
        drawn = (
            nsmallest(most, ids, key=lambda unit_id: sha256(f"{seed} {unit_id}".encode()).digest())
            for ids in by_arm.values()
        )
        return _scoring(connection, run_id, [unit_id for ids in drawn for unit_id in ids])


def _scoring(connection: Connection, run_id: str, unit_ids: Collection[int] | None = None) -> Scoring:
    """Return the newest scoring with the run's answers. unit_ids: only these answers and their cases."""
    chosen = (units.c.run_id == run_id, units.c.status == "done")
    chosen += () if unit_ids is None else (units.c.unit_id.in_(unit_ids),)
    number = newest_scoring(connection, run_id)
    names = [column.name for column in SCORE]
    scored = scores_by_unit(connection, run_id, number, unit_ids)
    rows = connection.execute(
        select(units.c.unit_id, *KEY, units.c.text, units.c.finish_reason, units.c.calls)
        .where(*chosen)
        .order_by(units.c.unit_id)
    )
    answers = tuple(
        StoredAnswer(
            unit_id=row[0],
            key=_key(row),
            text=row.text,
            finish_reason=row.finish_reason,
            calls=None if row.calls is None else tuple(map(tuple, json.loads(row.calls))),
            scores=tuple(Score(**dict(zip(names, score, strict=True))) for score in scored.get(row[0], ())),
        )
        for row in rows
    )
    hashes = None if unit_ids is None else connection.scalars(select(units.c.case_hash).where(*chosen).distinct()).all()
    recorded, sets = _evalsets(connection, run_id, hashes), sets_of_scoring(connection, run_id, number)
    newest = tuple(as_rescored(item, sets) for item in recorded)
    return Scoring(number=number, recorded=recorded, evalsets=newest, answers=answers)


def add(
    store: Store,
    run_id: str,
    after: int,
    scored: Mapping[int, Sequence[Score]],
    sets: Mapping[str, RescoredSet] | None = None,
    now: str = "",
) -> int:
    """Write a new scoring in one transaction, and return its number.

    after: the newest scoring when the answers were read. scored: unit_id → scores, of every answer. sets: those that
    differ from the recorded ones. now: UTC text, by default the clock's. Raises UsageError if another scoring was added
    since, or a unit has no scores.
    """
    with bulk.uncollected():
        rows = _answer_rows(store, run_id)
        if {row[0] for row in rows} != set(scored):
            raise UsageError(f"run {run_id}: a scoring must hold every answer of the run; nothing was stored")
        new_scores = {row[0]: score_rows(_key(row), scored[row[0]]) for row in rows}
        scorers = {score.metric: score.scorer for unit in scored.values() for score in unit}
        scoring = StoredScoring(scorers=scorers, sets=sets or {}, scores_sha256=_digest(rows, new_scores))
        part = str(after + 1)
        row = sealed_row("scoring", scoring, run_id=run_id, part=part, at=now)
        new = [(unit_id, after + 1, *columns) for unit_id, unit_rows in new_scores.items() for columns in unit_rows]
        _add(store, row, rows, new)
    return after + 1


@lasting
def _answer_rows(store: Store, run_id: str) -> Sequence[AnyRow]:
    with store.read() as connection:
        return connection.execute(_sealed_units(run_id)).all()


@lasting
def _add(store: Store, row: dict[str, Any], answers: Sequence[AnyRow], new_scores: bulk.Rows) -> None:
    """Write the scoring, unless this very call committed it before its connection was lost. row: its sealed row;
    answers: the run's, as they were scored. Raises as `add`."""
    run_id = row["run_id"]
    with store.write(run_id) as connection:
        if connection.execute(select(sealed.c.sealed_id).where(sealed.c.sha256 == row["sha256"])).first():
            return
        prunings.refuse_pruned(connection, run_id)
        if str(newest_scoring(connection, run_id) + 1) != row["part"]:
            raise UsageError(f"run {run_id} was scored again by another process meanwhile; look at its result first")
        seals = _sealed_units(run_id).with_only_columns(units.c.sha256)
        if connection.scalars(seals).all() != [answer[-1] for answer in answers]:
            raise UsageError(f"run {run_id} was changed by another process meanwhile; score it again")
        connection.execute(insert(sealed), row)
        bulk.put(connection, scores, (scores.c.unit_id, scores.c.scoring, *SCORE), new_scores)


def fault(connection: Connection, run_id: str, number: int, by_unit: ScoresByUnit) -> str | None:
    """Return what is wrong with the scores stored under this number; None if they are what was written."""
    of_run = select(scores.c.unit_id).join_from(scores, units).where(units.c.run_id == run_id)
    if connection.execute(of_run.where(scores.c.scoring > newest_scoring(connection, run_id)).limit(1)).first():
        return f"run {run_id} holds scores of a scoring that this store has no record of"
    if not number:  # sealed with the units
        return None
    row = connection.execute(_scorings(run_id, number)).one_or_none()
    rows = connection.execute(_sealed_units(run_id)).all()
    if (
        row is None
        or not is_intact(row)
        or read_typed(StoredScoring, row.body_json).scores_sha256 != _digest(rows, by_unit)
    ):
        return f"the scores of scoring {number} of run {run_id} are not what was recorded"
    return None


def scores_by_unit(
    connection: Connection, run_id: str, number: int, unit_ids: Collection[int] | None = None
) -> dict[int, list[tuple[Any, ...]]]:
    """Return unit_id → its scores in this scoring, ordered by metric. unit_ids: only these units."""
    by_unit: dict[int, list[tuple[Any, ...]]] = {}
    chosen = _scores_of(run_id, number)
    for row in connection.execute(chosen if unit_ids is None else chosen.where(units.c.unit_id.in_(unit_ids))).all():
        by_unit.setdefault(row[0], []).append(tuple(row[1:]))
    return by_unit


def _scores_of(run_id: str, number: int) -> Select[*tuple[Any, ...]]:
    joined = select(scores.c.unit_id, *SCORE).join_from(scores, units)
    chosen = joined.where(units.c.run_id == run_id, scores.c.scoring == number)
    return chosen.order_by(scores.c.unit_id, scores.c.metric)


def _sealed_units(run_id: str) -> Select[*tuple[Any, ...]]:
    """Return the query of a complete run's answered units; units ended by a settled verdict have no answer."""
    done = (units.c.run_id == run_id, units.c.status == "done")
    return select(units.c.unit_id, *KEY, units.c.sha256).where(*done).order_by(units.c.unit_id)


def _key(row: Any) -> UnitKey:
    return UnitKey(*row[1 : 1 + len(KEY)])


def _scorings(run_id: str, number: int | None = None) -> Select[Any]:
    """Return the query of a run's later scorings, or of one, the oldest first."""
    return rows_of("scoring", run_id=run_id, **({} if number is None else {"part": str(number)}))


def _digest(rows: Sequence[AnyRow], by_unit: ScoresByUnit) -> str:
    """Return the seal of the scores and, through their digests, of the scored answers."""
    digests = (seal.digest((*row[1:], *by_unit.get(row[0], ()))) for row in rows)
    return seal.digest((), "".join(digests).encode("ascii"))


def _evalsets(connection: Connection, run_id: str, hashes: Collection[str] | None = None) -> tuple[Evalset, ...]:
    """Return the run's sets as recorded, with the cases that the baseline was asked, in their order. hashes: only these
    cases."""
    by_set: dict[str, list[Case]] = {}
    stored = (
        select(units.c.evalset, cases)
        .join(cases, cases.c.case_hash == units.c.case_hash)
        .where(units.c.run_id == run_id, units.c.arm == "baseline", units.c.repeat == 0)
        .order_by(units.c.unit_id)
    )
    for row in connection.execute(stored if hashes is None else stored.where(cases.c.case_hash.in_(hashes))):
        by_set.setdefault(row.evalset, []).append(Case(evalset=row.evalset, body=check_case(row)))
    rows = connection.execute(select(evalsets).where(evalsets.c.run_id == run_id).order_by(evalsets.c.position))
    return tuple(replace(plain.evalset(row), cases=tuple(by_set.get(row.name, ()))) for row in rows)
