"""Scores that differ between two runs of one store, for the same case and an arm of the same name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, select

from qualgate.store.database import Store
from qualgate.store.rescored_sets import RescoredSet
from qualgate.store.scorings import newest_scoring, newest_sets
from qualgate.store.tables import scores, units


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One changed score. None: the scorer could not judge."""

    arm: str
    metric: str
    evalset: str
    case_id: str
    repeat: int
    before: float | None
    after: float | None

    @property
    def name(self) -> str:
        """Name for people: set, case, and which of several answers."""
        return f"{self.evalset}/{self.case_id}" + (f"#{self.repeat}" if self.repeat else "")

    @property
    def lost(self) -> bool:
        """Whether the score became worse; a lost value counts as worse."""
        return (self.after if self.after is not None else -1.0) < (self.before if self.before is not None else -1.0)


_then, _now = units.alias("then"), units.alias("now")
_before, _after = scores.alias("before"), scores.alias("after")
_SAME_UNIT = and_(*(_then.c[name] == _now.c[name] for name in ("arm", "evalset", "case_id", "repeat", "case_hash")))
_BOTH = (
    _now.join(_then, _SAME_UNIT)
    .join(_after, _after.c.unit_id == _now.c.unit_id)
    .join(_before, and_(_before.c.unit_id == _then.c.unit_id, _before.c.metric == _after.c.metric))
)


def _references(sets: Mapping[str, RescoredSet], evalset: str, case_id: str) -> dict[str, Any]:
    return sets[evalset].references(case_id) if evalset in sets else {}


def common_answers(store: Store, before: str, after: str) -> dict[str, frozenset[tuple[str, str, int]]]:
    """Return arm → (evalset, case, repeat) of the answers to the same cases with the same references in both runs."""
    key = (_now.c.arm, _now.c.evalset, _now.c.case_id, _now.c.repeat)
    same = select(*key).select_from(_now.join(_then, _SAME_UNIT))
    done = (answer.c.status == "done" for answer in (_then, _now))
    same = same.where(_then.c.run_id == before, _now.c.run_id == after, *done)
    with store.read() as connection:
        sets_before, sets_after = newest_sets(connection, before), newest_sets(connection, after)
        by_arm = defaultdict[str, set[tuple[str, str, int]]](set)
        for arm, evalset, case_id, repeat in connection.execute(same):
            if _references(sets_before, evalset, case_id) == _references(sets_after, evalset, case_id):
                by_arm[arm].add((evalset, case_id, repeat))
    return {arm: frozenset(answers) for arm, answers in by_arm.items()}


def changed_scores(store: Store, before: str, after: str) -> tuple[tuple[Changed, ...], dict[tuple[str, str], int]]:
    """Return the scores that differ, by arm, metric and case; and (arm, metric) → number of scores in both runs.
    before, after: run ids."""
    with store.read() as connection:
        where = (
            _then.c.run_id == before,
            _now.c.run_id == after,
            _before.c.scoring == newest_scoring(connection, before),
            _after.c.scoring == newest_scoring(connection, after),
        )
        pairs = connection.execute(
            select(_now.c.arm, _after.c.metric, func.count())
            .select_from(_BOTH)
            .where(*where)
            .group_by(_now.c.arm, _after.c.metric)
        )
        key = (_now.c.arm, _after.c.metric, _now.c.evalset, _now.c.case_id, _now.c.repeat)
        differing = connection.execute(
            select(*key, _before.c.value.label("before"), _after.c.value.label("after"))
            .select_from(_BOTH)
            .where(*where, _before.c.value.is_distinct_from(_after.c.value))
            .order_by(*key)
        )
        sets_before, sets_after = newest_sets(connection, before), newest_sets(connection, after)
        changes = tuple(
            change
            for change in (Changed(**row._asdict()) for row in differing)
            if _references(sets_before, change.evalset, change.case_id)
            == _references(sets_after, change.evalset, change.case_id)  # else the reference changed
        )
        return changes, {(arm, metric): number for arm, metric, number in pairs}
