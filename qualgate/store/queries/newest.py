"""The newest verdict of a variant, the decision about it, and the newest run."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, and_, exists, func, select
from sqlalchemy.sql import ColumnElement

from qualgate.errors import IntegrityError, UsageError
from qualgate.store.database import Store
from qualgate.store.prunings import pruned_runs
from qualgate.store.queries.trials import IS_TRIAL
from qualgate.store.tables import arms, decisions, evalsets, runs, verdicts

_newer_verdict, _newer_decision = verdicts.alias("newer_verdict"), decisions.alias("newer_decision")
CURRENT_VERDICT = (  # of each variant in each run; looked up by index, so that a page does not look through all runs'
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
CURRENT_DECISION = (  # of each verdict that has one
    select(decisions)
    .where(
        ~exists().where(
            _newer_decision.c.run_id == decisions.c.run_id,
            _newer_decision.c.variant == decisions.c.variant,
            _newer_decision.c.verdict_sha256 == decisions.c.verdict_sha256,
            _newer_decision.c.decision_id > decisions.c.decision_id,
        )
    )
    .subquery("current_decision")
)


def check_verdicts_placed(connection: Connection) -> None:
    """Raise IntegrityError for a verdict on no variant of a run: an older one would count in its stead."""
    placed = and_(arms.c.run_id == verdicts.c.run_id, arms.c.name == verdicts.c.variant)
    lost = select(verdicts.c.verdict_id).outerjoin(arms, placed).where(arms.c.name.is_(None))
    if (number := connection.execute(lost).scalar()) is not None:
        raise IntegrityError(
            f"verdict {number} of this store is on no variant of a run that it holds. Restore it from a backup; no "
            "verdict can rest on it as it is."
        )


def latest_run(store: Store) -> str:
    """Id of the newest run that is no trial. Raises UsageError when there is none."""
    with store.read() as connection:
        newest = select(runs.c.run_id).order_by(runs.c.created_at.desc()).limit(1)
        found = connection.execute(newest.where(~IS_TRIAL)).scalar()
        trial = connection.execute(newest).scalar()
    if found is None and trial is not None:
        raise UsageError(
            f"{store.url} holds trials alone, which decide nothing. `qualgate run GATE_FILE` makes a run; "
            f"--run {trial} shows the newest trial."
        )
    if found is None:
        raise UsageError(f"{store.url} holds no run yet. `qualgate run GATE_FILE` makes one.")
    return found


def latest_run_of(
    store: Store, arm_names: Sequence[str], evalset_names: Sequence[str], *, before: str = ""
) -> str | None:
    """Id of the newest run of exactly these arms on exactly these sets that is no trial, None when there is none.

    Two gate files may share a store: one's policy must never judge the other's run. before: a run that is not meant,
    because it is the one under way.
    """
    statement = (
        select(runs.c.run_id)
        .where(
            _named_exactly(arms, arm_names), _named_exactly(evalsets, evalset_names), ~IS_TRIAL, runs.c.run_id != before
        )
        .order_by(runs.c.created_at.desc())
        .limit(1)
    )
    with store.read() as connection:
        return connection.execute(statement).scalar()


def newest_complete(store: Store, plan_key: str) -> tuple[str, str] | None:
    """The newest complete run of this key whose answers are in the store, and when it was finished (UTC text); None
    when there is none. A model that is put back as it was may have had a run that was pruned since."""
    statement = (
        select(runs.c.run_id, runs.c.finished_at)
        .where(runs.c.plan_key == plan_key, runs.c.status == "complete", ~IS_TRIAL)
        .order_by(runs.c.created_at.desc())
    )
    with store.read() as connection:
        away = pruned_runs(connection)
        found = next((one for one in connection.execute(statement) if one.run_id not in away), None)
    return None if found is None else (found.run_id, found.finished_at or "")


def _named_exactly(table: Table, names: Sequence[str]) -> ColumnElement[bool]:
    """The run's rows of `table` have these names, no more and no fewer."""
    counted = select(func.count()).select_from(table).where(table.c.run_id == runs.c.run_id)
    counted = counted.where(table.c.name.not_like("%@%"))  # witnesses and A/A: not in the gate file
    wanted = set(names)
    every, fitting = counted.scalar_subquery(), counted.where(table.c.name.in_(wanted)).scalar_subquery()
    return and_(every == len(wanted), fitting == len(wanted))
