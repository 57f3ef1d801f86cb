"""What people did with verdicts: append-only, each row chained to the one before by its hash."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal
from unicodedata import category

from sqlalchemy import Connection, Row, insert, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.identity import content_hash
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.rows import check_run
from qualgate.store.runs import verdict_digest
from qualgate.store.tables import decisions, runs, verdicts

Action = Literal["approve", "block"]
BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols to Unicode, empty on a screen
GENESIS = "0" * 64  # what the first row is chained to
CHAINED = ("run_id", "variant", "verdict_sha256", "action", "name", "reason", "created_at", "prev_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided about a verdict, one row of the chain."""

    run_id: str
    variant: str
    verdict_sha256: str  # of the verdict the person saw
    action: Action
    name: str
    reason: str
    created_at: str
    hash: str


def append(
    store: Store,
    run_id: str,
    variant: str,
    action: Action,
    *,
    name: str,
    reason: str,
    verdict_sha256: str,
    after: str | None = None,
) -> Decision:
    """Record a person's decision about the verdict they saw.

    after: hash of the newest decision on this variant that they saw, None when there was none.
    Raises UsageError, and records nothing, when name or reason is empty or invisible, when the verdict or the
    decisions are no longer what they saw, when an invalid run would be approved, or when the run is a trial.
    """
    name, reason = plain.storable(name).strip(), plain.storable(reason).strip()
    if action not in ("approve", "block"):
        raise UsageError(f"a decision is approve or block, not {action!r}.")
    if not _seen(name) or not _seen(reason):
        raise UsageError("a decision needs a name and a reason that can be read; fill in both.")
    with store.write() as connection:
        verdict = connection.execute(
            select(verdicts.c.sha256, verdicts.c.policy_json, verdicts.c.body_json)
            .where(verdicts.c.run_id == run_id, verdicts.c.variant == variant)
            .order_by(verdicts.c.verdict_id.desc())
            .limit(1)
        ).one_or_none()
        if verdict is None:
            raise UsageError(f"run {run_id} has no verdict for {variant!r} yet; there is nothing to decide.")
        if verdict.sha256 != verdict_sha256:
            raise UsageError(f"the verdict for {variant!r} has changed since you opened it. Look at the new one first.")
        if verdict.sha256 != verdict_digest(run_id, verdict.policy_json, verdict.body_json):
            raise IntegrityError(f"the stored verdict for {variant!r} of run {run_id} is not what was recorded.")
        _refuse_trial(connection, run_id)
        if action == "approve" and json.loads(verdict.body_json)["word"] == "invalid":
            raise UsageError(f"{variant!r} cannot be approved: its run is invalid. Run it again.")
        newest = of_variant(connection, run_id, variant)[-1:]
        if newest and newest[0].hash != after:
            raise UsageError(
                f"{newest[0].name} has decided {newest[0].action!r} for {variant!r} since you opened it. "
                "Look at that decision first."
            )
        head = connection.execute(select(decisions.c.hash).order_by(decisions.c.decision_id.desc()).limit(1)).scalar()
        row: dict[str, Any] = {
            "run_id": run_id,
            "variant": variant,
            "verdict_sha256": verdict_sha256,
            "action": action,
            "name": name,
            "reason": reason,
            "created_at": plain.now(),
            "prev_hash": head or GENESIS,
        }
        row["hash"] = row_hash(row)
        connection.execute(insert(decisions), row)
        return _decision(row)


def _refuse_trial(connection: Connection, run_id: str) -> None:
    run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one()
    check_run(run)
    if (trial := plain.policy(run.policy_json).trial) is not None:
        raise UsageError(f"run {run_id} is a {trial.said}. Nothing is decided about it: make a run of all cases.")


def _seen(text: str) -> bool:
    """At least one mark that a reader sees: a letter, digit, sign or symbol that is not blank."""
    return any(category(mark)[0] in "LNPS" and mark not in BLANK for mark in text)


def of_variant(connection: Connection, run_id: str, variant: str) -> tuple[Decision, ...]:
    """Oldest first; the newest counts."""
    rows = connection.execute(
        select(decisions)
        .where(decisions.c.run_id == run_id, decisions.c.variant == variant)
        .order_by(decisions.c.decision_id)
    )
    return tuple(_decision(row._mapping) for row in rows)


def check_chain(store: Store) -> str:
    """Recompute the whole chain. Returns the hash of its head; raises IntegrityError naming the first broken row."""
    head = GENESIS
    with store.read() as connection:
        for row in connection.execute(select(decisions).order_by(decisions.c.decision_id)):
            if row.prev_hash != head:
                raise IntegrityError(_broken(row, "does not follow the row before it: one was removed, added or moved"))
            if row.hash != row_hash(row._mapping):
                raise IntegrityError(_broken(row, "is not what was written"))
            head = row.hash
    return head


def row_hash(row: Any) -> str:
    """sha256 over the CHAINED columns, the hash of the row before among them."""
    return content_hash({name: row[name] for name in CHAINED})


def _broken(row: Row[Any], what: str) -> str:
    return (
        f"the chain of decisions is broken: decision {row.decision_id} ({row.action} {row.variant}, run {row.run_id}) "
        f"{what}. Restore the store from a backup."
    )


def _decision(row: Any) -> Decision:
    return Decision(**{name: row[name] for name in Decision.__dataclass_fields__})
