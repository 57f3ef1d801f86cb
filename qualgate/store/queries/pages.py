"""Paged lists: runs, variants without a decision, decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, case, func, or_, select, true
from sqlalchemy import tuple_ as in_tuple
from sqlalchemy.sql import ColumnElement

from qualgate.errors import EXIT_ORDER
from qualgate.store import plain
from qualgate.store.claims import Claim, Shown, claims
from qualgate.store.database import Store
from qualgate.store.decisions import Decision, chain
from qualgate.store.prunings import pruned_runs
from qualgate.store.queries.deciding import DECIDES, IS_TRIAL
from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT, check_verdicts_placed
from qualgate.store.queries.progress import unit_counts
from qualgate.store.queries.superseded import Called, called, superseded
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.sealed import rows_of
from qualgate.store.tables import arms, decisions, runs, sealed, verdicts

PAGE = 50
NO_VERDICT = -1  # in place of a verdict's number


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLine:
    """One variant of one run in a list. word: None until there is a verdict."""

    run_id: str
    variant: str
    created_at: str  # of the run
    word: str | None
    reason: str
    action: str | None  # the newest decision on the newest verdict
    name: str | None
    called: Called = field(default_factory=Called)
    superseded_by: str = ""  # the newest run of the same gate file; "" if it is this one
    since: str = ""  # it waits since the run finished, or an approval expired or was revoked; "" under way
    claim: Claim | None = None  # who reviews it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run in a list."""

    run_id: str
    status: str
    created_at: str
    finished_at: str | None
    expected: int  # units
    done: int
    errors: int
    settled: int  # ended without an answer, see `store.stoppings`
    trial: bool  # it decides nothing
    scored_again: str  # time of the last later scoring, UTC text; "" if there is none
    pruned: str  # "pruned on DATE" for a pruned run; "" for any other
    variants: tuple[VariantLine, ...]


def list_runs(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[RunLine, ...]:
    """Return a page of runs, newest first."""
    with store.read() as connection:
        rows = connection.execute(
            select(runs, IS_TRIAL.label("trial"))
            .order_by(runs.c.created_at.desc(), runs.c.run_id)
            .limit(limit)
            .offset(offset)
        ).all()
        for row in rows:
            check_run(row)
        ids = [row.run_id for row in rows]
        for arm in connection.execute(select(arms).where(arms.c.run_id.in_(ids))):
            check_arm(arm)
        counts = unit_counts(connection, ids)
        scorings = rows_of("scoring").where(sealed.c.run_id.in_(ids))
        rescored_at = {row.run_id: row.at for row in connection.execute(scorings)}
        pruned = pruned_runs(connection, ids)
        lines, beside = defaultdict(list), {row.run_id: plain.policy(row.policy_json).references for row in rows}
        for line in _variant_lines(connection, arms.c.run_id.in_(ids), superseded(connection), _NEWEST_FIRST):
            if line.word or line.variant not in beside[line.run_id]:
                lines[line.run_id].append(line)
    return tuple(
        RunLine(
            run_id=row.run_id,
            status=row.status,
            created_at=row.created_at,
            finished_at=row.finished_at,
            trial=row.trial,
            scored_again=rescored_at.get(row.run_id, ""),
            pruned=str(pruned.get(row.run_id, "")),
            expected=sum(number for (run_id, _, _), number in counts.items() if run_id == row.run_id),
            done=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "done")),
            errors=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "error")),
            settled=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "settled")),
            variants=tuple(lines[row.run_id]),
        )
        for row in rows
    )


def count_runs(store: Store) -> int:
    """Return the number of runs of every status."""
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(runs)).scalar_one()


def queue(
    store: Store, limit: int = PAGE, offset: int = 0, show: Shown = "every verdict", who: str = ""
) -> tuple[VariantLine, ...]:
    """Return variants of complete runs that decide, whose newest verdict has no decision: the most severe verdict
    first, and of one word the one that waits longest. Of one gate file only the newest run is listed. show: all, those
    that `who` holds, or those that nobody else holds."""
    with store.read() as connection:
        passed = superseded(connection)
        which = and_(_in_queue(passed), _held(connection, show, who))
        return tuple(_variant_lines(connection, which, passed, _QUEUE_ORDER, limit, offset))


def next_in_queue(store: Store, run_id: str, variant: str, who: str = "") -> VariantLine | None:
    """Return the line of `queue` after this variant, decided or not, or from the last one the first line; None if no
    other variant waits that nobody but `who` holds."""
    with store.read() as connection:
        passed = superseded(connection)
        this = and_(arms.c.run_id == run_id, arms.c.name == variant)
        open_to = or_(this, and_(_in_queue(passed), _held(connection, "free", who)))
        ordered = [
            (row.run_id, row.variant) for row in connection.execute(_LINES.where(open_to).order_by(*_QUEUE_ORDER))
        ]
        place = ordered.index((run_id, variant)) if (run_id, variant) in ordered else -1
        after = [*ordered[place + 1 :], *ordered[: max(place, 0)]]
        if not after:
            return None
        of_next = and_(arms.c.run_id == after[0][0], arms.c.name == after[0][1])
        return next(iter(_variant_lines(connection, of_next, passed, _QUEUE_ORDER)))


def _in_queue(passed: Mapping[str, str]) -> ColumnElement[bool]:
    """Return the SQL condition of the queue. passed: result of `superseded`."""
    return and_(_WAITING, runs.c.run_id.not_in(passed.keys()))


def _held(connection: Connection, show: Shown, who: str) -> ColumnElement[bool]:
    """Return the SQL condition of the variants that a person holds ("mine"), or that no other holds ("free")."""
    if show == "every verdict":
        return true()
    held, place = claims(connection), in_tuple(arms.c.run_id, arms.c.name)
    if show == "mine":
        return place.in_([key for key, claim in held.items() if claim.holder == who])
    return place.not_in([key for key, claim in held.items() if claim.holder != who])


def count_queue(store: Store, show: Shown = "every verdict", who: str = "") -> int:
    """Return the length of `queue` without a limit."""
    with store.read() as connection:
        waiting = _LINES.where(_in_queue(superseded(connection)), _held(connection, show, who))
        return connection.execute(select(func.count()).select_from(waiting.subquery())).scalar_one()


def count_superseded(store: Store) -> int:
    """Return the number of variants left out of `queue` because their gate file has a newer run."""
    with store.read() as connection:
        passed = _LINES.where(_WAITING, runs.c.run_id.in_(superseded(connection).keys()))
        return connection.execute(select(func.count()).select_from(passed.subquery())).scalar_one()


def list_decisions(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[Decision, ...]:
    """Return a page of decisions, newest first."""
    with store.read() as connection:
        return chain(connection)[::-1][offset : offset + limit]


def verdict_words(store: Store, sha256s: Sequence[str]) -> dict[str, str]:
    """Return sha256 of a verdict → its word, for the verdicts in the store."""
    with store.read() as connection:
        rows = connection.execute(select(verdicts).where(verdicts.c.sha256.in_(sha256s)))
        return {row.sha256: check_verdict(row).word for row in rows}


_ended = decisions.alias("ended")
_NO_LONGER = (  # when the newest whole decision on the verdict, which is not in force, expired or was revoked
    select(func.coalesce(_ended.c.expires_at, _ended.c.created_at))
    .where(
        CURRENT_DECISION.c.action.is_(None),
        _ended.c.run_id == arms.c.run_id,
        _ended.c.variant == arms.c.name,
        _ended.c.verdict_sha256 == CURRENT_VERDICT.c.sha256,
        _ended.c.needed == 0,
    )
    .order_by(_ended.c.decision_id.desc())
    .limit(1)
    .correlate(arms, CURRENT_VERDICT, CURRENT_DECISION)
    .scalar_subquery()
)
_LINES = (
    select(
        arms.c.run_id,
        arms.c.name.label("variant"),
        runs.c.created_at,
        func.coalesce(CURRENT_VERDICT.c.verdict_id, NO_VERDICT).label("verdict_id"),
        func.coalesce(_NO_LONGER, runs.c.finished_at, "").label("since"),
    )
    .join(runs, runs.c.run_id == arms.c.run_id)
    .outerjoin(
        CURRENT_VERDICT, and_(CURRENT_VERDICT.c.run_id == arms.c.run_id, CURRENT_VERDICT.c.variant == arms.c.name)
    )
    .outerjoin(
        CURRENT_DECISION,
        and_(
            CURRENT_DECISION.c.run_id == arms.c.run_id,
            CURRENT_DECISION.c.variant == arms.c.name,
            CURRENT_DECISION.c.verdict_sha256 == CURRENT_VERDICT.c.sha256,
        ),
    )
    .where(arms.c.position > 0, arms.c.name.not_like("%@%"))
)
_WAITING = and_(
    runs.c.status == "complete",
    CURRENT_VERDICT.c.word.is_not(None),
    CURRENT_DECISION.c.action.is_(None),
    DECIDES,
)
_NEWEST_FIRST = (runs.c.created_at.desc(), arms.c.run_id, arms.c.position)
_QUEUE_ORDER = (
    case({exit.name.lower(): place for place, exit in enumerate(EXIT_ORDER)}, value=CURRENT_VERDICT.c.word, else_=0),
    "since", *_NEWEST_FIRST,
)  # fmt: skip


def _variant_lines(
    connection: Connection,
    which: ColumnElement[bool],
    passed: Mapping[str, str],
    order: Sequence[ColumnElement[Any] | str],
    limit: int | None = None,
    offset: int | None = None,
) -> Iterable[VariantLine]:
    """Yield the lines of the variants. passed: result of `superseded`."""
    lines = connection.execute(_LINES.where(which).order_by(*order).limit(limit).offset(offset)).all()
    check_verdicts_placed(connection)
    ids = [row.verdict_id for row in lines if row.verdict_id != NO_VERDICT]
    by_id = {row.verdict_id: row for row in connection.execute(select(verdicts).where(verdicts.c.verdict_id.in_(ids)))}
    decided = {(decision.run_id, decision.variant, decision.verdict_sha256): decision for decision in chain(connection)}
    calls, held = called(connection, [row.run_id for row in lines]), claims(connection)
    for row in lines:
        newest = by_id.get(row.verdict_id)
        verdict = check_verdict(newest) if newest else None
        newest_decision = decided.get((row.run_id, row.variant, newest.sha256)) if newest else None
        yield VariantLine(
            run_id=row.run_id,
            variant=row.variant,
            created_at=row.created_at,
            word=verdict.word if verdict else None,
            reason=verdict.reasons[0] if verdict and verdict.reasons else "",
            action=newest_decision.action if newest_decision else None,
            name=newest_decision.name if newest_decision else None,
            called=calls.get(row.run_id, Called()),
            superseded_by=passed.get(row.run_id, ""),
            since=row.since,
            claim=held.get((row.run_id, row.variant)),
        )
