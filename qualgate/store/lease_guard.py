"""What a worker under a lease writes is written only while the lease is its own: looked at in the same transaction."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from qualgate.errors import InfrastructureError
from qualgate.records import Lease
from qualgate.store.queue_tables import submissions


class LeaseLost(InfrastructureError):
    """Somebody else may be at work on it by now, or nobody is to be."""


class RunTaken(InfrastructureError):
    """Another submission's run, which is under way, is the very one that this would be."""


def check(connection: Connection, lease: Lease) -> None:
    """Raise LeaseLost unless the lease still holds; until the transaction ends, nobody can take it.

    A lease that has run out and that nobody took back holds: it is the token that keeps a late writer out.
    """
    row = connection.execute(
        select(submissions.c.status, submissions.c.token, submissions.c.node)
        .where(submissions.c.submission_id == lease.submission)
        .with_for_update(read=True)
    ).one_or_none()
    if row is None or row.status != "leased" or row.token != lease.token:
        now = "is not known" if row is None else f"is {row.status}" + (f" by {row.node}" if row.node else "")
        raise LeaseLost(f"submission {lease.submission} {now}: claim {lease.token} of it has ended, nothing was stored")


def name_run(connection: Connection, lease: Lease | None, run_id: str) -> None:
    """Note which run a leased submission became; one that another leased submission is at is left to that.

    A run is one submission's: others that were at it before begin anew. What decides is not in a run's key, and this
    one's policy takes the place of theirs. lease: None of a run that no node has begun.
    """
    own = lease.submission if lease else ""
    others = submissions.c.run_id == run_id, submissions.c.submission_id != own
    at_work = select(submissions.c.submission_id, submissions.c.node).where(*others, submissions.c.status == "leased")
    other = connection.execute(at_work).first()
    if other is not None:
        raise RunTaken(f"{other.node} is at work on run {run_id}, for submission {other.submission_id}")
    connection.execute(update(submissions).where(*others, submissions.c.status == "queued").values(run_id=None))
    connection.execute(update(submissions).where(submissions.c.submission_id == own).values(run_id=run_id))
