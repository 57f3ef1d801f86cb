"""The votes that people's preferences make: whose count, their digest in a verdict, and whether they changed since.

In a store with people those of somebody who may label now count. A rule that asks several people counts all who did
not sign in as one, since a name that is typed proves nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import Connection, select

from qualgate.records import Policy, UnitKey, Verdict, Vote
from qualgate.records.identity import content_hash
from qualgate.records.metrics import PEOPLE
from qualgate.store import people
from qualgate.store.sealed import record_of, rows_of
from qualgate.store.tables import sealed
from qualgate.text.names import folded

CLOSED = "closed"  # part of the row that ends a reviewer's comparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One reviewer's preference in one pair of answers."""

    run_id: str
    variant: str
    evalset: str
    case_id: str
    repeat: int
    variant_first: bool  # whether the variant's answer was the first that they saw
    preferred: Literal["first", "second", "tie"]
    name: str  # of the person
    signed_in: str = ""  # as of a decision
    created_at: str  # UTC text
    case_hash: str

    @property
    def unit(self) -> UnitKey:
        """The variant's answer within its run."""
        return UnitKey(self.variant, self.evalset, self.case_id, self.repeat)

    @property
    def reviewer(self) -> str:
        """Who compared: as they signed in, else the name that they gave."""
        return known_as(self.signed_in or self.name)

    @property
    def vote(self) -> Vote:
        """The preference in terms of the arms."""
        win = 0.5 if self.preferred == "tie" else float((self.preferred == "first") == self.variant_first)
        return Vote(self.reviewer, win, self.preferred)


def known_as(reviewer: str) -> str:
    """Return a reviewer by whatever form of their name; a SUBJECT@ISSUER of a login provider stays as it is."""
    return reviewer if "://" in reviewer else folded(reviewer)


def newest(
    connection: Connection, run_id: str, reviewer: str | None = None, *, typed: bool = True
) -> dict[tuple[str, UnitKey], Preference]:
    """Return (reviewer, pair) → their newest preference that counts, in the order in which each was first compared.
    typed=False: all who did not sign in are one, "". IntegrityError for a changed row."""
    chosen = rows_of("preference", run_id=run_id, **({} if reviewer is None else {"name": known_as(reviewer)}))
    given = [record_of(Preference, row) for row in connection.execute(chosen.where(sealed.c.part != CLOSED))]
    if given and people.has_people(connection):
        may = {name for name, held in people.grants(connection).items() if held.role in people.LABELS}
        given = [one for one in given if one.signed_in in may]
    return {(one.reviewer if typed or one.signed_in else "", one.unit): one for one in given}


def counting(connection: Connection, run_id: str, reviewers: int) -> dict[UnitKey, tuple[Vote, ...]]:
    """Return pair → the votes of its first `reviewers` people. Raises as `newest`."""
    votes: dict[UnitKey, tuple[Vote, ...]] = {}
    for (who, unit), one in newest(connection, run_id, typed=reviewers == 1).items():
        votes[unit] = (*votes.get(unit, ()), replace(one.vote, reviewer=who))[:reviewers]
    return votes


def digest(votes: Iterable[tuple[UnitKey, Sequence[Vote]]], variant: str) -> str:
    """Return the digest of the votes that count on a variant; "" without any."""
    mine = [
        [unit.evalset, unit.case_id, unit.repeat, vote.reviewer, vote.win, vote.place]
        for unit, some in votes if unit.arm == variant for vote in some
    ]  # fmt: skip
    return content_hash(sorted(mine)) if mine else ""


def changed(connection: Connection, run_id: str, verdict: Verdict, policy: Policy) -> str:
    """Return a line for people where other votes count now than those that the verdict rests on; "" where none rests on
    votes, or they are the same. Raises as `newest`."""
    if not asks_people(policy) or verdict.word == "invalid":
        return ""
    now = digest(counting(connection, run_id, policy.reviewers).items(), verdict.variant)
    return "" if now == verdict.votes else f"people's votes changed since the verdict: qualgate gate --run {run_id}"


def asks_people(policy: Policy) -> bool:
    """Whether a rule rests on people's preferences."""
    return any(rule.metric == PEOPLE for rule in policy.rules)


def log(connection: Connection, run_id: str, count: int | None = None) -> str:
    """Return "COUNT HASH" of the run's first preferences as they were written, by default of all. A later row changes
    no earlier log; a removed or changed one does."""
    chosen = select(sealed.c.sha256).where(
        sealed.c.kind == "preference", sealed.c.run_id == run_id, sealed.c.part != CLOSED
    )
    seals = connection.scalars(chosen.order_by(sealed.c.sealed_id).limit(count)).all()
    return f"{len(seals)} {content_hash(list(seals))}"
