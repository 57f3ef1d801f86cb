"""Who may do what: roles of people who sign in, granted in append-only rows. The newest grant of a person counts.

A store in which somebody has a role takes no decision from anybody who did not sign in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Connection

from qualgate.errors import UsageError
from qualgate.records.identity import canonical_json
from qualgate.store.database import Store
from qualgate.store.sealed import record_of, rows_of, sealed_row, store_rows
from qualgate.store.signing.envelope import NotSigned, opened, sign
from qualgate.store.signing.keys import own_key, trusted_keys
from qualgate.text.escaping import says_something

Role = Literal["viewer", "labeller", "approver", "admin"]
MAY = {  # role → what it may do; every role may look
    "viewer": "look",
    "labeller": "look, and label cases",
    "approver": "look, label, and decide about runs that others made",
    "admin": "all of that, also about runs of their own, with a reason",
}
LABELS, DECIDES = ("labeller", "approver", "admin"), ("approver", "admin")
TYPE = "application/vnd.qualgate.role+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role given to a person, or taken from them."""

    person: str  # as the login provider names them: a verified address, else SUBJECT@ISSUER
    role: Literal["viewer", "labeller", "approver", "admin", "none"]
    makes_runs_as: tuple[str, ...] = ()  # names that runs have as their maker, see `planned.maker`
    by: str  # who granted it, as their machine names them
    signature: str | None = None  # by the granting machine's key


def grant(store: Store, new: Grant) -> None:
    """Record a grant, signed where this machine has a key. UsageError for a role or a name that is none."""
    if new.role not in (*get_args(Role), "none"):
        raise UsageError(f"a role is {', '.join(get_args(Role))} or none, not {new.role!r}.")
    if not says_something(new.person) or len(new.person) > 200:
        raise UsageError("name the person as the login provider does, such as ada@example.org.")
    key = own_key()
    signature = sign(_signed(new), TYPE, key) if key is not None else None
    row = sealed_row("person", Grant(person=new.person, role=new.role, makes_runs_as=new.makes_runs_as, by=new.by,
                                     signature=signature), name=new.person)  # fmt: skip
    store_rows(store, [row])


def grants(connection: Connection) -> dict[str, Grant]:
    """Return person → their newest grant; those without a role too. IntegrityError for a changed row, or for a grant
    that no trusted key signed, where the environment names trusted keys."""
    keys, newest = trusted_keys(), dict[str, Grant]()
    for row in connection.execute(rows_of("person")):
        one = record_of(Grant, row)
        if keys:
            _check(one, keys)
        newest[one.person] = one
    return newest


def check_may(connection: Connection, signed_in: str, roles: tuple[str, ...], what: str) -> Grant | None:
    """Return the person's grant; None in a store without people. UsageError unless they have one of the roles.

    Args:
        connection: Of the transaction that writes, so that a role taken away meanwhile counts.
        signed_in: Who signed in; "": nobody.
        roles: Roles that may.
        what: What they want, for the message: "decide", "label".
    """
    people = grants(connection)
    if not people:
        return None
    if not signed_in:
        raise UsageError(f"this store has people with roles, so nobody may {what} without signing in.")
    mine = people.get(signed_in)
    if mine is None or mine.role not in roles:
        has = "no role" if mine is None or mine.role == "none" else f"the role {mine.role}"
        raise UsageError(f"{signed_in} has {has} in this store and may not {what}; that takes {' or '.join(roles)}.")
    return mine


def _signed(grant: Grant) -> dict[str, object]:
    return {"person": grant.person, "role": grant.role, "makes_runs_as": list(grant.makes_runs_as), "by": grant.by}


def _check(grant: Grant, keys: tuple) -> None:
    try:
        body, _ = opened(grant.signature or "", TYPE, keys)
    except NotSigned as error:
        raise NotSigned(f"the role of {grant.person!r:.80} is not signed by a trusted key: {error}") from None
    if canonical_json(body) != canonical_json(_signed(grant)):
        raise NotSigned(f"the role of {grant.person!r:.80} is not the one that was signed")
