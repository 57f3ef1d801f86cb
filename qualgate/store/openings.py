"""Which answers a reviewer has opened: append-only side evidence, one row of a person and an answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from qualgate.records import UnitKey
from qualgate.store import people, plain
from qualgate.store.database import Store
from qualgate.store.labels import LONGEST_NAME, CaseOfRun
from qualgate.store.postgresql import lasting
from qualgate.store.sealed import insert_rows, record_of, rows_of, sealed_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A person opened an answer."""

    who: str  # as `people` names them, else the name as typed
    evalset: str
    case_id: str
    repeat: int


@lasting
def note_opened(store: Store, run_id: str, unit: UnitKey, who: str, signed_in: str = "") -> None:
    """Record that a person opened a variant's answer, once. UsageError for a person who may not label."""
    who = plain.storable(who)[:LONGEST_NAME]
    opening = Opening(who=who, evalset=unit.evalset, case_id=unit.case_id, repeat=unit.repeat)
    with store.write(run_id) as connection:
        people.check_may(connection, signed_in, people.LABELS, "review")
        part = f"{unit.question} {who}"
        insert_rows(connection, [sealed_row("opening", opening, run_id=run_id, name=unit.arm, part=part)])


def opened(store: Store, run_id: str, variant: str) -> dict[str, frozenset[CaseOfRun]]:
    """Return person → the answers of a variant that they opened. IntegrityError for a changed row."""
    by_person = defaultdict[str, set[CaseOfRun]](set)
    with store.read() as connection:
        for row in connection.execute(rows_of("opening", run_id=run_id, name=variant)):
            opening = record_of(Opening, row)
            by_person[opening.who].add((opening.evalset, opening.case_id, opening.repeat))
    return {who: frozenset(cases) for who, cases in by_person.items()}
