"""The newest verdict of a variant, the decision about it, and the newest run."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, and_, bindparam, exists, func, or_, select
from sqlalchemy.sql import ColumnElement

from qualgate.errors import IntegrityError
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.prunings import pruned_runs
from qualgate.store.queries.deciding import DECIDES, nothing_decided
from qualgate.store.tables import arms, decisions, evalsets, runs, verdicts

_newer_verdict, _newer_decision = verdicts.alias("newer_verdict"), decisions.alias("newer_decision")
CURRENT_VERDICT = (  # the newest verdict of each variant in each run, found by index without reading all verdicts
    select(verdicts)
    .where(
        ~exists().where(
            _newer_verdict.c.run_id == verdicts.c.run_id,
            _newer_verdict.c.variant == verdicts.c.variant,
            _newer_verdict.c.verdict_id > verdicts.c.verdict_id,
        )
    )
    .subquery("current_verdict")
)
CURRENT_DECISION = (  # the newest decision on each verdict, where it is in force
    select(decisions)
    .where(
        decisions.c.action != "revoke",
        decisions.c.needed == 0,
        or_(decisions.c.expires_at.is_(None), decisions.c.expires_at > bindparam("now", callable_=lambda: plain.now())),
        ~exists().where(
            _newer_decision.c.run_id == decisions.c.run_id,
            _newer_decision.c.variant == decisions.c.variant,
            _newer_decision.c.verdict_sha256 == decisions.c.verdict_sha256,
            _newer_decision.c.decision_id > decisions.c.decision_id,
        ),
    )
    .subquery("current_decision")
)


def check_verdicts_placed(connection: Connection) -> None:
    """Raise IntegrityError for a verdict on no variant of a run: an older verdict would count in its place."""
    placed = and_(arms.c.run_id == verdicts.c.run_id, arms.c.name == verdicts.c.variant)
    lost = select(verdicts.c.verdict_id).outerjoin(arms, placed).where(arms.c.name.is_(None))
    if (number := connection.execute(lost).scalar()) is not None:
        raise IntegrityError(
            f"verdict {number} of this store belongs to no variant of a stored run. Restore it from a backup; until "
            "then, trust no verdict in it."
        )


def latest_run(store: Store) -> str:
    """Return the id of the newest run that decides. Raises UsageError if there is none."""
    with store.read() as connection:
        newest = select(runs.c.run_id).order_by(runs.c.created_at.desc()).limit(1)
        run_id = connection.execute(newest.where(DECIDES)).scalar()
        newest_id = connection.execute(newest).scalar()
    if run_id is None:
        raise nothing_decided(store.url, newest_id)
    return run_id


def latest_run_of(
    store: Store, arm_names: Sequence[str], evalset_names: Sequence[str], *, before: str = ""
) -> str | None:
    """Return the id of the newest run of exactly these arms and sets that decides; None if there is none.

    Two gate files may share a store: one's policy must never judge the other's run. before: a run to leave out, such as
    the one under way.
    """
    statement = (
        select(runs.c.run_id)
        .where(
            _named_exactly(arms, arm_names), _named_exactly(evalsets, evalset_names), DECIDES, runs.c.run_id != before
        )
        .order_by(runs.c.created_at.desc())
        .limit(1)
    )
    with store.read() as connection:
        return connection.execute(statement).scalar()


def newest_complete(store: Store, plan_key: str) -> tuple[str, str] | None:
    """Return the newest complete run of this key that was not pruned, and when it finished (UTC text); None if there is
    none."""
    statement = (
        select(runs.c.run_id, runs.c.finished_at)
        .where(runs.c.plan_key == plan_key, runs.c.status == "complete", DECIDES)
        .order_by(runs.c.created_at.desc())
    )
    with store.read() as connection:
        away = pruned_runs(connection)
        newest = next((run for run in connection.execute(statement) if run.run_id not in away), None)
    return None if newest is None else (newest.run_id, newest.finished_at or "")


def _named_exactly(table: Table, names: Sequence[str]) -> ColumnElement[bool]:
    """Return the SQL condition that the run's rows of `table` have exactly these names."""
    counted = select(func.count()).select_from(table).where(table.c.run_id == runs.c.run_id)
    counted = counted.where(table.c.name.not_like("%@%"))  # witnesses and A/A: not in the gate file
    distinct = set(names)
    total, fitting = counted.scalar_subquery(), counted.where(table.c.name.in_(distinct)).scalar_subquery()
    return and_(total == len(distinct), fitting == len(distinct))
