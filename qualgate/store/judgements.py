"""A judge's raw replies, as they came: append-only, each sealed with the run, the judge and the question it answers.

What a reply means is not stored: it is read again, by the reader of today, whenever evidence is, so that a run is
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
    """Keep what came back, whole or not at all. judge: its version. One that is there already stays as it is."""
    rows = [_row(run_id, judge, one) for one in replies]
    if rows:
        _add(store, run_id, rows)


@lasting
def _add(store: Store, run_id: str, rows: list[dict[str, Any]]) -> None:
    with store.write() as connection:
        refuse_pruned(connection, run_id)  # it may have been pruned since its answers were read
        connection.execute(if_absent(connection, judgements), rows)


def read(store: Store, run_id: str, judge: str) -> tuple[tuple[Judgement, ...], str]:
    """What this judge replied in this run, in a fixed order, and what of it is not what was recorded, "" mostly."""
    with store.read() as connection:
        chosen = select(judgements).where(judgements.c.run_id == run_id, judgements.c.judge == judge)
        found = connection.execute(chosen.order_by(*judgements.primary_key.columns)).all()
    kept = []
    for row in found:
        values: dict[str, Any] = {one.name: getattr(row, one.name) for one in fields(Judgement)}
        values["swapped"] = bool(row.swapped)
        one = Judgement(**values)
        if row.sha256 != _row(run_id, judge, one)["sha256"]:
            where = f"{row.variant or 'label'}: {row.evalset}/{row.case_id}"
            return (), f"{where}: what the judge replied is not what was recorded"
        kept.append(one)
    return tuple(kept), ""


def answers(store: Store, run_id: str) -> dict[UnitKey, tuple[str, str]]:
    """Text of each answer of a run, complete or not, and its case's hash."""
    asked = select(*KEY, units.c.text, units.c.case_hash).where(units.c.run_id == run_id, units.c.status == "done")
    with store.read() as connection:
        return {UnitKey(*row[:4]): (row.text, row.case_hash) for row in connection.execute(asked)}


def _row(run_id: str, judge: str, one: Judgement) -> dict[str, Any]:
    values = asdict(one) | {"run_id": run_id, "judge": judge, "swapped": int(one.swapped)}
    values |= {name: storable(values[name]) for name in ("reply", "error", "served", "label") if values[name]}
    return values | {"sha256": content_hash(values)}
