"""People's decisions on verdicts: append-only, each row chained to the previous one by its hash."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from unicodedata import category

from sqlalchemy import Connection, Row, insert, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.records.identity import content_hash
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.evidence import check_evidence
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import check_run, check_verdict
from qualgate.store.tables import decisions, runs, verdicts
from qualgate.text.escaping import BLANK

Action = Literal["approve", "block"]
GENESIS = "0" * 64  # previous hash of the first row
CHAINED = ("run_id", "variant", "verdict_sha256", "action", "name", "reason", "created_at", "prev_hash")
DOUBLE_CLICK = timedelta(seconds=10)  # an identical decision within this time is a double click


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision about a verdict, one row of the chain."""

    run_id: str
    variant: str
    verdict_sha256: str  # of the verdict the person saw
    action: Action
    name: str
    reason: str
    created_at: str
    hash: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The state that a person saw beside the verdict."""

    decision: str | None = None  # hash of the newest decision on the variant; None if there was none
    seal: str | None = None  # `evidence_seal` of the evidence that was checked for them; None: unchecked


UNSEEN = Seen()


def append(
    store: Store,
    run_id: str,
    variant: str,
    action: Action,
    *,
    name: str,
    reason: str,
    verdict_sha256: str,
    seen: Seen = UNSEEN,
) -> Decision:
    """Record a person's decision about the verdict they saw, and return it.

    An approval checks the run's evidence once more, which takes seconds for a large run. The same decision with the
    same reason about the same verdict within DOUBLE_CLICK is a double click: the first one is returned.

    Raises:
        UsageError: Nothing is recorded, because name or reason is empty or invisible, the verdict, the evidence or
            the decisions are no longer what they saw, an invalid run would be approved, or the run decides nothing.
        IntegrityError: What the decision rests on is not what was recorded.
    """
    name, reason = plain.storable(name).strip(), plain.storable(reason).strip()
    if action not in ("approve", "block"):
        raise UsageError(f"a decision is approve or block, not {action!r}.")
    if not is_readable(name) or not is_readable(reason):
        raise UsageError("a decision needs a name and a reason, neither of them blank; fill in both.")
    row: dict[str, Any] = {
        "run_id": run_id,
        "variant": variant,
        "verdict_sha256": verdict_sha256,
        "action": action,
        "name": name,
        "reason": reason,
        "created_at": plain.now(),
    }
    if action == "approve":
        with store.read() as connection:
            _refuse_changed(connection, run_id, seen)
        check_evidence(store, run_id)  # the seal covers stored digests, so it misses a changed text or score
    return _append(store, row, seen)


@lasting
def _append(store: Store, row: dict[str, Any], seen: Seen) -> Decision:
    """Check the decision `row` once more in the write transaction, append it to the chain, and return it. seen: the
    state that the person saw. Raises UsageError if verdict, evidence or decisions have changed since, or an approval
    is not allowed."""
    run_id, variant, action = row["run_id"], row["variant"], row["action"]
    with store.write() as connection:
        verdict = connection.execute(
            select(verdicts)
            .where(verdicts.c.run_id == run_id, verdicts.c.variant == variant)
            .order_by(verdicts.c.verdict_id.desc())
            .limit(1)
        ).one_or_none()
        if verdict is None:
            raise UsageError(f"run {run_id} has no verdict for {variant!r} yet; there is nothing to decide.")
        if verdict.sha256 != row["verdict_sha256"]:
            raise UsageError(f"the verdict for {variant!r} has changed since you opened it. Look at the new one first.")
        _refuse_changed(connection, run_id, seen)
        if action == "approve":
            refuse_pruned(connection, run_id)  # it may have been pruned since its evidence was checked
        word = check_verdict(verdict).word
        _check_decides(connection, run_id)
        if action == "approve" and word == "invalid":
            raise UsageError(f"{variant!r} cannot be approved: its run is invalid. Run it again.")
        recorded = chain(connection)
        # The newest decision on this verdict's variant, or [] if there is none.
        newest = [decision for decision in recorded if (decision.run_id, decision.variant) == (run_id, variant)][-1:]
        if newest and newest[0].hash != seen.decision:
            if _is_double_click(newest[0], row):
                return newest[0]  # or it was committed and then the connection was lost
            raise UsageError(
                f"{newest[0].name} has decided {newest[0].action!r} for {variant!r} since you opened it. "
                "Look at that decision first."
            )
        chained = row | {"prev_hash": recorded[-1].hash if recorded else GENESIS}
        chained["hash"] = row_hash(chained)
        connection.execute(insert(decisions), chained)
        return _decision(chained)


def _refuse_changed(connection: Connection, run_id: str, seen: Seen) -> None:
    """Raise UsageError if the run's evidence has another seal than the person saw. A decision without a seen seal is
    not checked."""
    if seen.seal is not None and (seal := evidence_seal(connection, run_id)) != seen.seal:
        raise UsageError(
            f"the evidence of run {run_id} has changed since you opened it: its seal was {seen.seal[:12]} and is now "
            f"{seal[:12]}. Look at the run again."
        )


def _is_double_click(newest: Decision, row: dict[str, Any]) -> bool:
    """Whether `row` repeats the newest decision, with the same reason about the same verdict, within DOUBLE_CLICK."""
    if any(getattr(newest, key) != row[key] for key in ("action", "name", "reason", "verdict_sha256")):
        return False
    return abs(datetime.fromisoformat(row["created_at"]) - datetime.fromisoformat(newest.created_at)) < DOUBLE_CLICK


def _check_decides(connection: Connection, run_id: str) -> None:
    run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one()
    check_run(run)
    if why := plain.policy(run.policy_json).decides_nothing:
        raise UsageError(f"run {run_id} is a {why}. It cannot be decided: make a run of all cases.")


def is_readable(text: str) -> bool:
    """Whether the text has a visible character: a letter, digit, sign or symbol that is not blank."""
    return any(category(mark)[0] in "LNPS" and mark not in BLANK for mark in text)


def chain(connection: Connection) -> tuple[Decision, ...]:
    """Return every decision, oldest first, after recomputing the whole chain; the newest on a verdict counts. Raises
    IntegrityError naming the first broken row."""
    head, chained = GENESIS, []
    for row in connection.execute(select(decisions).order_by(decisions.c.decision_id)):
        if row.prev_hash != head:
            raise IntegrityError(_broken(row, "does not follow the row before it: one was removed, added or moved"))
        if row.hash != row_hash(row._mapping):
            raise IntegrityError(_broken(row, "is not what was written"))
        head = row.hash
        chained.append(_decision(row._mapping))
    return tuple(chained)


def check_chain(store: Store) -> str:
    """Return the hash of the chain's head. Raises as `chain` does."""
    with store.read() as connection:
        recorded = chain(connection)
    return recorded[-1].hash if recorded else GENESIS


def row_hash(row: Any) -> str:
    """Return the sha256 of the CHAINED columns, which include the previous row's hash."""
    return content_hash({name: row[name] for name in CHAINED})


def _broken(row: Row[Any], fault: str) -> str:
    return (
        f"the chain of decisions is broken: decision {row.decision_id} ({row.action} {row.variant}, run {row.run_id}) "
        f"{fault}. Restore the store from a backup."
    )


def _decision(row: Any) -> Decision:
    return Decision(**{name: row[name] for name in Decision.__dataclass_fields__})
