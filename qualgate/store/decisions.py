"""People's decisions on verdicts: append-only, each row chained to the previous one by its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from unicodedata import category

from sqlalchemy import Connection, Row, insert, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import Policy, Verdict
from qualgate.records.identity import content_hash
from qualgate.store import people, plain, signatures, votes
from qualgate.store.database import Store
from qualgate.store.evidence import check_evidence
from qualgate.store.evidence_seal import SealBefore, seal_before
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import check_run, check_verdict
from qualgate.store.signing.keys import own_key, trusted_keys
from qualgate.store.tables import decisions, runs, verdicts
from qualgate.text.escaping import BLANK

Action = Literal["approve", "block", "revoke"]
GENESIS = "0" * 64  # previous hash of the first row
CHAINED = (
    *("run_id", "variant", "verdict_sha256", "action", "name", "reason", "overrules", "signed_in", "expires_at"),
    *("needed", "created_at", "prev_hash"),
)
SAME = ("action", "name", "reason", "overrules", "signed_in", "verdict_sha256")  # in both rows of a double click
DOUBLE_CLICK = timedelta(seconds=10)  # an identical decision within this time is a double click
OVERRULED = ("block", "undecided")  # words that only a reasoned approval overrules; an invalid run is never approved
REASONED = 20  # characters of the reason to overrule, at least
FOREVER = timedelta(days=3660)  # no approval is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a person decides."""

    action: Action
    name: str
    reason: str
    overrules: str = ""  # what an approval overrules, one of `overruled`
    expires_at: str | None = None  # as `plain.stamp` writes it; None: an approval without an end
    signed_in: str = ""  # who, as the login provider names them; "": nobody, and the name is as typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Said):
    """A person's decision about a verdict, one row of the chain."""

    run_id: str
    variant: str
    verdict_sha256: str  # of the verdict the person saw
    needed: int  # approvals by other people that are still needed; 0: it counts
    created_at: str
    hash: str

    @property
    def by(self) -> str:
        """Who decided, for people."""
        return f"{self.name} ({self.signed_in or 'unauthenticated'})"

    def stands(self, now: str) -> bool:
        """Whether it is in force at a time (UTC text): whole, neither a revocation nor expired."""
        return self.action != "revoke" and not self.needed and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state that a person saw."""

    verdict: str  # sha256 of the verdict
    decision: str | None = None  # hash of the newest decision on the variant; None if there was none
    seal: str | None = None  # `evidence_seal` of the evidence that was checked for them; None: unchecked


def overruled(verdict: Verdict) -> tuple[str, ...]:
    """Return what an approval may say that it overrules: the rules that are not proven, as "metric [slice]", the
    critical ones first; the verdict itself where no rule failed; () where it overrules nothing."""
    if verdict.word not in OVERRULED:
        return ()
    ordered = sorted(verdict.comparisons, key=lambda one: (one.tier != "critical", one.status != "broken"))
    failed = dict.fromkeys(one.head for one in ordered if one.status != "proven")
    return (*failed,) or (f"the verdict: {verdict.word}",)


def append(store: Store, run_id: str, variant: str, said: Said, seen: Seen) -> Decision:
    """Record a person's decision about the verdict they saw, and return it.

    An approval checks the run's evidence once more, which takes seconds for a large run. The same decision with the
    same reason about the same verdict within DOUBLE_CLICK is a double click: the first one is returned.

    Raises:
        UsageError: Nothing is recorded, because name or reason is empty or invisible, the verdict, the evidence or
            the decisions are no longer what they saw, an approval that overrules the gate does not say why, an invalid
            run would be approved, or the run decides nothing.
        IntegrityError: What the decision rests on is not what was recorded.
    """
    said = replace(said, name=plain.storable(said.name).strip(), reason=plain.storable(said.reason).strip())
    if said.action not in get_args(Action):
        raise UsageError(f"a decision is {', '.join(get_args(Action))}, not {said.action!r}.")
    if not is_readable(said.name) or not is_readable(said.reason):
        raise UsageError("a decision needs a name and a reason, neither of them blank; fill in both.")
    row: dict[str, Any] = {
        **asdict(said),
        "run_id": run_id,
        "variant": variant,
        "verdict_sha256": seen.verdict,
        "created_at": plain.now(),
    }
    _check_expiry(row)
    # Read before the write lock, where everybody would wait for it; without anybody who asks for it, not at all.
    before = seal_before(store, run_id) if seen.seal is not None or trusted_keys() or own_key() else None
    _refuse_changed(run_id, seen, before.seal if before else None)
    if said.action == "approve":
        check_evidence(store, run_id)  # the seal covers stored digests, so it misses a changed text or score
    return _append(store, row, seen, before)


def _check_expiry(row: dict[str, Any]) -> None:
    """Raise UsageError for an end that is none: of another action than an approval, past, or too far away."""
    if (end := row["expires_at"]) is None:
        return
    if row["action"] != "approve":
        raise UsageError("only an approval expires; leave the time out.")
    made, ends = datetime.fromisoformat(row["created_at"]), datetime.fromisoformat(end)
    if not made < ends <= made + FOREVER or plain.stamp(ends) != end:
        raise UsageError(f"an approval must expire after it is made and within ten years, not at {end}.")


@lasting
def _append(store: Store, row: dict[str, Any], seen: Seen, before: SealBefore | None) -> Decision:
    """Check the decision `row` once more in the write transaction, append it to the chain, and return it. seen: the
    state that the person saw. before: of the evidence; None if neither they nor a key ask for it. Raises UsageError if
    verdict, evidence or decisions have changed since, or an approval is not allowed."""
    run_id, variant, action = row["run_id"], row["variant"], row["action"]
    with store.write() as connection:
        seal = before.now(store, connection) if before else None
        stored = connection.execute(
            select(verdicts)
            .where(verdicts.c.run_id == run_id, verdicts.c.variant == variant)
            .order_by(verdicts.c.verdict_id.desc())
            .limit(1)
        ).one_or_none()
        if stored is None:
            raise UsageError(f"run {run_id} has no verdict for {variant!r} yet; there is nothing to decide.")
        if stored.sha256 != seen.verdict:
            raise UsageError(f"the verdict for {variant!r} has changed since you opened it. Look at the new one first.")
        _refuse_changed(run_id, seen, seal)
        if action == "approve":
            refuse_pruned(connection, run_id)  # it may have been pruned since its evidence was checked
        verdict = check_verdict(stored)
        _check_decides(connection, run_id)
        if action == "approve" and verdict.word == "invalid":
            raise UsageError(f"{variant!r} cannot be approved: its run is invalid. Run it again.")
        policy = plain.policy(stored.policy_json)
        if action == "approve" and (stale := votes.changed(connection, run_id, verdict, policy)):
            raise UsageError(f"{variant!r} cannot be approved: {stale}.")
        if keys := trusted_keys():  # a row that nobody signed must not count as one of several approvals
            for _, fault in signatures.faults(connection, keys, run_id, seal):
                raise IntegrityError(f"run {run_id}: {fault}. Nothing was decided.")
        _check_person(connection, row, policy)
        recorded = chain(connection)
        on_variant = [decision for decision in recorded if (decision.run_id, decision.variant) == (run_id, variant)]
        newest = on_variant[-1] if on_variant else None
        if newest is not None and newest.hash != seen.decision:
            if _is_double_click(newest, row):
                return newest  # or it was committed and then the connection was lost
            raise UsageError(
                f"{newest.name} has decided {newest.action!r} for {variant!r} since you opened it. "
                "Look at that decision first."
            )
        _check_overruling(row, verdict, recorded)
        _check_revoking(row, newest)
        row |= _together(row, policy, on_variant)
        chained = row | {"prev_hash": recorded[-1].hash if recorded else GENESIS}
        chained["hash"] = row_hash(chained)
        signature = signatures.of_decision(chained, seal or "")
        connection.execute(insert(decisions), chained | {"signature": signature})
        return _decision(chained)


def _together(row: dict[str, Any], policy: Policy, earlier: Sequence[Decision]) -> dict[str, Any]:
    """Return how many more approvals a decision needs, and when it expires: with the first of those that it counts.
    earlier: the decisions on its variant."""
    counted: dict[str, Decision] = {}
    for one in earlier:
        if one.verdict_sha256 != row["verdict_sha256"] or one.action != "approve":
            counted = {}  # a block or a revocation begins anew
        elif one.expires_at is None or row["created_at"] < one.expires_at:
            counted[one.signed_in] = one
    counted.pop(row["signed_in"], None)
    counted.pop("", None)  # nobody signed in
    if row["action"] != "approve":
        return {"needed": 0}
    counted = counted if policy.approvals > 1 else {}
    ends = filter(None, (row["expires_at"], *(one.expires_at for one in counted.values())))
    return {"needed": max(0, policy.approvals - 1 - len(counted)), "expires_at": min(ends, default=None)}


def _check_person(connection: Connection, row: dict[str, Any], policy: Policy) -> None:
    """Raise UsageError unless the person may decide: by their role, and not on a run of their own. An admin may, with
    a reason of its own."""
    mine = people.check_may(connection, row["signed_in"], people.DECIDES, "decide")
    if mine is None and row["action"] == "approve" and policy.approvals > 1:
        raise UsageError(
            f"this policy asks for {policy.approvals} people, who must sign in: `qualgate people grant`, and "
            "`qualgate dashboard --login`."
        )
    if mine is None or row["action"] != "approve":
        return
    maker = connection.execute(select(runs.c.made_by).where(runs.c.run_id == row["run_id"])).scalar()
    own = {name.casefold() for name in (mine.person, *mine.makes_runs_as)}
    if maker and maker.casefold() not in own:
        return
    if mine.role != "admin":
        who = (
            f"{mine.person} made run {row['run_id']} (as {maker})"
            if maker
            else f"nobody knows who made run {row['run_id']}"
        )
        raise UsageError(f"{who}. {'Somebody else' if maker else 'An admin'} must approve it.")
    if len(_words(row["reason"])) < REASONED:
        raise UsageError(
            f"you made this run, or nobody knows who did. To approve it, give {REASONED} characters of reason or more."
        )


def _check_overruling(row: dict[str, Any], verdict: Verdict, recorded: Sequence[Decision]) -> None:
    """Raise UsageError unless an approval against the gate says which rule it overrules and why, in words of its own:
    not those of the variant's or the person's last decision."""
    choices = overruled(verdict) if row["action"] == "approve" else ()
    if row["overrules"] not in (choices or ("",)):
        named = "; ".join(choices)
        raise UsageError(
            f"the gate says {verdict.word}. An approval must say what it overrules, one of: {named}."
            if choices
            else f"this decision overrules nothing, not {row['overrules']!r:.80}."
        )
    if not choices:
        return
    words = _words(row["reason"])
    if len(words) < REASONED:
        raise UsageError(
            f"the gate says {verdict.word}. To overrule it, give a reason of {REASONED} characters or more."
        )
    mine = [one for one in recorded if one.name == row["name"]][-1:]
    others = [one for one in recorded if (one.run_id, one.variant) == (row["run_id"], row["variant"])][-1:]
    if any(_words(one.reason) == words for one in (*mine, *others)):
        raise UsageError("this is the reason of the last decision, word for word. Say why this verdict is overruled.")


def _words(reason: str) -> str:
    return " ".join(reason.casefold().split())


def _check_revoking(row: dict[str, Any], newest: Decision | None) -> None:
    """Raise UsageError for a revocation of nothing."""
    about = newest is not None and newest.verdict_sha256 == row["verdict_sha256"] and newest.action != "revoke"
    if row["action"] == "revoke" and not about:
        raise UsageError(f"there is no decision about this verdict of {row['variant']!r} to revoke.")


def _refuse_changed(run_id: str, seen: Seen, seal: str | None) -> None:
    """Raise UsageError if the run's evidence has another seal than the person saw. A decision without a seen seal is
    not checked."""
    if seen.seal is not None and seal is not None and seal != seen.seal:
        raise UsageError(
            f"the evidence of run {run_id} has changed since you opened it: its seal was {seen.seal[:12]} and is now "
            f"{seal[:12]}. Look at the run again."
        )


def _is_double_click(newest: Decision, row: dict[str, Any]) -> bool:
    """Whether `row` repeats the newest decision, with the same reason about the same verdict, within DOUBLE_CLICK."""
    if any(getattr(newest, key) != row[key] for key in SAME):
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
