"""A variant's drift by position in its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from qualgate.store import seal
from qualgate.store.database import Store
from qualgate.store.rows import check_case
from qualgate.store.tables import cases, units


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDrift:
    """KL in nats at one position of the baseline's answers, over the answers long enough to have it."""

    position: int
    mean: float
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The baseline's answer and its case: the positions of every variant's KL."""

    text: str
    token_ids: tuple[int, ...]
    body: dict[str, Any]  # the case as it stands in the evalset


def baseline_said(store: Store, run_id: str) -> dict[tuple[str, str, int], Said]:
    """Return (evalset, case id, repeat) → the baseline's answer. Raises IntegrityError for a changed case."""
    with store.read() as connection:
        rows = connection.execute(
            select(units.c.evalset, units.c.case_id, units.c.repeat, units.c.text, units.c.token_ids, cases)
            .join(cases, cases.c.case_hash == units.c.case_hash)
            .where(units.c.run_id == run_id, units.c.arm == "baseline", units.c.status == "done")
        ).all()
    return {
        (row.evalset, row.case_id, row.repeat): Said(
            text=row.text or "", token_ids=seal.ints(row.token_ids), body=check_case(row)
        )
        for row in rows
    }


def drift_by_position(store: Store, run_id: str, variant: str, positions: int = 200) -> tuple[PositionDrift, ...]:
    """Return the mean KL at each of the first positions, over answers whose KL is known exactly."""
    sums, counts = [0.0] * positions, [0] * positions
    with store.read() as connection:
        rows = connection.execute(
            select(units.c.kl, units.c.top1_agreement)
            .where(units.c.run_id == run_id, units.c.arm == variant, units.c.status == "done")
            .where(units.c.kl_upper.is_(None))
            .order_by(units.c.unit_id)  # sums of floats depend on the order
        )
        for row in rows:
            for position, value in enumerate(seal.kl(row.kl, row.top1_agreement)[0][:positions]):
                sums[position] += value
                counts[position] += 1
    return tuple(
        PositionDrift(position=position, mean=total / count, answers=count)
        for position, (total, count) in enumerate(zip(sums, counts, strict=True))
        if count
    )
