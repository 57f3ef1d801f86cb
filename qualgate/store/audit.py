"""Check a whole store: every digest, every signature, and that nothing was cut off since its head was saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from qualgate.errors import IntegrityError, QualgateError
from qualgate.store import people, plain, runs, seals, signatures
from qualgate.store.database import Store
from qualgate.store.decisions import GENESIS, chain
from qualgate.store.evidence import no_such_run
from qualgate.store.queries.newest import CURRENT_VERDICT, check_verdicts_placed
from qualgate.store.rows import check_verdict
from qualgate.store.sealed import Kind, chain_heads, rows_of, store_rows
from qualgate.store.signing.keys import signing_key, trusted_keys
from qualgate.store.tables import decisions
from qualgate.store.tables import runs as runs_table

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of a store's history at a time. Saved elsewhere, it shows later whether rows were removed or replaced."""

    verdicts: int  # rows
    verdicts_sha256: str  # over them, in the order of writing
    decisions: int
    decisions_sha256: str
    roles: int  # grants of roles to people
    roles_sha256: str
    records: int  # rows of RECORDS
    records_sha256: str
    at: str  # UTC text


# Side evidence beside the roles, and beside what a run's evidence covers.
RECORDS: tuple[Kind, ...] = ("judgement", "label", "load", "night", "preference", "vouched")


def head(store: Store) -> Head:
    """Return the store's head. IntegrityError if the chain of decisions is broken."""
    with store.read() as connection:
        decided = chain(connection)
        count, sha256 = signatures.verdict_chain(connection)
        roles, records = chain_heads(connection, ("person",)), chain_heads(connection, RECORDS)
    return Head(
        verdicts=count,
        verdicts_sha256=sha256,
        decisions=len(decided),
        decisions_sha256=decided[-1].hash if decided else GENESIS,
        roles=len(roles) - 1,
        roles_sha256=roles[-1],
        records=len(records) - 1,
        records_sha256=records[-1],
        at=plain.now(),
    )


def broken(store: Store, keys: Sequence[SSlibKey], saved: Head | None) -> Iterator[str]:
    """Yield a line for each fault: a broken digest, a signature that is missing or wrong (not without keys), and a
    history that does not continue the saved head."""
    yield from seals.broken(store)
    with store.read() as connection:
        try:
            check_verdicts_placed(connection)
        except QualgateError as error:
            yield str(error)
        if keys:
            for run_id, fault in signatures.faults(connection, keys):
                yield f"run {run_id}: {fault}"
            yield from people.faults(connection, keys)
        if saved is not None:
            yield from _faults_since(connection, saved)


def check_signed(store: Store, run_id: str, *, all_decisions: bool = False) -> None:
    """Raise IntegrityError if a run's verdicts, decisions or evidence are not as a key that the environment trusts
    signed them. Nothing is checked if it trusts none. all_decisions: those of other runs too, which show whether one of
    this run was removed."""
    if not (keys := trusted_keys()):
        return
    with store.read() as connection:
        found = [*signatures.faults(connection, keys, run_id)]
        found += signatures.decision_faults(connection, keys) if all_decisions else []
    if found:
        run, fault = found[0]
        raise IntegrityError(
            f"run {run}: {fault}. Restore the store from a copy; or, if you know why and trust what is stored: "
            f"qualgate audit sign {run}"
        )


def sign_run(store: Store, run_id: str) -> int:
    """Sign a run's newest verdicts where they stand unsigned or the evidence changed since, vouch for its decisions
    that were made without a key, and return how many rows were written.

    Every digest of the run is checked first, but not who wrote it: that is for the person who signs. UsageError
    without a key or a run, IntegrityError for damage.
    """
    signing_key()
    with store.read() as connection:
        if connection.scalar(select(runs_table.c.run_id).where(runs_table.c.run_id == run_id)) is None:
            raise no_such_run(connection, run_id)
    if faults := seals.broken_in_run(store, run_id):
        raise IntegrityError(f"run {run_id}: {faults[0]}. Nothing was signed; restore the store from a copy.")
    with store.read() as connection:
        rows = connection.execute(select(CURRENT_VERDICT).where(CURRENT_VERDICT.c.run_id == run_id)).all()
        to_sign = signatures.ToSign(connection, run_id)
        due = [row for row in rows if to_sign.is_due(row)]
        done = {row.name for row in connection.execute(rows_of("vouched", run_id=run_id))}
        chosen = select(decisions).where(decisions.c.run_id == run_id, decisions.c.signature.is_(None))
        unsigned = [row for row in connection.execute(chosen).all() if row.hash not in done]
        vouched = [signatures.vouched_row(row, to_sign.evidence) for row in unsigned]
    for row in due:
        runs.add_verdicts(store, run_id, [check_verdict(row)], plain.policy(row.policy_json))
    if vouched:
        store_rows(store, vouched)
    return len(due) + len(vouched)


def _faults_since(connection: Connection, saved: Head) -> Iterator[str]:
    """Yield what shows that the rows of the saved head are no longer the first ones."""
    try:
        hashes = [GENESIS, *(decision.hash for decision in chain(connection))]
    except QualgateError:
        hashes = None  # told already
    found = dict(enumerate(hashes)).get(saved.decisions) if hashes is not None else saved.decisions_sha256
    now = (
        ("verdicts", saved.verdicts, saved.verdicts_sha256, signatures.verdict_chain_at(connection, saved.verdicts)),
        ("decisions", saved.decisions, saved.decisions_sha256, found),
        ("roles", saved.roles, saved.roles_sha256, _chain_at(connection, ["person"], saved.roles)),
        ("labels, preferences, loads, nights and other records", saved.records, saved.records_sha256,
         _chain_at(connection, RECORDS, saved.records)),
    )  # fmt: skip
    for what, count, then, found in now:
        if found != then:
            changed = "are fewer" if found is None else "are others"
            yield f"the {count:,} {what} that the head of {saved.at[:16]} covers {changed} now"


def _chain_at(connection: Connection, kinds: Sequence[Kind], count: int) -> str | None:
    """Return the hash over the first `count` rows; None if there are fewer."""
    return dict(enumerate(chain_heads(connection, kinds))).get(count)
