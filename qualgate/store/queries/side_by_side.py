"""Both arms' answers to each case, chosen by what became of them: also those that are wrong in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select

from qualgate.formatting import prompt_text, reference_text
from qualgate.store.database import Store
from qualgate.store.queries.pages import PAGE
from qualgate.store.rescored_sets import RescoredSet, corrected, sets_of_scoring
from qualgate.store.rows import AnyRow, check_case
from qualgate.store.scorings import newest_scoring
from qualgate.store.tables import cases, scores, units

Show = Literal["lost", "gained", "both-wrong", "same", "cut", "empty"]
SHOWS: tuple[Show, ...] = get_args(Show)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case with both answers. scores: metric → (baseline's, variant's) value; None: nobody could judge it."""

    evalset: str
    case_id: str
    repeat: int
    prompt: str
    reference: str
    baseline: str
    variant: str
    scores: dict[str, tuple[float | None, float | None]]
    reasons: dict[str, str]  # metric → why the variant's answer is wrong, or else the baseline's
    ended: tuple[str, str]  # finish reasons, the baseline's first
    first_divergence: int | None

    @property
    def name(self) -> str:
        """For people: set, case, and which of several answers."""
        return f"{self.evalset}/{self.case_id}" + (f"#{self.repeat}" if self.repeat else "")


_before, _after = units.alias("before"), units.alias("after")
_old, _new = scores.alias("old"), scores.alias("new")


def side_by_side(
    store: Store,
    run_id: str,
    variant: str,
    *,
    evalset: str | None = None,
    show: Show | None = None,
    search: str = "",
    case_id: str | None = None,
    limit: int = PAGE,
) -> tuple[tuple[Compared, ...], int]:
    """Cases in order of set, id and repeat, and how many there are in all. show: None is every case. search: a part of
    either answer or of the case, letter case aside."""
    with store.read() as connection:
        number = newest_scoring(connection, run_id)
        of_run = and_(
            _after.c.run_id == run_id, _after.c.arm == variant, _after.c.status == "done",
            _before.c.run_id == run_id, _before.c.arm == "baseline", _before.c.status == "done",
            _before.c.evalset == _after.c.evalset, _before.c.case_id == _after.c.case_id,
            _before.c.repeat == _after.c.repeat, cases.c.case_hash == _after.c.case_hash,
        )  # fmt: skip
        wanted = [of_run, *_where(evalset, show, search, case_id, number)]
        total = connection.execute(select(func.count()).select_from(_after, _before, cases).where(*wanted)).scalar_one()
        statement = select(
            _after.c.evalset, _after.c.case_id, _after.c.repeat, cases.c.case_hash, cases.c.body_json,
            _before.c.unit_id.label("old_id"), _after.c.unit_id.label("new_id"),
            _before.c.text.label("old_text"), _after.c.text.label("new_text"),
            _before.c.finish_reason.label("old_end"), _after.c.finish_reason.label("new_end"),
            _after.c.first_divergence,
        )  # fmt: skip
        statement = statement.where(*wanted).order_by(_after.c.evalset, _after.c.case_id, _after.c.repeat).limit(limit)
        sets = sets_of_scoring(connection, run_id, number)
        found = connection.execute(statement).all()
        return tuple(_compared(connection, row, number, sets) for row in found), total


def _where(
    evalset: str | None, show: Show | None, search: str, case_id: str | None, number: int
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if evalset is not None:
        found.append(_after.c.evalset == evalset)
    if case_id is not None:
        found.append(_after.c.case_id == case_id)
    if search:
        texts = (_before.c.text, _after.c.text, cases.c.body_json)
        found.append(or_(*(func.lower(text).contains(search.lower(), autoescape=True) for text in texts)))
    moved = {"lost": (1, 0), "gained": (0, 1), "both-wrong": (0, 0)}
    if show in moved:
        pair = and_(
            _old.c.unit_id == _before.c.unit_id, _new.c.unit_id == _after.c.unit_id, _old.c.metric == _new.c.metric,
            _old.c.scoring == number, _new.c.scoring == number,
            _old.c.value == moved[show][0], _new.c.value == moved[show][1],
        )  # fmt: skip
        found.append(exists(select(_old.c.unit_id).select_from(_old, _new).where(pair)))
    elif show == "same":
        found.append(_before.c.text == _after.c.text)
    elif show == "cut":
        found.append(or_(_before.c.finish_reason == "length", _after.c.finish_reason == "length"))
    elif show == "empty":
        found.append(or_(func.trim(_before.c.text) == "", func.trim(_after.c.text) == ""))
    return found


def _compared(connection: Connection, row: AnyRow, number: int, sets: Mapping[str, RescoredSet]) -> Compared:
    said = select(scores).where(scores.c.unit_id.in_((row.old_id, row.new_id)), scores.c.scoring == number)
    by_arm: dict[int, dict[str, AnyRow]] = {row.old_id: {}, row.new_id: {}}
    for score in connection.execute(said.order_by(scores.c.metric)):
        by_arm[score.unit_id][score.metric] = score
    old, new = by_arm[row.old_id], by_arm[row.new_id]
    body = corrected(check_case(row), row.evalset, sets)
    return Compared(
        evalset=row.evalset,
        case_id=row.case_id,
        repeat=row.repeat,
        prompt=prompt_text(body),
        reference=reference_text(body),
        baseline=row.old_text or "",
        variant=row.new_text or "",
        scores={name: (old[name].value, new[name].value) for name in old if name in new},
        reasons={name: reason for name in new if (reason := new[name].reason or _reason(old, name))},
        ended=(row.old_end or "", row.new_end or ""),
        first_divergence=row.first_divergence,
    )


def _reason(scored: dict[str, AnyRow], metric: str) -> str:
    return scored[metric].reason if metric in scored else ""
