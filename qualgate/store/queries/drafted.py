"""An arm's draft steps, pass by pass."""

from __future__ import annotations

from sqlalchemy import select

from qualgate.records import DraftStep, UnitKey
from qualgate.store.database import Store
from qualgate.store.draft_steps import as_records, steps_by_unit
from qualgate.store.rows import KEY
from qualgate.store.tables import units


def drafted(store: Store, run_id: str, arm: str) -> dict[UnitKey, tuple[DraftStep, ...]]:
    """Return the draft steps of each answer, in the order of passes and levels; {} for an arm without drafts."""
    units_of_arm = select(units.c.unit_id, *KEY).where(units.c.run_id == run_id, units.c.arm == arm)
    with store.read() as connection:
        keys = {row.unit_id: UnitKey(*row[1:]) for row in connection.execute(units_of_arm.order_by(units.c.unit_id))}
        steps = steps_by_unit(connection, run_id)
    return {key: as_records(key, steps[unit_id]) for unit_id, key in keys.items() if unit_id in steps}
