"""Answers that changed between right and wrong, beside the baseline's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Subquery,
    Tuple,
    and_,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
)
from sqlalchemy import tuple_ as in_tuple

from qualgate.errors import IntegrityError
from qualgate.records import CALL_UNREAD, NOISE, Verdict
from qualgate.store.database import Store
from qualgate.store.queries.case_text import prompt_text, reference_text
from qualgate.store.queries.pages import PAGE
from qualgate.store.rescored_sets import RescoredSet, corrected
from qualgate.store.rows import AnyRow, check_case
from qualgate.store.scorings import newest_scoring, newest_sets
from qualgate.store.tables import arms, cases, scores, units

Direction = Literal["lost", "gained"]  # right → wrong, wrong → right
Judged = tuple[str, str | None]  # (metric, evalset; None: all)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipCount:
    """Changes of one metric in one set."""

    metric: str
    evalset: str
    pairs: int  # cases with a value on both sides
    lost: int
    gained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One case whose answer changed between right and wrong."""

    metric: str
    evalset: str
    case_id: str
    repeat: int
    direction: Direction
    baseline: str  # the texts
    variant: str
    reason: str  # the scorer's, about the side that is wrong
    first_divergence: int | None
    prompt: str = ""  # see `case_text.prompt_text`
    reference: str = ""  # see `case_text.reference_text`
    reasoning: str = ""  # the case's way of writing thoughts
    noisy: bool | None = None  # whether the A/A arm changes a score of this case too; None: no such arm

    @property
    def case(self) -> tuple[str, str, int]:
        """Set, case, and which of several answers."""
        return self.evalset, self.case_id, self.repeat

    @property
    def case_name(self) -> str:
        """Name for people: case, and which of several answers."""
        return self.case_id + (f"#{self.repeat}" if self.repeat else "")

    @property
    def name(self) -> str:
        """Name for people: set and case."""
        return f"{self.evalset}/{self.case_name}"


_baseline, _variant = units.alias("baseline"), units.alias("variant")
_before, _after = scores.alias("before"), scores.alias("after")
_PAIRED = and_(
    _baseline.c.arm == "baseline",
    _baseline.c.run_id == _variant.c.run_id,
    _baseline.c.evalset == _variant.c.evalset,
    _baseline.c.case_id == _variant.c.case_id,
    _baseline.c.repeat == _variant.c.repeat,
    _baseline.c.case_hash == _variant.c.case_hash,
)
_SCORE_PAIRS = (
    _variant.join(_baseline, _PAIRED)
    .join(_after, _after.c.unit_id == _variant.c.unit_id)
    .join(
        _before,
        and_(
            _before.c.unit_id == _baseline.c.unit_id,
            _before.c.metric == _after.c.metric,
            _before.c.scoring == _after.c.scoring,
        ),
    )
)
# Users do not get a call that only another dialect can read: see `gate.evidence.unread_calls`.
_AFTER = case((_after.c.error_type == CALL_UNREAD, 0.0), else_=_after.c.value)
_LOST = and_(_before.c.value == 1, _AFTER == 0)
_GAINED = and_(_before.c.value == 0, _after.c.value == 1)


def flip_counts(store: Store, run_id: str, variant: str) -> tuple[FlipCount, ...]:
    """Return the changes of every metric and set that both arms have scores for."""
    statement = (
        select(
            _after.c.metric,
            _variant.c.evalset,
            func.count().label("pairs"),
            func.count(case((_LOST, 1))).label("lost"),
            func.count(case((_GAINED, 1))).label("gained"),
        )
        .select_from(_SCORE_PAIRS)
        .where(
            _variant.c.run_id == run_id,
            _variant.c.arm == variant,
            _before.c.value.is_not(None),
            _AFTER.is_not(None),
        )
        .group_by(_after.c.metric, _variant.c.evalset)
        .order_by(_after.c.metric, _variant.c.evalset)
    )
    with store.read() as connection:
        newest = _after.c.scoring == newest_scoring(connection, run_id)
        return tuple(FlipCount(**row._asdict()) for row in connection.execute(statement.where(newest)))


def scored_pairs(
    store: Store, run_id: str, variant: str, metric: str
) -> list[tuple[str, str, int, float | None, float | None, str | None, str]]:
    """Return (evalset, case, repeat, baseline's value, variant's value, variant's reason, scorer), unordered."""
    of_units = _variant.c.evalset, _variant.c.case_id, _variant.c.repeat
    statement = select(*of_units, _before.c.value, _AFTER, _after.c.reason, _after.c.scorer).select_from(_SCORE_PAIRS)
    statement = statement.where(_variant.c.run_id == run_id, _variant.c.arm == variant, _after.c.metric == metric)
    with store.read() as connection:
        newest = _after.c.scoring == newest_scoring(connection, run_id)
        return [tuple(row) for row in connection.execute(statement.where(newest))]  # type: ignore[misc]


def flips(
    store: Store,
    run_id: str,
    variant: str,
    *,
    metric: str | None = None,
    evalset: str | None = None,
    direction: Direction | None = None,
    limit: int = PAGE,
    offset: int = 0,
) -> tuple[Flip, ...]:
    """Return the scores that changed: right → wrong first; in each direction those that the A/A arm changes too come
    last; then by metric, set and case."""
    with store.read() as connection:
        moved = _moved(connection, run_id, variant, [(metric, evalset)], direction)
        statement = select(moved).order_by(*_in_order(moved)).limit(limit).offset(offset)
        sets = newest_sets(connection, run_id)
        return tuple(_flip(row, sets) for row in connection.execute(statement))


def flipped_cases(
    store: Store,
    run_id: str,
    variant: str,
    of: Sequence[Judged] = (),
    *,
    direction: Direction | None = None,
    limit: int = PAGE,
    offset: int = 0,
) -> tuple[Flip, ...]:
    """Return flips as `flips` does, but each case once per direction, by the first of its scores that changed. of: the
    metrics and evalsets; (): all."""
    with store.read() as connection:
        moved = _moved(connection, run_id, variant, of, direction)
        case_of = moved.c.evalset, moved.c.case_id, moved.c.direction
        number_in_case = func.row_number().over(partition_by=case_of, order_by=(moved.c.metric, moved.c.repeat))
        numbered = select(moved, number_in_case.label("nth")).subquery()
        columns = [numbered.c[column.name] for column in moved.c]
        statement = (
            select(*columns).where(numbered.c.nth == 1).order_by(*_in_order(numbered)).limit(limit).offset(offset)
        )
        sets = newest_sets(connection, run_id)
        return tuple(_flip(row, sets) for row in connection.execute(statement))


def count_flipped_cases(store: Store, run_id: str, variant: str, of: Sequence[Judged] = ()) -> dict[Direction, int]:
    """Return the number of `flipped_cases` in each direction without a limit."""
    with store.read() as connection:
        moved = _moved(connection, run_id, variant, of, None)
        distinct_cases = select(moved.c.direction, moved.c.evalset, moved.c.case_id).distinct().subquery()
        counts = connection.execute(
            select(distinct_cases.c.direction, func.count()).group_by(distinct_cases.c.direction)
        )
        totals: dict[Direction, int] = {"lost": 0, "gained": 0}
        for direction, count in counts:
            totals[direction] = count
        return totals


def flipped_answers(
    store: Store, run_id: str, variant: str, direction: Direction | None = None
) -> frozenset[tuple[str, str, int]]:
    """Return (evalset, case, repeat) of each answer with a score that changed between right and wrong; None: in either
    direction."""
    with store.read() as connection:
        moved = _moved(connection, run_id, variant, (), direction)
        answers = select(moved.c.evalset, moved.c.case_id, moved.c.repeat).distinct()
        return frozenset(tuple(row) for row in connection.execute(answers))


def judged_by(verdict: Verdict, evalsets: Collection[str]) -> tuple[Judged, ...]:
    """Return the quality rules against the baseline that decided: the broken critical ones, else all critical ones."""
    against_baseline = (rule for rule in verdict.comparisons if not rule.against)
    counted = [rule for rule in against_baseline if rule.lost is not None and rule.tier == "critical"]
    decided = [rule for rule in counted if rule.status == "broken"] or counted
    return tuple(dict.fromkeys((rule.metric, rule.slice if rule.slice in evalsets else None) for rule in decided))


def _moved(
    connection: Connection,
    run_id: str,
    variant: str,
    of: Sequence[tuple[str | None, str | None]],
    direction: Direction | None,
) -> Subquery:
    """Return the query of scores that changed between right and wrong. of: metrics and evalsets, None: any."""
    newest = _after.c.scoring == newest_scoring(connection, run_id)
    of = of or [(None, None)]
    conditions = [
        and_(
            literal(True) if metric is None else _after.c.metric == metric,
            literal(True) if evalset is None else _variant.c.evalset == evalset,
        )
        for metric, evalset in of
    ]
    return (
        select(
            _after.c.metric,
            _variant.c.evalset,
            _variant.c.case_id,
            _variant.c.repeat,
            case((_LOST, "lost"), else_="gained").label("direction"),
            _baseline.c.text.label("baseline"),
            _variant.c.text.label("variant"),
            case((_LOST, _after.c.reason), else_=_before.c.reason).label("reason"),
            _variant.c.first_divergence,
            changed_by_noise(connection, run_id, in_tuple(_variant.c.evalset, _variant.c.case_id)).label("noisy"),
            cases,
        )
        .select_from(_SCORE_PAIRS.join(cases, cases.c.case_hash == _variant.c.case_hash))
        .where(_variant.c.run_id == run_id, _variant.c.arm == variant, or_(*conditions), newest)
        .where({"lost": _LOST, "gained": _GAINED, None: _LOST | _GAINED}[direction])
        .subquery()
    )


def _in_order(moved: Subquery) -> tuple[ColumnElement[Any], ...]:
    return (
        moved.c.direction.desc(), moved.c.noisy, moved.c.metric, moved.c.evalset, moved.c.case_id, moved.c.repeat,
    )  # fmt: skip


def _flip(row: AnyRow, sets: Mapping[str, RescoredSet]) -> Flip:
    """Build a flip; for a changed case the error takes the place of its prompt, so that a page can show it."""
    columns = {name: value for name, value in row._asdict().items() if name not in ("body_json", "case_hash")}
    try:
        body = corrected(check_case(row), row.evalset, sets)
    except IntegrityError as error:
        return Flip(**columns, prompt=str(error))
    way = str(body.get("reasoning", ""))
    return Flip(**columns, prompt=prompt_text(body), reference=reference_text(body), reasoning=way)


def changed_by_noise(connection: Connection, run_id: str, case_of: Tuple) -> ColumnElement[bool | None]:
    """Return the SQL expression of whether the A/A arm changes any score of the case; NULL without an A/A arm.

    case_of: the case's set and id.
    """
    floor = connection.scalar(select(arms.c.name).where(arms.c.run_id == run_id, arms.c.name.endswith(NOISE)))
    if floor is None:
        return cast(null(), Boolean)
    changed = select(_variant.c.evalset, _variant.c.case_id).select_from(_SCORE_PAIRS)
    changed = changed.where(
        _variant.c.run_id == run_id, _variant.c.arm == floor, _before.c.value != _after.c.value,
        _after.c.scoring == newest_scoring(connection, run_id),
    )  # fmt: skip
    return case((case_of.in_(changed.correlate(None)), literal(True)), else_=literal(False))
