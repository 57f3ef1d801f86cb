"""Lists a page at a time: runs, variants nobody has decided about, decisions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select
from sqlalchemy.sql import ColumnElement

from qualgate.store.database import Store
from qualgate.store.decisions import Decision
from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT
from qualgate.store.queries.progress import unit_counts
from qualgate.store.queries.trials import IS_TRIAL
from qualgate.store.tables import arms, decisions, runs, verdicts

PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLine:
    """One variant of one run in a list. `word` is None until there is a verdict."""

    run_id: str
    variant: str
    created_at: str  # of the run
    word: str | None
    reason: str
    action: str | None  # the newest decision on the newest verdict
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run as a list shows it."""

    run_id: str
    status: str
    created_at: str
    finished_at: str | None
    expected: int  # units
    done: int
    errors: int
    settled: int  # ended without an answer, see `store.stoppings`
    trial: bool  # it decides nothing
    variants: tuple[VariantLine, ...]


def list_runs(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[RunLine, ...]:
    """Newest first."""
    with store.read() as connection:
        found = connection.execute(
            select(runs.c.run_id, runs.c.status, runs.c.created_at, runs.c.finished_at, IS_TRIAL.label("trial"))
            .order_by(runs.c.created_at.desc(), runs.c.run_id)
            .limit(limit)
            .offset(offset)
        ).all()
        ids = [row.run_id for row in found]
        counts = unit_counts(connection, ids)
        lines = defaultdict(list)
        for line in _variant_lines(connection, arms.c.run_id.in_(ids)):
            lines[line.run_id].append(line)
    return tuple(
        RunLine(
            **row._mapping,
            expected=sum(number for (run_id, _, _), number in counts.items() if run_id == row.run_id),
            done=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "done")),
            errors=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "error")),
            settled=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "settled")),
            variants=tuple(lines[row.run_id]),
        )
        for row in found
    )


def count_runs(store: Store) -> int:
    """Of every status."""
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(runs)).scalar_one()


def queue(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[VariantLine, ...]:
    """Variants of complete runs, but of no trial, whose newest verdict nobody has decided about, newest run first."""
    with store.read() as connection:
        return tuple(_variant_lines(connection, _WAITING, limit, offset))


def count_queue(store: Store) -> int:
    """How long `queue` is without a limit."""
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(_LINES.where(_WAITING).subquery())).scalar_one()


def list_decisions(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[Decision, ...]:
    """Newest first."""
    columns = [decisions.c[name] for name in Decision.__dataclass_fields__]
    with store.read() as connection:
        rows = connection.execute(select(*columns).order_by(decisions.c.decision_id.desc()).limit(limit).offset(offset))
        return tuple(Decision(**row._mapping) for row in rows)


def verdict_words(store: Store, sha256s: Sequence[str]) -> dict[str, str]:
    """sha256 of a verdict → its word, of those that the store has: what the gate had said when a person decided."""
    with store.read() as connection:
        rows = connection.execute(select(verdicts.c.sha256, verdicts.c.word).where(verdicts.c.sha256.in_(sha256s)))
        return {row.sha256: row.word for row in rows}


_LINES = (
    select(
        arms.c.run_id,
        arms.c.name.label("variant"),
        runs.c.created_at,
        CURRENT_VERDICT.c.word,
        CURRENT_VERDICT.c.body_json,
        CURRENT_DECISION.c.action,
        CURRENT_DECISION.c.name.label("person"),
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
    ~IS_TRIAL,
)


def _variant_lines(
    connection: Connection, which: ColumnElement[bool], limit: int | None = None, offset: int | None = None
) -> Iterable[VariantLine]:
    rows = connection.execute(
        _LINES.where(which)
        .order_by(runs.c.created_at.desc(), arms.c.run_id, arms.c.position)
        .limit(limit)
        .offset(offset)
    )
    for row in rows:
        reasons = json.loads(row.body_json)["reasons"] if row.body_json else ()
        yield VariantLine(
            run_id=row.run_id,
            variant=row.variant,
            created_at=row.created_at,
            word=row.word,
            reason=reasons[0] if reasons else "",
            action=row.action,
            name=row.person,
        )
