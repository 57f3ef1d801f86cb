"""Signatures of verdicts and decisions, by a key that is not in the store.

Digests protect a store against damage. Whoever can write it can compute them anew, but not a signature. A verdict's
signature covers the evidence that it rests on, and all verdicts before it; a decision's covers its row, and with it
every decision before. What was written without a key can be vouched for later, by a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from qualgate.records.identity import content_hash
from qualgate.store import plain, votes
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.sealed import record_of, rows_of, sealed_row
from qualgate.store.signing.envelope import NotSigned, opened, sign
from qualgate.store.signing.keys import own_key
from qualgate.store.tables import decisions, verdicts

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

TYPE = "application/vnd.qualgate.seal+json"
START = "0" * 64  # before the first verdict
_OF_CHAIN = ("run_id", "variant", "sha256", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouched:
    """A signature given later, to a decision that was made without a key."""

    decision: str  # its hash
    signature: str


class ToSign:
    """What the signatures of verdicts that are about to be written cover; read once for all of them."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection, self._run_id, self._head = connection, run_id, ""

    @cached_property
    def evidence(self) -> str:
        """The seal of the run's evidence."""
        return evidence_seal(self._connection, self._run_id)

    @cached_property
    def _log(self) -> str:
        return votes.log(self._connection, self._run_id)

    def log(self, policy_json: str) -> str:
        """The `log` of people's preferences where the policy asks people, else ""."""
        return self._log if votes.asks_people(plain.policy(policy_json)) else ""

    def is_due(self, newest: Any) -> bool:
        """Whether a verdict that says the same as the newest needs a row of its own: there is a key, and the newest
        one's signature covers other evidence."""
        if (key := own_key()) is None:
            return False
        try:
            body, _ = opened(newest.signature or "", TYPE, [key.public_key])
        except NotSigned:
            return True
        return body.get("evidence") != self.evidence or body.get("votes") != self.log(newest.policy_json)

    def signature(self, row: Mapping[str, Any]) -> str | None:
        """Return the signature of a verdict's row, the next to be written; None without a key of our own."""
        if (key := own_key()) is None:
            return None
        before = self._head or verdict_chain(self._connection)[1]
        self._head = content_hash([before, *(row[name] for name in _OF_CHAIN)])
        body = _of_verdict(row, self.evidence, before) | {"votes": self.log(row["policy_json"])}
        return sign(body, TYPE, key)


def of_decision(row: Mapping[str, Any], seal: str) -> str | None:
    """Return the signature of a decision that is about to be written; None without a key of our own. seal: of its
    run's evidence."""
    key = own_key()
    return None if key is None else sign(_of_decision(row, seal), TYPE, key)


def vouched_row(row: Any, seal: str) -> dict[str, Any]:
    """Return the row of `sealed` that vouches for a decision. row: all its columns. seal: as for `of_decision`."""
    signature = of_decision(row._mapping, seal)
    record = Vouched(decision=row.hash, signature=signature or "")
    return sealed_row("vouched", record, run_id=row.run_id, name=row.hash)


def verdict_chain(connection: Connection) -> tuple[int, str]:
    """Return the number of verdicts in the store, and the hash over them in the order of writing."""
    rows = list(_chained(connection))
    return len(rows) - 1, rows[-1][1]


def verdict_chain_at(connection: Connection, count: int) -> str | None:
    """Return that hash over the first `count` verdicts; None if there are fewer."""
    return next((head for number, (_, head) in enumerate(_chained(connection)) if number == count), None)


def faults(
    connection: Connection, keys: Sequence[SSlibKey], run_id: str | None = None, seal: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (run, line) for each verdict and decision whose signature is missing, by none of `keys` or of something
    else, and for evidence that changed since the newest verdicts were signed. run_id: only of this run, whose
    `evidence_seal` is `seal` (None: not computed yet). A verdict without a signature before a newer one on its variant
    is no fault."""
    chain = dict(_chained(connection))
    chosen = select(verdicts).order_by(verdicts.c.run_id, verdicts.c.verdict_id)
    rows = connection.execute(chosen if run_id is None else chosen.where(verdicts.c.run_id == run_id)).all()
    newest = {(row.run_id, row.variant): row for row in rows}
    seals = {} if run_id is None or seal is None else {run_id: seal}
    for row in rows:
        is_newest = row is newest[row.run_id, row.variant]
        if row.signature is None and not is_newest:
            continue  # what was written before there was a key is covered by what was signed after it
        what = f"the verdict on {row.variant!r} of {row.created_at[:16]}"
        fault, evidence, logged = _fault(row.signature, _of_verdict(row._mapping, "", chain[row.verdict_id]), keys)
        if fault:
            yield row.run_id, f"{what} {fault}"
        elif is_newest:
            if row.run_id not in seals:
                seals[row.run_id] = evidence_seal(connection, row.run_id)
            if evidence != seals[row.run_id]:
                yield row.run_id, f"the evidence is not what it was when {what} was signed"
            elif logged and votes.log(connection, row.run_id, int(logged.split()[0])) != logged:
                yield row.run_id, f"people's preferences are not what they were when {what} was signed"
    yield from decision_faults(connection, keys, run_id)


def decision_faults(
    connection: Connection, keys: Sequence[SSlibKey], run_id: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (run, line) for each decision that none of `keys` signed or vouched for as it stands."""
    chosen = select(decisions).order_by(decisions.c.decision_id)
    vouched = dict[str, str]()
    for row in connection.execute(rows_of("vouched")):
        record = record_of(Vouched, row)
        vouched[record.decision] = record.signature
    for row in connection.execute(chosen if run_id is None else chosen.where(decisions.c.run_id == run_id)).all():
        fault, *_ = _fault(row.signature or vouched.get(row.hash), _of_decision(row._mapping, ""), keys)
        if fault:
            yield row.run_id, f"the decision {row.action} {row.variant!r} of {row.created_at[:16]} {fault}"


def _fault(signature: str | None, expected: dict[str, str], keys: Sequence[SSlibKey]) -> tuple[str, str, str]:
    """Return what is wrong with a signature, or "", and the evidence and the preferences that it covers. expected:
    what it must say beside these."""
    if signature is None:
        return "is not signed", "", ""
    try:
        body, _ = opened(signature, TYPE, keys)
    except NotSigned as error:
        return f"is not as signed: {error}", "", ""
    covered = body.get("evidence", ""), body.get("votes", "")
    if {name: value for name, value in body.items() if name != "votes"} | {"evidence": ""} != expected:
        return "has the signature of another one, or stands at another place than when it was signed", "", ""
    return "", *covered


def _of_verdict(row: Any, evidence: str, before: str) -> dict[str, str]:
    return {
        "what": "verdict",
        "run": row["run_id"],
        "variant": row["variant"],
        "verdict": row["sha256"],
        "made": row["created_at"],
        "evidence": evidence,
        "before": before,
    }


def _of_decision(row: Any, evidence: str) -> dict[str, str]:
    return {
        "what": "decision",
        "run": row["run_id"],
        "variant": row["variant"],
        "decision": row["hash"],
        "evidence": evidence,
    }


def _chained(connection: Connection) -> Iterator[tuple[int, str]]:
    """Yield (id of a verdict, hash over all before it) in the order of writing, and last (0, hash over all)."""
    head = START
    columns = (verdicts.c[name] for name in _OF_CHAIN)
    for verdict_id, *values in connection.execute(
        select(verdicts.c.verdict_id, *columns).order_by(verdicts.c.verdict_id)
    ):
        yield verdict_id, head
        head = content_hash([head, *values])
    yield 0, head
