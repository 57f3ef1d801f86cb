"""Check a whole store: every digest, every signature, and that nothing was cut off since its head was saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from qualgate.errors import IntegrityError, QualgateError, UsageError
from qualgate.store import plain, runs, seals, signatures
from qualgate.store.database import Store
from qualgate.store.decisions import GENESIS, chain
from qualgate.store.queries.newest import CURRENT_VERDICT, check_verdicts_placed
from qualgate.store.rows import check_verdict
from qualgate.store.signing.keys import KEY, own_key, trusted_keys
from qualgate.store.tables import verdicts

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of a store's history at a time. Saved elsewhere, it shows later whether rows were removed or replaced."""

    verdicts: int  # rows
    verdicts_sha256: str  # over them, in the order of writing
    decisions: int
    decisions_sha256: str
    at: str  # UTC text


def head(store: Store) -> Head:
    """Return the store's head. IntegrityError if the chain of decisions is broken."""
    with store.read() as connection:
        decided = chain(connection)
        count, sha256 = signatures.verdict_chain(connection)
    last = decided[-1].hash if decided else GENESIS
    return Head(
        verdicts=count, verdicts_sha256=sha256, decisions=len(decided), decisions_sha256=last, at=plain.now()
    )  # fmt: skip


def broken(store: Store, keys: tuple[SSlibKey, ...], saved: Head | None) -> Iterator[str]:
    """Yield a line for each fault: a broken digest, a signature that is missing or wrong (not without keys), and a
    history that does not continue the saved head."""
    yield from seals.broken(store)
    with store.read() as connection:
        yield from _fault_of_places(connection)
        for run_id in (
            connection.scalars(select(verdicts.c.run_id).distinct().order_by(verdicts.c.run_id)) if keys else ()
        ):
            for fault in signatures.faults(connection, run_id, keys):
                yield f"run {run_id}: {fault}"
        if saved is not None:
            yield from _faults_since(connection, saved)


def check_signed(store: Store, run_id: str) -> None:
    """Raise IntegrityError if a run's verdicts, decisions or evidence are not as a key that the environment
    trusts signed them. Nothing is checked if it trusts none."""
    if not (keys := trusted_keys()):
        return
    with store.read() as connection:
        faults = signatures.faults(connection, run_id, keys)
    if faults:
        raise IntegrityError(
            f"run {run_id}: {faults[0]}. Restore the store from a copy; or, if you know why and trust what is stored: "
            f"qualgate audit sign {run_id}"
        )


def sign_run(store: Store, run_id: str) -> int:
    """Sign the newest verdicts of a run where they stand unsigned, or the evidence changed since; return how many.

    Every digest of the run is checked first, but not who wrote it: that is for the person who signs. UsageError
    without a key, IntegrityError for damage.
    """
    if own_key() is None:
        raise UsageError(
            f"there is no key to sign with: set {KEY} to the file of one. `qualgate key new FILE` makes one."
        )
    if faults := seals.broken_in_run(store, run_id):
        raise IntegrityError(f"run {run_id}: {faults[0]}. Nothing was signed; restore the store from a copy.")
    with store.read() as connection:
        rows = connection.execute(select(CURRENT_VERDICT).where(CURRENT_VERDICT.c.run_id == run_id)).all()
        due = [row for row in rows if signatures.is_due(connection, row)]
    for row in due:
        runs.add_verdicts(store, run_id, [check_verdict(row)], plain.policy(row.policy_json))
    return len(due)


def _fault_of_places(connection: Connection) -> Iterator[str]:
    try:
        check_verdicts_placed(connection)
    except QualgateError as error:
        yield str(error)


def _faults_since(connection: Connection, saved: Head) -> Iterator[str]:
    """Yield what shows that the verdicts and decisions of the saved head are no longer the first ones."""
    found = signatures.verdict_chain_at(connection, saved.verdicts)
    if found != saved.verdicts_sha256:
        what = "are fewer" if found is None else "are others"
        yield f"the {saved.verdicts:,} verdicts that the head of {saved.at[:16]} covers {what} now"
    try:
        decided = chain(connection)
    except QualgateError:
        return  # told already
    hashes = [GENESIS, *(decision.hash for decision in decided)]
    if len(decided) < saved.decisions or hashes[saved.decisions] != saved.decisions_sha256:
        what = "are fewer" if len(decided) < saved.decisions else "are others"
        yield f"the {saved.decisions:,} decisions that the head of {saved.at[:16]} covers {what} now"
