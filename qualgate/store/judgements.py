"""A judge's raw replies: append-only, each sealed with its run, judge and request.

Their interpretation is not stored: replies are parsed by the current reader whenever evidence is read, so a run can be
scored again without the judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import select

from qualgate.identity import content_hash
from qualgate.records import Judgement, UnitKey
from qualgate.store.database import Store, if_absent
from qualgate.store.plain import storable
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import KEY
from qualgate.store.tables import judgements, units


def add(store: Store, run_id: str, judge: str, replies: Iterable[Judgement]) -> None:
    """Store replies in one transaction; existing ones stay as they are. judge: its version."""
    rows = [_row(run_id, judge, reply) for reply in replies]
    if rows:
        _add(store, run_id, rows)


@lasting
def _add(store: Store, run_id: str, rows: list[dict[str, Any]]) -> None:
    with store.write() as connection:
        refuse_pruned(connection, run_id)  # it may have been pruned since its answers were read
        connection.execute(if_absent(connection, judgements), rows)


def read(store: Store, run_id: str, judge: str) -> tuple[tuple[Judgement, ...], str]:
    """Return a judge's replies in a run, in a fixed order, and a fault; with a fault there are no replies."""
    with store.read() as connection:
        chosen = select(judgements).where(judgements.c.run_id == run_id, judgements.c.judge == judge)
        rows = connection.execute(chosen.order_by(*judgements.primary_key.columns)).all()
    replies = []
    for row in rows:
        values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(Judgement)}
        values["swapped"] = bool(row.swapped)
        judgement = Judgement(**values)
        if row.sha256 != _row(run_id, judge, judgement)["sha256"]:
            where = f"{row.variant or 'label'}: {row.evalset}/{row.case_id}"
            return (), f"{where}: what the judge replied is not what was recorded"
        replies.append(judgement)
    return tuple(replies), ""


def answers(store: Store, run_id: str) -> dict[UnitKey, tuple[str, str]]:
    """Return key → (text, case hash) of each answer of a run, complete or not."""
    statement = select(*KEY, units.c.text, units.c.case_hash).where(units.c.run_id == run_id, units.c.status == "done")
    with store.read() as connection:
        return {UnitKey(*row[:4]): (row.text, row.case_hash) for row in connection.execute(statement)}


def _row(run_id: str, judge: str, judgement: Judgement) -> dict[str, Any]:
    values: dict[str, Any] = asdict(judgement) | {"run_id": run_id, "judge": judge, "swapped": int(judgement.swapped)}
    values |= {name: storable(values[name]) for name in ("reply", "error", "served", "label") if values[name]}
    return values | {"sha256": content_hash(values)}
