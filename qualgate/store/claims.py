"""Who reviews which verdict: append-only rows, of which the newest of a variant counts. No decision rests on them.

A claim is made for oneself and lapses. An assignment does not lapse; an approver also makes it for somebody else. A row
without a holder releases the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, func, select

from qualgate.errors import UsageError
from qualgate.store import people, plain
from qualgate.store.clock import clock
from qualgate.store.database import Store
from qualgate.store.evidence import no_such_run
from qualgate.store.postgresql import lasting
from qualgate.store.sealed import insert_rows, record_of, rows_of, sealed_row
from qualgate.store.tables import arms, sealed
from qualgate.text.escaping import says_something
from qualgate.text.numbers import counted

LAPSES = timedelta(minutes=30)  # a claim ends after this time without a sign of life
RENEWED = timedelta(minutes=5)  # a sign of life is written at most this often
LONGEST_NAME = 200  # characters
Shown = Literal["every verdict", "mine", "free"]  # of the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A verdict's reviewer."""

    run_id: str
    variant: str
    holder: str  # as `people` names them, else the name as typed; "": nobody
    by: str  # who wrote it, named alike
    signed_in: str = ""  # the writer, as of a decision
    assigned: bool = False  # it does not lapse
    at: str  # of the store's clock, UTC text; of a claim, its last sign of life

    def stands(self, now: datetime) -> bool:
        """Whether it counts at this time."""
        return bool(self.holder) and (self.assigned or now - datetime.fromisoformat(self.at) < LAPSES)

    def text(self, now: datetime) -> str:
        """For people: "claimed by Ada, last seen 12 minutes ago"."""
        if self.assigned:
            return f"assigned to {self.holder}" + ("" if self.by == self.holder else f" by {self.by}")
        minutes = max(0, int((now - datetime.fromisoformat(self.at)).total_seconds()) // 60)
        seen = f"last seen {counted(minutes, 'minute')} ago" if minutes else "here now"
        return f"claimed by {self.holder}, {seen}"


def claims(connection: Connection) -> dict[tuple[str, str], Claim]:
    """Return (run, variant) → the claim that counts. IntegrityError for a changed row."""
    newest = select(func.max(sealed.c.sealed_id)).where(sealed.c.kind == "claim")
    newest = newest.group_by(sealed.c.run_id, sealed.c.name)
    rows = connection.execute(rows_of("claim").where(sealed.c.sealed_id.in_(newest))).all()
    now = _now(connection)
    found = (record_of(Claim, row) for row in rows)
    return {(claim.run_id, claim.variant): claim for claim in found if claim.stands(now)}


@lasting
def claim(
    store: Store, run_id: str, variant: str, holder: str, *, name: str, signed_in: str = "", assigned: bool = False
) -> Claim:
    """Claim a verdict for oneself, assign it, or release it (`holder` is ""), and return what counts then.

    Args:
        store: Where.
        run_id: The run.
        variant: Its variant.
        holder: Who reviews it.
        name: Of the person who does this, if nobody signs in.
        signed_in: Who, as the login provider names them.
        assigned: An assignment. Only an approver or admin makes one for somebody else, or of what another holds.

    Raises:
        UsageError: Nothing is recorded: a name is missing or too long, another holds the verdict, the person may not do
            this, or has no role in which they could review it; or there is no such variant.
    """
    holder, by = plain.storable(holder).strip(), signed_in or plain.storable(name).strip()
    if not says_something(by):
        raise UsageError("a claim needs the name of the person who makes it; fill it in.")
    if max(len(holder), len(by)) > LONGEST_NAME or (holder and not says_something(holder)):
        raise UsageError(f"a name is visible and has at most {LONGEST_NAME} characters.")
    with store.write(run_id) as connection:
        mine = people.check_may(connection, signed_in, people.LABELS, "claim a verdict")
        _check_variant(connection, run_id, variant)
        current = claims(connection).get((run_id, variant))
        if current is not None and current.holder == holder == by and current.assigned and not assigned:
            return current
        if mine is None or mine.role in people.DECIDES:
            if current is not None and holder not in ("", current.holder) and not assigned:
                raise UsageError(f"{current.holder} holds {variant}. Assign it to yourself to take it over.")
        elif holder not in ("", by):
            raise UsageError(f"to assign a verdict to another person takes {' or '.join(people.DECIDES)}.")
        elif current is not None and by not in (current.holder, current.by):
            raise UsageError(f"{current.holder} holds {variant}; {' or '.join(people.DECIDES)} may take it over.")
        if mine is not None and holder:
            _check_may_review(connection, holder)
        made = Claim(run_id=run_id, variant=variant, holder=holder, by=by, signed_in=signed_in, assigned=assigned,
                     at=plain.stamp(_now(connection)))  # fmt: skip
        _write(connection, made)
    return made


@lasting
def keep(store: Store, run_id: str, variant: str, who: str, signed_in: str = "") -> Claim | None:
    """Return the claim on a verdict; if it is this person's own, with a sign of life. None: nobody holds it."""
    with store.read() as connection:
        current, now = claims(connection).get((run_id, variant)), _now(connection)
    if current is None or current.assigned or current.holder != who:
        return current
    if now - datetime.fromisoformat(current.at) < RENEWED:
        return current
    return claim(store, run_id, variant, who, name=who, signed_in=signed_in)


def _write(connection: Connection, made: Claim) -> None:
    insert_rows(connection, [sealed_row("claim", made, run_id=made.run_id, name=made.variant, at=made.at)])


def _check_variant(connection: Connection, run_id: str, variant: str) -> None:
    of_run = select(arms.c.name).where(arms.c.run_id == run_id, arms.c.position > 0)
    names = connection.scalars(of_run).all()
    if not names:
        raise no_such_run(connection, run_id)
    if variant not in names:
        raise UsageError(f"run {run_id} has no variant {variant!r:.80}. It has: {', '.join(names)}.")


def _check_may_review(connection: Connection, holder: str) -> None:
    theirs = people.grants(connection).get(holder)
    if theirs is None or theirs.role not in people.LABELS:
        raise UsageError(f"{holder!r:.80} has no role to review with. `qualgate people list` shows who has one.")


def _now(connection: Connection) -> datetime:
    return datetime.fromtimestamp(clock(connection), UTC)
