"""Steps of each draft, a row a pass and level of an answer: how they stand in their table and in the unit's seal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from qualgate.errors import IntegrityError
from qualgate.records import Completion, DraftStep, JobResult, UnitKey
from qualgate.store import seal
from qualgate.store.rows import STEP, unit_name
from qualgate.store.tables import draft_steps, units

Steps = Mapping[int, Sequence[tuple[Any, ...]]]  # unit_id → its rows in their order, the columns of STEP
# Who proposes in drafted evaluation: the answers of other arms, which is no speculation and has columns of its own.
EVALUATION = ("baseline", "sibling")
ROUNDING = 1e-9  # by which a sum of probabilities may be more than 1


def steps_by_key(result: JobResult) -> dict[UnitKey, list[DraftStep]]:
    """Of each answer of the job, in the order given. Raises IntegrityError for a step that cannot be, or is no
    speculation, or of an answer that is not in the job."""
    found = defaultdict[UnitKey, list[DraftStep]](list)
    for step in result.draft_steps:
        found[step.key].append(step)
    answered = {completion.key for completion in result.completions}
    for key, steps in found.items():
        wrong = (
            "of an answer that is not in its job" if key not in answered else next(filter(None, map(_fault, steps)), "")
        )
        if wrong:
            raise IntegrityError(f"{unit_name(key)}: a draft step {wrong}; nothing was stored.")
    return found


def _fault(step: DraftStep) -> str:
    counts = step.position, step.proposed, step.accepted, step.rejected, step.discarded, step.unverified
    if min(step.pass_number or 0, step.sequences or 0) < 0:
        return f"is of pass {step.pass_number} over {step.sequences} sequences, which cannot be"
    tested = step.accepted + step.rejected
    if step.overlap is not None and not 0 <= step.overlap <= tested * (1 + ROUNDING):  # NaN is not
        return f"has a Σ min(p, q) of {step.overlap} over {tested} tested tokens, which cannot be"
    if step.level < 1 or min(counts) < 0 or step.rejected > 1:
        return (
            f"says level {step.level}, position {step.position}, {step.proposed} proposed, {step.accepted} accepted, "
            f"{step.rejected} rejected, {step.unverified} unverified, which cannot be"
        )
    return f"has {step.proposer!r} for its proposer, which is evaluation" if step.proposer in EVALUATION else ""


def with_counts(completion: Completion, steps: Sequence[DraftStep]) -> Completion:
    """The completion with what the first level of its steps adds up to. IntegrityError where it says otherwise."""
    first = [step for step in steps if step.level == 1]
    counts = sum(step.proposed for step in first), sum(step.accepted for step in first)
    said = completion.draft_proposed, completion.draft_accepted
    if said not in ((None, None), counts):
        raise IntegrityError(
            f"{unit_name(completion.key)}: {said[0]} tokens proposed and {said[1]} accepted, and its draft steps add "
            f"up to {counts[0]} and {counts[1]}; nothing was stored."
        )
    return replace(completion, draft_proposed=counts[0], draft_accepted=counts[1])


def as_rows(steps: Sequence[DraftStep]) -> list[tuple[Any, ...]]:
    """The columns of STEP, a row a step."""
    return [tuple(getattr(step, column.name) for column in STEP) for step in steps]


def columns(unit_id: int, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of what `as_rows` gives, to be inserted: every column of the table."""
    return [(unit_id, step, *row) for step, row in enumerate(rows)]


def as_records(key: UnitKey, rows: Sequence[tuple[Any, ...]]) -> tuple[DraftStep, ...]:
    """The mirror image of `as_rows`."""
    names = [column.name for column in STEP]
    return tuple(DraftStep(key=key, **dict(zip(names, row, strict=True))) for row in rows)


def digest(rows: Sequence[tuple[Any, ...]]) -> str | None:
    """What a unit's seal takes of its steps; None where there are none."""
    return seal.digest(rows) if rows else None


def steps_by_unit(connection: Connection, run_id: str, of: Collection[int] | None = None) -> Steps:
    """Of every unit that has some. of: these units alone."""
    chosen = select(draft_steps.c.unit_id, *STEP).join_from(draft_steps, units).where(units.c.run_id == run_id)
    if of is not None:
        chosen = chosen.where(draft_steps.c.unit_id.in_(of))
    found = defaultdict[int, list[tuple[Any, ...]]](list)
    for unit_id, *row in connection.execute(chosen.order_by(draft_steps.c.unit_id, draft_steps.c.step)):
        found[unit_id].append(tuple(row))
    return found
