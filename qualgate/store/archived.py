"""Where runs' evidence was archived, and which of it the store let go since: a row an event, each sealed.

A run that was pruned keeps its list, seals, verdicts and decisions. Whoever asks for its answers or scores is refused:
what is not here approves nothing. Letting go and putting back take many transactions. The first one records that it
began, and from then on the run counts as away; the last one records its end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from sqlalchemy import Connection, func, insert, select

from qualgate.errors import InfrastructureError, IntegrityError
from qualgate.identity import content_hash
from qualgate.store import plain
from qualgate.store.tables import archives

Event = Literal["archived", "pruning", "pruned", "restoring", "restored"]
AWAY: tuple[Event, ...] = ("pruning", "pruned", "restoring")  # not whole in the store
SEALED = ("run_id", "number", "event", "place", "manifest_sha256", "created_at")
NEXT = "`qualgate db restore FOLDER` puts them back; until then nothing is decided by this run."


class EvidenceArchived(InfrastructureError):
    """A run's answers and scores are in an archive, and not in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The newest event of a run's evidence."""

    run_id: str
    number: int
    event: Event
    place: str  # the run's folder in the archive, absolute
    manifest_sha256: str

    def __str__(self) -> str:
        return f"the archive {self.place} (sha256 of its manifest {self.manifest_sha256})"


def newest(connection: Connection, run_id: str) -> Archived | None:
    """None of a run that was never archived. IntegrityError for a row that was changed, or lacks one before it."""
    rows = connection.execute(select(archives).where(archives.c.run_id == run_id).order_by(archives.c.number)).all()
    for number, row in enumerate(rows, start=1):
        if row.number != number or row.event not in get_args(Event) or row.sha256 != _digest(row._mapping):
            raise IntegrityError(
                f"where run {run_id} is archived is not what was recorded. Restore the store from a backup."
            )
    return Archived(**{name: getattr(rows[-1], name) for name in Archived.__dataclass_fields__}) if rows else None


def pruned(connection: Connection, run_id: str) -> Archived | None:
    """Where the evidence of a run is that the store let go, in part at least; None of any other."""
    found = newest(connection, run_id)
    return found if found is not None and found.event in AWAY else None


def refuse_pruned(connection: Connection, run_id: str) -> None:
    """Raise EvidenceArchived for a run that was pruned, or is being."""
    if (found := pruned(connection, run_id)) is not None:
        raise EvidenceArchived(f"run {run_id}: its answers and scores are in {found}. {NEXT}")


def pruned_runs(connection: Connection) -> frozenset[str]:
    """Those that have no answers and scores here, or not all."""
    return runs_at(connection, AWAY)


def runs_at(connection: Connection, events: Collection[Event]) -> frozenset[str]:
    """Those whose newest event is one of these."""
    last = select(archives.c.run_id, func.max(archives.c.number).label("number")).group_by(archives.c.run_id).subquery()
    rows = select(archives.c.run_id).join(
        last, (archives.c.run_id == last.c.run_id) & (archives.c.number == last.c.number)
    )
    return frozenset(connection.scalars(rows.where(archives.c.event.in_(events))))


def add(connection: Connection, run_id: str, event: Event, place: str, manifest_sha256: str) -> Archived:
    """Record what was done; what `newest` says from then on."""
    last = newest(connection, run_id)
    number, place = last.number + 1 if last else 1, plain.storable(place)
    made = Archived(run_id=run_id, number=number, event=event, place=place, manifest_sha256=manifest_sha256)
    row = {**asdict(made), "created_at": plain.now()}
    connection.execute(insert(archives), {**row, "sha256": _digest(row)})
    return made


def _digest(row: object) -> str:
    return content_hash({name: row[name] for name in SEALED})  # type: ignore[index]
