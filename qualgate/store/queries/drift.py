"""How a variant's drift changes along its answers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from qualgate.store import seal
from qualgate.store.database import Store
from qualgate.store.tables import units


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDrift:
    """KL in nats at one position of the baseline's answers, over the answers long enough to have it."""

    position: int
    mean: float
    answers: int


def drift_by_position(store: Store, run_id: str, variant: str, positions: int = 200) -> tuple[PositionDrift, ...]:
    """Mean KL at each of the first positions."""
    sums, counts = [0.0] * positions, [0] * positions
    with store.read() as connection:
        blobs = connection.execute(
            select(units.c.kl)
            .where(units.c.run_id == run_id, units.c.arm == variant, units.c.status == "done")
            .order_by(units.c.unit_id)  # sums of floats depend on the order
        ).scalars()
        for blob in blobs:
            for position, value in enumerate(seal.floats(blob)[:positions]):
                sums[position] += value
                counts[position] += 1
    return tuple(
        PositionDrift(position=position, mean=total / count, answers=count)
        for position, (total, count) in enumerate(zip(sums, counts, strict=True))
        if count
    )
