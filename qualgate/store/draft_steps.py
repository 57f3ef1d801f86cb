"""Draft steps, one row per pass and level of an answer: in their table and in the unit's seal."""

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
# Proposers of drafted evaluation: answers of other arms. It is no speculation and has columns of its own.
EVALUATION = ("baseline", "sibling")
ROUNDING = 1e-9  # tolerance for a sum of probabilities above 1


def steps_by_key(result: JobResult) -> dict[UnitKey, list[DraftStep]]:
    """Group the job's draft steps by answer, in order. Raises IntegrityError for an impossible step, one that is no
    speculation, or one of an answer that is not in the job."""
    by_key = defaultdict[UnitKey, list[DraftStep]](list)
    for step in result.draft_steps:
        by_key[step.key].append(step)
    answered = {completion.key for completion in result.completions}
    for key, steps in by_key.items():
        wrong = (
            "of an answer that is not in its job" if key not in answered else next(filter(None, map(_fault, steps)), "")
        )
        if wrong:
            raise IntegrityError(f"{unit_name(key)}: a draft step {wrong}; nothing was stored.")
    return by_key


def _fault(step: DraftStep) -> str:
    """Return what is impossible about a draft step, as the end of a sentence; "" for a possible step."""
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
    """Return the completion with the draft counts of its first-level steps. Raises IntegrityError if it has others."""
    first_level = [step for step in steps if step.level == 1]
    counts = sum(step.proposed for step in first_level), sum(step.accepted for step in first_level)
    stated = completion.draft_proposed, completion.draft_accepted
    if stated not in ((None, None), counts):
        raise IntegrityError(
            f"{unit_name(completion.key)}: {stated[0]} tokens proposed and {stated[1]} accepted, but its draft steps "
            f"add up to {counts[0]} and {counts[1]}; nothing was stored."
        )
    return replace(completion, draft_proposed=counts[0], draft_accepted=counts[1])


def as_rows(steps: Sequence[DraftStep]) -> list[tuple[Any, ...]]:
    """Return the columns of STEP, one row per step."""
    return [tuple(getattr(step, column.name) for column in STEP) for step in steps]


def columns(unit_id: int, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows of every column of the table, from those of `as_rows`."""
    return [(unit_id, step, *row) for step, row in enumerate(rows)]


def as_records(key: UnitKey, rows: Sequence[tuple[Any, ...]]) -> tuple[DraftStep, ...]:
    """Return the steps of rows that `as_rows` made."""
    names = [column.name for column in STEP]
    return tuple(DraftStep(key=key, **dict(zip(names, row, strict=True))) for row in rows)


def digest(rows: Sequence[tuple[Any, ...]]) -> str | None:
    """Return the digest of a unit's steps for its seal; None without steps."""
    return seal.digest(rows) if rows else None


def steps_by_unit(connection: Connection, run_id: str, unit_ids: Collection[int] | None = None) -> Steps:
    """Return the steps of every unit that has some. unit_ids: only these units."""
    chosen = select(draft_steps.c.unit_id, *STEP).join_from(draft_steps, units).where(units.c.run_id == run_id)
    if unit_ids is not None:
        chosen = chosen.where(draft_steps.c.unit_id.in_(unit_ids))
    by_unit = defaultdict[int, list[tuple[Any, ...]]](list)
    for unit_id, *row in connection.execute(chosen.order_by(draft_steps.c.unit_id, draft_steps.c.step)):
        by_unit[unit_id].append(tuple(row))
    return by_unit
