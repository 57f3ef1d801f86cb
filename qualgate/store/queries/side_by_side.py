"""Both arms' answers to each case, filtered by outcome, including cases wrong in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Literal, get_args

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, or_, select
from sqlalchemy import tuple_ as in_tuple

from qualgate.errors import UsageError
from qualgate.records import CALL_UNREAD
from qualgate.store import seal
from qualgate.store.database import Store
from qualgate.store.queries.case_text import prompt_text, reference_text
from qualgate.store.queries.flipped import changed_by_noise
from qualgate.store.queries.pages import PAGE
from qualgate.store.rescored_sets import RescoredSet, corrected
from qualgate.store.rows import AnyRow, check_case
from qualgate.store.scorings import newest_scoring, sets_of_scoring
from qualgate.store.tables import cases, scores, units

Show = Literal["lost", "gained", "both-wrong", "same", "cut", "empty"]
SHOWS: tuple[Show, ...] = get_args(Show)
Sort = Literal["case", "KL", "length", "first difference"]
SORTS: tuple[Sort, ...] = get_args(Sort)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Filter of cases. None and "" match every case."""

    evalset: str | None = None
    show: Show | None = None
    metric: str | None = None  # the metric for `show`: lost, gained or both-wrong
    search: str = ""  # a part of either answer or of the case, ignoring letter case
    case_id: str | None = None
    scoring: int | None = None  # 0: as the run recorded it; None: the newest


EVERY_CASE = CaseFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseName:
    """A case of a run, and which of several answers to it."""

    evalset: str
    case_id: str
    repeat: int

    @property
    def case(self) -> tuple[str, str, int]:
        """Set, case, and which of several answers."""
        return self.evalset, self.case_id, self.repeat

    @property
    def name(self) -> str:
        """Name for people: set, case, and which of several answers."""
        return f"{self.evalset}/{self.case_id}" + (f"#{self.repeat}" if self.repeat else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseKey(CaseName):
    """One case of a variant, with its sort keys."""

    unit_ids: tuple[int, int]  # of the baseline's answer and the variant's
    noisy: bool | None  # whether the A/A arm changes a score of this case too; None: no such arm
    tokens: tuple[int, int]  # lengths of both answers
    kl: float | None  # mean over the baseline's tokens; None if not known exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(CaseName):
    """One case with both answers. scores: metric → (baseline's, variant's) value; None: not judged."""

    prompt: str
    reference: str
    baseline: str
    variant: str
    scores: dict[str, tuple[float | None, float | None]]
    reasons: dict[str, str]  # metric → why the variant's answer is wrong, or else the baseline's
    ended: tuple[str, str]  # finish reasons, the baseline's first
    first_divergence: int | None


_before, _after = units.alias("before"), units.alias("after")
_old, _new = scores.alias("old"), scores.alias("new")
_PAIRED = and_(
    _before.c.run_id == _after.c.run_id,
    _before.c.evalset == _after.c.evalset,
    _before.c.case_id == _after.c.case_id,
    _before.c.repeat == _after.c.repeat,
    cases.c.case_hash == _after.c.case_hash,
)


def side_by_side(
    store: Store, run_id: str, variant: str, wanted: CaseFilter = EVERY_CASE, *, limit: int = PAGE
) -> tuple[tuple[Compared, ...], int]:
    """Return cases in order of set, id and repeat, and their number without a limit."""
    keys = case_keys(store, run_id, variant, wanted)
    return compared(store, run_id, keys[:limit], wanted.scoring), len(keys)


def case_keys(
    store: Store, run_id: str, variant: str, wanted: CaseFilter = EVERY_CASE, sort: Sort = "case"
) -> tuple[CaseKey, ...]:
    """Return the wanted cases, sorted by set, id and repeat, or with the largest KL, the variant's longest answer or
    the earliest difference first. Of flipped cases, those that the A/A arm changes too come last."""
    with store.read() as connection:
        number = newest_scoring(connection, run_id) if wanted.scoring is None else wanted.scoring
        of_run = and_(
            _PAIRED, _after.c.run_id == run_id, _after.c.arm == variant, _after.c.status == "done",
            _before.c.arm == "baseline", _before.c.status == "done",
        )  # fmt: skip
        noisy = changed_by_noise(connection, run_id, in_tuple(_after.c.evalset, _after.c.case_id))
        statement = select(
            _after.c.evalset, _after.c.case_id, _after.c.repeat, _before.c.unit_id.label("old_id"), _after.c.unit_id,
            noisy.label("noisy"), _before.c.answer_tokens.label("old_tokens"), _after.c.answer_tokens,
            _after.c.first_divergence, _after.c.kl, _after.c.kl_upper, _after.c.top1_agreement,
        )  # fmt: skip
        statement = statement.where(of_run, *_conditions(wanted, number))
        rows = connection.execute(statement.order_by(_after.c.evalset, _after.c.case_id, _after.c.repeat)).all()
    keyed = [(_key(row), row.first_divergence) for row in rows]
    if sort != "case":
        keyed.sort(key=lambda pair: (wanted.show in ("lost", "gained") and pair[0].noisy, _ORDERS[sort](*pair)))
    return tuple(key for key, _ in keyed)


_ORDERS: dict[Sort, Callable[[CaseKey, int | None], float]] = {
    "KL": lambda key, _: inf if key.kl is None else -key.kl,
    "length": lambda key, _: -key.tokens[1],
    "first difference": lambda _, place: inf if place is None else place,
}


def compared(store: Store, run_id: str, keys: Sequence[CaseKey], scoring: int | None = None) -> tuple[Compared, ...]:
    """Return both answers to each of these cases, in their order. scoring: see `CaseFilter`."""
    with store.read() as connection:
        number = newest_scoring(connection, run_id) if scoring is None else scoring
        sets = sets_of_scoring(connection, run_id, number)
        ids = {unit_id for key in keys for unit_id in key.unit_ids}
        # Each answer by its id: joined, SQLite looks for the baseline's among all answers of the run.
        chosen = select(units, cases.c.body_json).join(cases, cases.c.case_hash == units.c.case_hash)
        found = {row.unit_id: row for row in connection.execute(chosen.where(units.c.unit_id.in_(ids)))}
        there = [key.unit_ids for key in keys if found.keys() >= {*key.unit_ids}]
        pairs = [(found[baseline], found[variant]) for baseline, variant in there]
        if len(pairs) < len(keys) or not all(map(_is_pair, keys, pairs)):
            raise UsageError(f"run {run_id} no longer holds all of these cases. Look at the run again.")
        return tuple(_compared(connection, pair, number, sets) for pair in pairs)


def _key(row: AnyRow) -> CaseKey:
    """Return the key of a compared case, with what it is sorted by; a KL known only within bounds counts as unknown."""
    kl = seal.kl(row.kl, row.top1_agreement)[0] if row.kl_upper is None else ()
    return CaseKey(
        evalset=row.evalset,
        case_id=row.case_id,
        repeat=row.repeat,
        unit_ids=(row.old_id, row.unit_id),
        noisy=row.noisy,
        tokens=(row.old_tokens or 0, row.answer_tokens or 0),
        kl=fmean(kl) if kl else None,
    )


def _conditions(wanted: CaseFilter, number: int) -> list[ColumnElement[bool]]:
    """Return the SQL conditions of a filter. number: the scoring whose scores decide what was lost or gained."""
    conditions: list[ColumnElement[bool]] = []
    if wanted.evalset is not None:
        conditions.append(_after.c.evalset == wanted.evalset)
    if wanted.case_id is not None:
        conditions.append(_after.c.case_id == wanted.case_id)
    if wanted.search:
        texts = (_before.c.text, _after.c.text, cases.c.body_json)
        conditions.append(or_(*(func.lower(text).contains(wanted.search.lower(), autoescape=True) for text in texts)))
    moved = {"lost": (1, 0), "gained": (0, 1), "both-wrong": (0, 0)}
    show = wanted.show
    if show in moved:
        # A call that only another dialect can read counts as wrong, as in `flipped`.
        after = case((_new.c.error_type == CALL_UNREAD, 0.0), else_=_new.c.value)
        pair = and_(
            _old.c.unit_id == _before.c.unit_id, _new.c.unit_id == _after.c.unit_id, _old.c.metric == _new.c.metric,
            _old.c.scoring == number, _new.c.scoring == number,
            _old.c.value == moved[show][0], after == moved[show][1],
        )  # fmt: skip
        if wanted.metric is not None:
            pair = and_(pair, _new.c.metric == wanted.metric)
        conditions.append(exists(select(_old.c.unit_id).select_from(_old, _new).where(pair)))
    elif show == "same":
        conditions.append(_before.c.text == _after.c.text)
    elif show == "cut":
        conditions.append(or_(_before.c.finish_reason == "length", _after.c.finish_reason == "length"))
    elif show == "empty":
        conditions.append(or_(func.trim(_before.c.text) == "", func.trim(_after.c.text) == ""))
    return conditions


def _is_pair(key: CaseKey, pair: tuple[AnyRow, AnyRow]) -> bool:
    """Whether two rows of units are answers of one run to this case."""
    of = {(row.run_id, row.case_hash, row.evalset, row.case_id, row.repeat) for row in pair}
    return len(of) == 1 and of.pop()[2:] == key.case


def _compared(
    connection: Connection, pair: tuple[AnyRow, AnyRow], number: int, sets: Mapping[str, RescoredSet]
) -> Compared:
    """Return both answers of one case with the scores that both have. pair: the baseline's unit and the variant's;
    number: of the scoring; sets: the sets as that scoring read them."""
    old, row = pair
    statement = select(scores).where(scores.c.unit_id.in_((old.unit_id, row.unit_id)), scores.c.scoring == number)
    by_arm: dict[int, dict[str, AnyRow]] = {old.unit_id: {}, row.unit_id: {}}
    for score in connection.execute(statement.order_by(scores.c.metric)):
        by_arm[score.unit_id][score.metric] = score
    baseline_scores, variant_scores = by_arm[old.unit_id], by_arm[row.unit_id]
    body = corrected(check_case(row), row.evalset, sets)
    return Compared(
        evalset=row.evalset,
        case_id=row.case_id,
        repeat=row.repeat,
        prompt=prompt_text(body),
        reference=reference_text(body),
        baseline=old.text or "",
        variant=row.text or "",
        scores={
            name: (baseline_scores[name].value, variant_scores[name].value)
            for name in baseline_scores
            if name in variant_scores
        },
        reasons={
            name: reason
            for name in variant_scores
            if (reason := variant_scores[name].reason or _reason(baseline_scores, name))
        },
        ended=(old.finish_reason or "", row.finish_reason or ""),
        first_divergence=row.first_divergence,
    )


def _reason(scored: dict[str, AnyRow], metric: str) -> str:
    return scored[metric].reason if metric in scored else ""
