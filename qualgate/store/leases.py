"""Who works on which submission: claims, renewals, rescue, and how work ends.

A claim is a lease with a token that rises. Every effect of who holds it, here and in a run's tables (`lease_guard`), is
written in a transaction that looks whether the token is still the newest. Leases go by the store's clock alone. One
that ran out is taken back by whoever claims next; after MOST_DEATHS of its workers a submission is set apart, where
these were on several nodes or there is no other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, text, true, update
from sqlalchemy.exc import DatabaseError
from sqlalchemy.sql import ColumnElement

from qualgate.errors import StoreVersionError
from qualgate.records import Claimed, Lease, Node, Submission
from qualgate.store import plain
from qualgate.store.database import Store, check_revision
from qualgate.store.queue_tables import nodes, queue, refusals, submission_files, submissions
from qualgate.store.rows import AnyRow
from qualgate.store.tables import runs

MOST_DEATHS = 3
PAUSE_SECONDS = 2.0  # after a death, before another begins; twice as long after each more
MOST_REFUSALS = 3  # of every node there is, before a submission is set apart
REFUSED_SECONDS = 60.0  # after which a node that lacked something, or where it died, looks again
FORGOTTEN = 3.0  # leases in which a node was not seen: it is gone
_CLOCKS = {
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
}


def clock(connection: Connection) -> float:
    """Now, in s since the epoch, by the store's own clock."""
    return connection.execute(text(_CLOCKS[connection.dialect.name])).scalar_one()


# ----------------------------------------------------------------------------------------------------------- nodes


def enter(store: Store, node: str, program: str, seconds: float, here: float) -> float:
    """A node begins to work for the store; returns by how many s its clock (`here`) is before the store's.

    seconds: for which it will claim. StoreVersionError where another version of qualgate is at work.
    """
    with store.write() as connection:
        now = clock(connection)
        connection.execute(delete(nodes).where(nodes.c.seen_at + FORGOTTEN * nodes.c.lease < now))
        check_program(connection, program, f"node {node}")
        connection.execute(delete(nodes).where(nodes.c.node == node))
        return _enter(connection, node, program, seconds, here - now)


def _enter(connection: Connection, node: str, program: str, seconds: float, skew: float) -> float:
    row = {"node": node, "program": program, "seen_at": clock(connection), "lease": seconds, "skew": skew}
    connection.execute(insert(nodes), row)
    return skew


def namesake(store: Store, node: str) -> Node | None:
    """One of this name that was seen within its lease, and has not left."""
    with store.read() as connection:
        return next((one for one in seen_nodes(connection) if one.name == node and one.seen <= one.lease), None)


def leave(store: Store, node: str) -> None:
    """It ends."""
    with store.write() as connection:
        connection.execute(delete(nodes).where(nodes.c.node == node))


def see(store: Store, node: str, here: float) -> float | None:
    """It is still there; returns as `enter`, None where it was not seen for so long that it is taken for gone."""
    with store.write() as connection:
        return _see(connection, node, here)


def _see(connection: Connection, node: str, here: float) -> float | None:
    now = clock(connection)
    found = update(nodes).where(nodes.c.node == node).values(seen_at=now, skew=here - now)
    return here - now if connection.execute(found).rowcount else None


def check_program(connection: Connection, program: str, who: str) -> None:
    """StoreVersionError where a node that is at work has another version: a run would be of two programs."""
    for other in live_nodes(connection):
        if other.program != program:
            raise StoreVersionError(
                f"{who} has qualgate {program}, and node {other.name} is at work on this store with {other.program}: "
                "a run must not be of two programs. Install the same version on both, or stop that node."
            )


def live_nodes(connection: Connection) -> list[Node]:
    """Those that were seen lately, by name."""
    return [node for node in seen_nodes(connection) if is_there(node)]


def is_there(node: Node) -> bool:
    """Whether it was seen lately."""
    return node.seen <= FORGOTTEN * node.lease


def seen_nodes(connection: Connection) -> list[Node]:
    """By name; one that is gone is among them until the next enters."""
    now = clock(connection)
    return [
        Node(name=row.node, program=row.program, seen=now - row.seen_at, lease=row.lease, skew=row.skew)
        for row in connection.execute(select(nodes).order_by(nodes.c.node))
    ]


# ---------------------------------------------------------------------------------------------------------- claims


def is_work(store: Store, node: str, program: str, per_owner: int | None = None) -> bool:
    """Whether a claim may find something for this node: it is read before it is written. StoreVersionError, of a claim
    too, where the store was upgraded meanwhile."""
    with store.read() as connection:
        check_revision(connection, store.url)
        now = clock(connection)
        over = submissions.c.expires_at < now  # a pause, or a lease
        free = and_(_may_take(node, program, per_owner, now), or_(submissions.c.expires_at.is_(None), over))
        return _is_any(connection, or_(free, and_(submissions.c.status == "leased", over)))


def is_pausing(store: Store, node: str, program: str, per_owner: int | None = None) -> bool:
    """Whether one that this node may take waits for its pause after a death to be over."""
    with store.read() as connection:
        waits = submissions.c.expires_at.is_not(None)
        return _is_any(connection, and_(_may_take(node, program, per_owner, clock(connection)), waits))


def _may_take(node: str, program: str, per_owner: int | None, now: float) -> ColumnElement[bool]:
    """Of submissions: queued, handed over by this version, not given back by this node just now; nobody is at the same
    question, and its owner is not full."""
    recent = select(refusals.c.submission_id).where(refusals.c.node == node, refusals.c.at > now - REFUSED_SECONDS)
    held = submissions.alias()
    at_work = select(held.c.owner).where(held.c.status == "leased").group_by(held.c.owner)
    same = select(held.c.content).where(held.c.status == "leased")
    return and_(
        submissions.c.status == "queued",
        submissions.c.program == program,
        submissions.c.submission_id.not_in(recent),
        submissions.c.content.not_in(same),
        true() if per_owner is None else submissions.c.owner.not_in(at_work.having(func.count() >= per_owner)),
    )


def _is_any(connection: Connection, found: ColumnElement[bool]) -> bool:
    return connection.execute(select(submissions.c.submission_id).where(found).limit(1)).first() is not None


def claim(store: Store, node: str, program: str, seconds: float, per_owner: int | None = None) -> Claimed | None:
    """The next submission for this node, under a lease of so many seconds; None where there is none for it.

    Owners take turns: first whose fewest are being worked on, then who waited longest; one owner's go by priority, then
    by age. per_owner: how many of an owner's may be worked on at once.
    """
    with store.write() as connection:
        check_revision(connection, store.url)
        _hold(connection)
        now = clock(connection)
        _rescue(connection, now)
        for row in _in_turn(connection, node, program, per_owner, now):
            lease = Lease(row.submission_id, row.token + 1)
            taken = {"token": lease.token, "node": node, "taken_at": now, "expires_at": now + seconds}
            here = submissions.c.submission_id == lease.submission, submissions.c.token == row.token
            free = update(submissions).where(*here, submissions.c.status == "queued")
            if connection.execute(free.values(status="leased", **taken)).rowcount:  # nobody cancelled it meanwhile
                return _claimed(connection, row, lease)
    return None


def _hold(connection: Connection) -> None:
    """Claims come one after the other: two at once would each count an owner's work without the other's."""
    counted = update(queue).where(queue.c.queue_id == 1).values(claims=queue.c.claims + 1)
    if connection.execute(counted).rowcount:
        return
    try:
        with connection.begin_nested():
            connection.execute(insert(queue), {"queue_id": 1, "claims": 1, "rescued": 0})
    except DatabaseError:  # another's first claim came before
        connection.execute(counted)


def _rescue(connection: Connection, now: float) -> None:
    """Take back what nobody renewed."""
    late = select(submissions).where(submissions.c.status == "leased", submissions.c.expires_at < now)
    for row in connection.execute(late.with_for_update(skip_locked=True)).all():
        _after_death(connection, row, f"node {row.node} was not heard of any more", now)
        connection.execute(update(queue).values(rescued=queue.c.rescued + 1))


def _in_turn(connection: Connection, node: str, program: str, per_owner: int | None, now: float) -> Iterator[AnyRow]:
    held = select(submissions.c.owner).where(submissions.c.status == "leased")
    at_work = Counter(connection.execute(held).scalars())
    turns = select(submissions.c.owner, func.max(submissions.c.taken_at)).group_by(submissions.c.owner)
    last: dict[str, float] = {owner: taken or 0.0 for owner, taken in connection.execute(turns)}
    names = ("submission_id", "owner", "priority", "submitted_at", "expires_at")
    columns = [submissions.c[name] for name in names]  # no gate files: of a long queue they are most of it
    for_it = select(submissions.c.submission_id).where(_may_take(node, program, per_owner, now))
    may = set(connection.execute(for_it).scalars())
    waiting = connection.execute(select(*columns).where(submissions.c.status == "queued")).all()
    since: dict[str, float] = {}  # among owners who never had a turn, or had it at one moment; before any priority
    for row in waiting:
        since[row.owner] = min(since.get(row.owner, row.submitted_at), row.submitted_at)

    def turn(row: AnyRow) -> tuple:
        of_owner = at_work[row.owner], last[row.owner], since[row.owner], row.owner
        return *of_owner, -row.priority, row.submitted_at, row.submission_id

    for row in sorted(waiting, key=turn):
        pauses = row.expires_at is not None and row.expires_at >= now
        if row.submission_id in may and not pauses:
            found = connection.execute(select(submissions).where(submissions.c.submission_id == row.submission_id))
            yield found.one()


def _claimed(connection: Connection, row: AnyRow, lease: Lease) -> Claimed:
    files = connection.execute(select(submission_files).where(submission_files.c.submission_id == lease.submission))
    status = connection.execute(select(runs.c.status).where(runs.c.run_id == row.run_id)).scalar()
    return Claimed(
        lease=lease,
        submission=Submission(
            owner=row.owner,
            name=row.name,
            folder=row.folder,
            gate_file=row.gate_file,
            program=row.program,
            priority=row.priority,
            options=tuple(json.loads(row.options_json)),
            needs=json.loads(row.needs_json),
            files={file.path: file.body for file in files},
        ),
        deaths=row.deaths,
        run_id=row.run_id,
        complete=status == "complete",
    )


# ------------------------------------------------------------------------------------------------- while it is held


def holds(store: Store, lease: Lease) -> bool:
    """Whether it is still the newest claim, and nobody cancelled the submission."""
    with store.read() as connection:
        return connection.execute(select(submissions.c.token).where(*_held(lease))).first() is not None


def renew(store: Store, lease: Lease, node: str, seconds: float, here: float) -> float | None:
    """Hold it for so many seconds from now; returns as `enter`, None where it is lost."""
    with store.write() as connection:
        skew, now = _see(connection, node, here), clock(connection)
        found = update(submissions).where(*_held(lease)).values(expires_at=now + seconds)
        if not connection.execute(found).rowcount:
            return None
        if skew is None:  # taken for gone, and at work all the same: with the program that it claimed as
            own = select(submissions.c.program).where(submissions.c.submission_id == lease.submission)
            return _enter(connection, node, connection.execute(own).scalar_one(), seconds, here - now)
        return skew


def _held(lease: Lease) -> tuple:
    return (
        submissions.c.submission_id == lease.submission,
        submissions.c.token == lease.token,
        submissions.c.status == "leased",
    )


# ------------------------------------------------------------------------------------------------------- how it ends


def done(store: Store, lease: Lease, exit: int, reason: str = "") -> bool:
    """Its run ended with this exit code. False, and nothing written, where the lease is lost: of each of these."""
    with store.write() as connection:
        row = _leased(connection, lease)
        if row is not None:
            close(connection, lease.submission, "done", reason, clock(connection), exit=exit)
        return row is not None


def died(store: Store, lease: Lease, reason: str) -> bool:
    """The process that was at it ended without a verdict: another begins where it was, after a pause (what killed it
    may pass), or the submission is set apart. Of one node it counts once while another can take it."""
    with store.write() as connection:
        row = _leased(connection, lease)
        if row is not None:
            _after_death(connection, row, reason, clock(connection), PAUSE_SECONDS * 2**row.deaths)
        return row is not None


def release(store: Store, lease: Lease, reason: str) -> bool:
    """Its node stops in good order: another goes on, and nothing is counted against the submission."""
    with store.write() as connection:
        row = _leased(connection, lease)
        if row is not None:
            _requeue(connection, lease.submission, reason)
        return row is not None


def refuse(store: Store, lease: Lease, reason: str) -> bool:
    """The node lacks what it needs: others may have it. Set apart once each that is at work lacked it MOST_REFUSALS
    times."""
    with store.write() as connection:
        row = _leased(connection, lease)
        if row is None:
            return False
        now, reason = clock(connection), f"node {row.node}: {reason}"
        _pause(connection, lease.submission, row.node, reason, now, counts=1)
        often = refusals.c.submission_id == lease.submission, refusals.c.times >= MOST_REFUSALS
        tired = set(connection.execute(select(refusals.c.node).where(*often)).scalars())
        if row.node in tired and {other.name for other in live_nodes(connection)} <= tired:
            close(connection, lease.submission, "apart", f"no node has what it needs; {reason}", now)
        else:
            _requeue(connection, lease.submission, reason)
        return True


def give_way(store: Store, lease: Lease, reason: str) -> bool:
    """Another submission is at the run that this one would be: its node looks again in REFUSED_SECONDS, and nothing is
    counted."""
    with store.write() as connection:
        row = _leased(connection, lease)
        if row is not None:
            _pause(connection, lease.submission, row.node, reason, clock(connection), counts=0)
            _requeue(connection, lease.submission, reason)
        return row is not None


def _pause(connection: Connection, submission: str, node: str, reason: str, at: float, *, counts: int) -> None:
    """The node looks at it again REFUSED_SECONDS after `at`."""
    here = refusals.c.submission_id == submission, refusals.c.node == node
    values = {"at": at, "reason": plain.storable(reason)}
    again = update(refusals).where(*here).values(times=refusals.c.times + counts, **values)
    if not connection.execute(again).rowcount:
        row = {"submission_id": submission, "node": node, "times": counts, **values}
        connection.execute(insert(refusals), row)


def close(connection: Connection, submission: str, status: str, reason: str, now: float, **values: int) -> None:
    """Nothing more will happen to it; what it carried is let go."""
    here = submissions.c.submission_id == submission
    ended = {"status": status, "expires_at": None, "finished_at": now, "reason": plain.storable(reason)}
    connection.execute(update(submissions).where(here).values(**ended, **values))
    connection.execute(delete(submission_files).where(submission_files.c.submission_id == submission))


def _leased(connection: Connection, lease: Lease) -> AnyRow | None:
    return connection.execute(select(submissions).where(*_held(lease)).with_for_update()).one_or_none()


def _requeue(connection: Connection, submission: str, reason: str, **values: float) -> None:
    here = submissions.c.submission_id == submission
    again = {"status": "queued", "expires_at": None, "reason": plain.storable(reason), **values}
    connection.execute(update(submissions).where(here).values(again))


def _after_death(connection: Connection, row: AnyRow, reason: str, now: float, pause: float = 0.0) -> None:
    """A node where whatever it begins dies claims first. So of each node one death counts while another can take it,
    which is left to that for a while."""
    failed = select(refusals.c.node).where(refusals.c.submission_id == row.submission_id, refusals.c.times > 0)
    before = set(connection.execute(failed).scalars())
    able = {node.name for node in live_nodes(connection) if node.program == row.program} - before - {row.node}
    _pause(connection, row.submission_id, row.node, reason, now if able else 0.0, counts=1)
    deaths = row.deaths + (not able or row.node not in before)
    if deaths < MOST_DEATHS:
        waits = {"expires_at": now + pause} if pause else {}
        _requeue(connection, row.submission_id, reason, deaths=deaths, **waits)
    else:
        said = f"set apart: {deaths} workers ended without a verdict; the last: {reason}"
        close(connection, row.submission_id, "apart", said, now, deaths=deaths)


def rescued(store: Store) -> int:
    """How many leases ran out and were taken back, since the store was made."""
    with store.read() as connection:
        return connection.execute(select(queue.c.rescued)).scalar() or 0
