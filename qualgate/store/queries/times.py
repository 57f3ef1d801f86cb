"""Times and lengths of a run's answers, for the next run's forecast."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from qualgate.records import ArmIdentity, UnitKey
from qualgate.store.database import Store
from qualgate.store.tables import arms, units
from qualgate.store.typed import read


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTime:
    """Time and length of one answer."""

    case_hash: str
    engine: str  # `ArmIdentity.engine`: versions, device and arithmetic
    seconds: float  # from its batch's start to its last token
    tokens: int
    drafted: bool  # whether it began with the baseline's answer


def answer_times(store: Store, run_id: str) -> dict[UnitKey, AnswerTime]:
    """Return the times of all finished units."""
    statement = select(
        units.c.arm, units.c.evalset, units.c.case_id, units.c.repeat, units.c.case_hash, units.c.e2e,
        units.c.answer_tokens, units.c.baseline_proposed,
    ).where(units.c.run_id == run_id, units.c.status == "done")  # fmt: skip
    with store.read() as connection:
        arm_rows = connection.execute(select(arms.c.name, arms.c.planned_json).where(arms.c.run_id == run_id))
        engines = {row.name: read(ArmIdentity, row.planned_json).engine for row in arm_rows}
        return {
            UnitKey(row.arm, row.evalset, row.case_id, row.repeat): AnswerTime(
                case_hash=row.case_hash,
                engine=engines[row.arm],
                seconds=row.e2e,
                tokens=row.answer_tokens,
                drafted=bool(row.baseline_proposed),
            )
            for row in connection.execute(statement)
        }
