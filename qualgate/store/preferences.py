"""People's preferences between the two answers to a case, compared blind: append-only side evidence of a run, on which
rules on `people.win` rest.

Which answer is shown first is a hash of run, reviewer, pair, and the seals of both answers, which no page shows. So the
sides are random, the same whenever the reviewer returns, and never taken from what the page sends. The newest
preference of a reviewer counts. Whoever has seen the results prefers nothing any more in that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import Connection, and_, or_, select

from qualgate.errors import UsageError
from qualgate.records import UnitKey
from qualgate.records.identity import content_hash
from qualgate.store import people, plain
from qualgate.store.database import Store
from qualgate.store.decisions import is_readable
from qualgate.store.evidence import no_such_run
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import check_case, stored_calls
from qualgate.store.sealed import insert_rows, record_of, rows_of, sealed_row
from qualgate.store.tables import arms, cases, runs, units
from qualgate.store.votes import CLOSED, Preference, known_as, newest

Word = Literal["first", "second", "tie"]
WORDS: tuple[Word, ...] = get_args(Word)
Answer = tuple[str, str]  # text, and tool calls as `calls_text` writes them
LONGEST_NAME = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The end of a reviewer's comparing in a run: they asked for the results."""

    run_id: str
    name: str
    signed_in: str = ""
    created_at: str


@dataclass(frozen=True, slots=True)
class Blind:
    """Two different answers to one case. seals: of the baseline's answer and of the variant's; seen on no page."""

    unit: UnitKey  # the variant's
    case_hash: str
    unit_ids: tuple[int, int]  # of the baseline's answer and the variant's
    seals: tuple[str, str]

    def drawn(self, run_id: str, reviewer: str) -> str:
        """Return what this reviewer's order and sides are taken from: 64 hexadecimal digits."""
        key = self.unit
        return content_hash([run_id, known_as(reviewer), key.arm, key.evalset, key.case_id, key.repeat, *self.seals])

    def variant_first(self, run_id: str, reviewer: str) -> bool:
        """Whether this reviewer sees the variant's answer first."""
        return int(self.drawn(run_id, reviewer)[-1], 16) % 2 == 1


def prefer(store: Store, run_id: str, unit: UnitKey, preferred: str, *, name: str, signed_in: str = "") -> Preference:
    """Record which of two answers a reviewer prefers. unit: the variant's answer.

    Raises:
        UsageError: Nothing is recorded: the word is unknown, the name empty or too long, the run incomplete, the pair
            not in it or of equal answers, the person without a role, or finished.
        EvidencePruned: The answers are gone.
        IntegrityError: An earlier row of the reviewer is not what was recorded.
    """
    if preferred not in WORDS:
        raise UsageError(f"{preferred!r:.40} is no preference. Give one of: {', '.join(WORDS)}.")
    return _add(store, run_id, unit, preferred, _named(name), signed_in)


@lasting
def _add(store: Store, run_id: str, unit: UnitKey, preferred: Word, name: str, signed_in: str) -> Preference:
    reviewer = signed_in or name
    with store.write(run_id) as connection:
        people.check_may(connection, signed_in, people.LABELS, "compare answers")
        refuse_pruned(connection, run_id)
        if closed(connection, run_id, reviewer):
            raise UsageError(f"{reviewer} has seen the results of run {run_id}, and compares nothing in it any more.")
        pair = next(iter(_differing(connection, run_id, unit)), None)
        if pair is None:
            raise UsageError(f"run {run_id} is not complete, or has no two different answers to {unit.question:.200}.")
        preference = Preference(
            run_id=run_id, variant=unit.arm, evalset=unit.evalset, case_id=unit.case_id, repeat=unit.repeat,
            variant_first=pair.variant_first(run_id, reviewer), preferred=preferred, name=name, signed_in=signed_in,
            created_at=plain.now(), case_hash=pair.case_hash,
        )  # fmt: skip
        row = sealed_row(
            "preference", preference, run_id=run_id, name=preference.reviewer, part=_part(unit),
            at=preference.created_at,
        )  # fmt: skip
        insert_rows(connection, [row])
    return preference


@lasting
def close(store: Store, run_id: str, *, name: str, signed_in: str = "") -> None:
    """Record that a reviewer asked for the results of a run. Raises as `prefer` does."""
    ended = Closed(run_id=run_id, name=_named(name), signed_in=signed_in, created_at=plain.now())
    reviewer = signed_in or ended.name
    with store.write(run_id) as connection:
        people.check_may(connection, signed_in, people.LABELS, "compare answers")
        if not closed(connection, run_id, reviewer):
            row = sealed_row(
                "preference", ended, run_id=run_id, name=known_as(reviewer), part=CLOSED, at=ended.created_at
            )
            insert_rows(connection, [row])


def closed(connection: Connection, run_id: str, reviewer: str) -> bool:
    """Whether a reviewer asked for the results of a run. IntegrityError for a changed row."""
    rows = connection.execute(rows_of("preference", run_id=run_id, name=known_as(reviewer), part=CLOSED)).all()
    return bool([record_of(Closed, row) for row in rows])


def preferences(store: Store, run_id: str, reviewer: str | None = None) -> tuple[Preference, ...]:
    """Return the preferences that count, of one reviewer or of all: of each reviewer and pair the newest, in the order
    in which each pair was first compared. Raises UsageError for an unknown run, IntegrityError for a changed row."""
    with store.read() as connection:
        if connection.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
            raise no_such_run(connection, run_id)
        return tuple(newest(connection, run_id, reviewer).values())


def differing(store: Store, run_id: str) -> tuple[Blind, ...]:
    """Return the pairs of a complete run whose texts or tool calls differ, of every variant that the gate file
    names."""
    with store.read() as connection:
        return tuple(_differing(connection, run_id))


def material(store: Store, run_id: str, pair: Blind) -> tuple[dict[str, Any], Answer, Answer]:
    """Return the case, the baseline's answer and the variant's. Raises EvidencePruned if they are gone, IntegrityError
    for a changed case."""
    with store.read() as connection:
        refuse_pruned(connection, run_id)
        chosen = select(units.c.unit_id, units.c.text, units.c.calls).where(units.c.unit_id.in_(pair.unit_ids))
        found = {row.unit_id: (row.text or "", stored_calls(row.calls)) for row in connection.execute(chosen)}
        row = connection.execute(select(cases).where(cases.c.case_hash == pair.case_hash)).one()
    baseline, variant = pair.unit_ids
    return check_case(row), found[baseline], found[variant]


_before, _after = units.alias("before"), units.alias("after")


def _differing(connection: Connection, run_id: str, unit: UnitKey | None = None) -> list[Blind]:
    """Return the pairs as `differing` does; of one answer of a variant."""
    same = (_before.c[name] == _after.c[name] for name in ("run_id", "evalset", "case_id", "repeat", "case_hash"))
    statement = (
        select(
            _after.c.arm, _after.c.evalset, _after.c.case_id, _after.c.repeat, _after.c.case_hash,
            _before.c.unit_id, _after.c.unit_id, _before.c.sha256, _after.c.sha256,
            _after.c.text != _before.c.text, _before.c.calls, _after.c.calls,
        )
        .join_from(_after, _before, and_(*same))
        .join(runs, runs.c.run_id == _after.c.run_id)
        .join(arms, and_(arms.c.run_id == _before.c.run_id, arms.c.name == _before.c.arm))
        .where(
            runs.c.status == "complete", _after.c.run_id == run_id, arms.c.position == 0,
            _after.c.arm != _before.c.arm, _after.c.arm.not_like("%@%"),
            _after.c.status == "done", _before.c.status == "done",
            or_(_after.c.text != _before.c.text, _after.c.calls.is_distinct_from(_before.c.calls)),
        )
        .order_by(_after.c.unit_id)
    )  # fmt: skip
    if unit is not None:
        statement = statement.where(
            _after.c.arm == unit.arm, _after.c.evalset == unit.evalset, _after.c.case_id == unit.case_id,
            _after.c.repeat == unit.repeat,
        )  # fmt: skip
    found: Sequence[Any] = connection.execute(statement).all()
    return [
        Blind(UnitKey(*row[:4]), row[4], (row[5], row[6]), (row[7], row[8]))
        for row in found
        if row[9] or stored_calls(row[10]) != stored_calls(row[11])
    ]


def _named(name: str) -> str:
    """Return a reviewer's name. UsageError for an empty, invisible or too long one."""
    name = plain.storable(name).strip()
    if not is_readable(name) or len(name) > LONGEST_NAME:
        raise UsageError(f"a preference needs the reviewer's name, of at most {LONGEST_NAME} characters.")
    return name


def _part(unit: UnitKey) -> str:
    """Return the pair, within its run; unlike `CLOSED`."""
    return f"{unit.arm}: {unit.question}"
