"""Signatures of verdicts and decisions, by a key that is not in the store.

Digests protect a store against damage. Whoever can write it can compute them anew, but not a signature. A verdict's
signature covers the evidence that it rests on, and all verdicts before it; a decision's covers its row, and with it
every decision before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from qualgate.records.identity import content_hash
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.signing.envelope import NotSigned, opened, sign
from qualgate.store.signing.keys import own_key
from qualgate.store.tables import decisions, verdicts

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

TYPE = "application/vnd.qualgate.seal+json"
START = "0" * 64  # before the first verdict
_OF_CHAIN = ("run_id", "variant", "sha256", "created_at")


def of_verdict(connection: Connection, row: Mapping[str, Any]) -> str | None:
    """Return the signature of a verdict that is about to be written; None without a key of our own."""
    if (key := own_key()) is None:
        return None
    *_, (_, before) = _chained(connection)
    return sign(_of_verdict(row, evidence_seal(connection, row["run_id"]), before), TYPE, key)


def of_decision(connection: Connection, row: Mapping[str, Any]) -> str | None:
    """Return the signature of a decision that is about to be written; None without a key of our own."""
    if (key := own_key()) is None:
        return None
    return sign(_of_decision(row, evidence_seal(connection, row["run_id"])), TYPE, key)


def is_due(connection: Connection, newest: Any) -> bool:
    """Whether a verdict that says the same as the newest needs a row of its own: there is a key, and the evidence is
    no longer what the newest one's signature covers."""
    if (key := own_key()) is None:
        return False
    try:
        body, _ = opened(newest.signature or "", TYPE, [key.public_key])
    except NotSigned:
        return True
    return body.get("evidence") != evidence_seal(connection, newest.run_id)


def verdict_chain(connection: Connection) -> tuple[int, str]:
    """Return the number of verdicts in the store, and the hash over them in the order of writing."""
    rows = list(_chained(connection))
    return len(rows) - 1, rows[-1][1]


def verdict_chain_at(connection: Connection, count: int) -> str | None:
    """Return that hash over the first `count` verdicts; None if there are fewer."""
    return next((head for number, (_, head) in enumerate(_chained(connection)) if number == count), None)


def faults(connection: Connection, run_id: str, keys: tuple[SSlibKey, ...]) -> list[str]:
    """Return a line for each verdict and decision of a run whose signature is by none of `keys` or of something else,
    for the newest ones without a signature, and for evidence that changed since the newest verdicts were signed."""
    return [*_faults_of_verdicts(connection, run_id, keys), *_faults_of_decisions(connection, run_id, keys)]


def _faults_of_verdicts(connection: Connection, run_id: str, keys: tuple[SSlibKey, ...]) -> Iterator[str]:
    before, seal = dict(_chained(connection)), evidence_seal(connection, run_id)
    rows = connection.execute(select(verdicts).where(verdicts.c.run_id == run_id).order_by(verdicts.c.verdict_id)).all()
    newest = {row.variant: row for row in rows}
    for row in rows:
        if row.signature is None and row is not newest[row.variant]:
            continue  # what was written before there was a key is covered by what was signed after it
        what = f"the verdict on {row.variant!r} of {row.created_at[:16]}"
        fault, evidence = _fault(row, _of_verdict(row._mapping, "", before[row.verdict_id]), keys)
        if fault:
            yield f"{what} {fault}"
        elif evidence != seal and row is newest[row.variant]:
            yield f"the evidence is not what it was when {what} was signed"


def _faults_of_decisions(connection: Connection, run_id: str, keys: tuple[SSlibKey, ...]) -> Iterator[str]:
    chosen = select(decisions).where(decisions.c.run_id == run_id).order_by(decisions.c.decision_id)
    rows = connection.execute(chosen).all()
    newest = {row.variant: row for row in rows}
    for row in rows:
        if row.signature is None and row is not newest[row.variant]:
            continue
        fault, _ = _fault(row, _of_decision(row._mapping, ""), keys)
        if fault:
            yield f"the decision {row.action} {row.variant!r} of {row.created_at[:16]} {fault}"


def _fault(row: Any, expected: dict[str, str], keys: tuple[SSlibKey, ...]) -> tuple[str, str]:
    """Return what is wrong with a row's signature, or "", and the evidence that it covers. expected: what it must say
    beside that."""
    if row.signature is None:
        return "is not signed", ""
    try:
        body, _ = opened(row.signature, TYPE, keys)
    except NotSigned as error:
        return f"is not as signed: {error}", ""
    evidence = body.get("evidence", "")
    if body | {"evidence": ""} != expected:
        return "has the signature of another one, or stands at another place than when it was signed", ""
    return "", evidence


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
