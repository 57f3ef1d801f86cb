"""Who may do what: roles of people who sign in, granted in append-only rows. The newest grant of a person counts.

A store in which somebody has a role takes no decision from anybody who did not sign in. Each grant carries the hash of
those before it. Where the environment names trusted keys, a grant that none of them signed does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from sqlalchemy import Connection

from qualgate.errors import UsageError
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.sealed import chain_heads, insert_rows, record_of, rows_of, sealed_row
from qualgate.store.signing.envelope import NotSigned, opened, sign
from qualgate.store.signing.keys import KEY, own_key, trusted_keys
from qualgate.text.escaping import says_something

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

Role = Literal["viewer", "labeller", "approver", "admin"]
MAY = {  # role → what it may do; every role may look
    "viewer": "look",
    "labeller": "look, label, comment, claim and compare answers",
    "approver": "look, label, compare, assign, and decide about runs that others made",
    "admin": "all of that, also about runs of their own, with a reason",
}
LABELS, DECIDES = ("labeller", "approver", "admin"), ("approver", "admin")
TYPE = "application/vnd.qualgate.role+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role given to a person, or taken from them."""

    person: str  # as the login provider names them: a verified address in lower case, else SUBJECT@ISSUER
    role: Literal["viewer", "labeller", "approver", "admin", "none"]
    makes_runs_as: tuple[str, ...] = ()  # names that runs have as their maker, see `planned.maker`
    by: str  # who granted it, as their machine names them
    at: str = ""  # UTC text
    after: str = ""  # hash over the grants before it
    signature: str | None = None  # by the granting machine's key


def grant(store: Store, new: Grant) -> None:
    """Record a grant, signed where this machine has a key. UsageError for a role or a name that is none, and without a
    key where others are trusted: such a grant would not count."""
    if new.role not in (*get_args(Role), "none"):
        raise UsageError(f"a role is {', '.join(get_args(Role))} or none, not {new.role!r}.")
    if not says_something(new.person) or len(new.person) > 200:
        raise UsageError("name the person as the login provider does, such as ada@example.org.")
    key = own_key()
    if key is None and trusted_keys():
        raise UsageError(f"grants count only with a trusted key's signature: set {KEY} to its file.")
    person = new.person if "://" in new.person else new.person.lower()
    with store.write() as connection:
        made = replace(new, person=person, at=plain.now(), after=chain_heads(connection, ["person"])[-1])
        signed = replace(made, signature=sign(_signed(made), TYPE, key) if key is not None else None)
        insert_rows(connection, [sealed_row("person", signed, name=person, at=made.at)])


def grants(connection: Connection) -> dict[str, Grant]:
    """Return person → their newest grant that counts; those without a role too. IntegrityError for a changed row."""
    keys, newest = trusted_keys(), dict[str, Grant]()
    for one, after in _read(connection):
        if not keys or not _fault(one, after, keys):
            newest[one.person] = one
    return newest


def has_people(connection: Connection) -> bool:
    """Whether anybody was ever given a role, also one that was taken away or does not count."""
    return any(True for _ in _read(connection))


def check_may(connection: Connection, signed_in: str, roles: tuple[str, ...], what: str) -> Grant | None:
    """Return the person's grant; None in a store without people. UsageError unless they have one of the roles.

    Args:
        connection: Of the transaction that writes, so that a role taken away meanwhile counts.
        signed_in: Who signed in; "": nobody.
        roles: Roles that may.
        what: What they want, for the message: "decide", "label".
    """
    if not has_people(connection):
        return None
    if not signed_in:
        raise UsageError(
            f"roles were given in this store, so nobody may {what} without signing in: `qualgate dashboard --login`."
        )
    mine = grants(connection).get(signed_in)
    if mine is None or mine.role not in roles:
        has = "no role" if mine is None or mine.role == "none" else f"the role {mine.role}"
        raise UsageError(f"{signed_in} has {has} in this store and may not {what}; that takes {' or '.join(roles)}.")
    return mine


def faults(connection: Connection, keys: Sequence[SSlibKey]) -> Iterator[str]:
    """Yield a line for each person whose newest grant none of `keys` signed as it stands, so that it does not count."""
    newest = {one.person: (one, after) for one, after in _read(connection)}
    for one, after in newest.values():
        if fault := _fault(one, after, keys):
            yield f"the role {one.role} of {one.person!r:.80}, granted {one.at[:16]}, {fault}"


def _read(connection: Connection) -> Iterator[tuple[Grant, str]]:
    """Yield each grant, oldest first, and the hash over those before it. IntegrityError for a changed row."""
    for row, before in zip(connection.execute(rows_of("person")), chain_heads(connection, ["person"]), strict=False):
        yield record_of(Grant, row), before


def _signed(grant: Grant) -> dict[str, object]:
    names = ("person", "role", "by", "at", "after")
    return {name: getattr(grant, name) for name in names} | {"makes_runs_as": list(grant.makes_runs_as)}


def _fault(grant: Grant, after: str, keys: Sequence[SSlibKey]) -> str:
    """Return why a grant does not count; "" if it does. after: the hash over those before it."""
    if grant.signature is None:
        return "is not signed"
    try:
        body, _ = opened(grant.signature, TYPE, keys)
    except NotSigned as error:
        return f"is not as signed: {error}"
    if body != _signed(grant):
        return "has the signature of another one"
    return "" if grant.after == after else "stands at another place than when it was signed"
