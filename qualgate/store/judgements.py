"""A judge's raw replies: append-only, each sealed with its run, judge and request.

Their interpretation is not stored: replies are parsed by the current reader whenever evidence is read, so a run can be
scored again without the judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from qualgate.records import Judgement, UnitKey
from qualgate.store.database import Store
from qualgate.store.plain import storable
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import KEY, stored_calls
from qualgate.store.sealed import insert_rows, is_intact, rows_of, sealed_row
from qualgate.store.tables import units
from qualgate.store.typed import read as read_typed


def add(store: Store, run_id: str, judge: str, replies: Iterable[Judgement]) -> None:
    """Store replies in one transaction; existing ones stay as they are. judge: its version."""
    rows = [_row(run_id, judge, reply) for reply in replies]
    if rows:
        _add(store, run_id, rows)


@lasting
def _add(store: Store, run_id: str, rows: list[dict[str, Any]]) -> None:
    with store.write() as connection:
        refuse_pruned(connection, run_id)  # it may have been pruned since its answers were read
        insert_rows(connection, rows)


def read(store: Store, run_id: str, judge: str) -> tuple[tuple[Judgement, ...], str]:
    """Return a judge's replies in a run, in a fixed order, and a fault; with a fault there are no replies."""
    with store.read() as connection:
        rows = connection.execute(rows_of("judgement", run_id=run_id, name=judge)).all()
    if first_fault := next(filter(None, map(fault, rows)), ""):
        return (), first_fault
    return tuple(sorted((read_typed(Judgement, row.body_json) for row in rows), key=_order)), ""


def fault(row: Any) -> str:
    """Return what is wrong with a stored reply; "" for an intact one, which is the only one to its request."""
    is_sound = is_intact(row) and row.part == _part(read_typed(Judgement, row.body_json))
    return "" if is_sound else f"{row.part}: what the judge replied is not what was recorded"


def answers(store: Store, run_id: str) -> dict[UnitKey, tuple[str, str, str]]:
    """Return key → (text, tool calls as JSON, case hash) of each answer of a run, complete or not."""
    columns = (*KEY, units.c.text, units.c.calls, units.c.case_hash)
    statement = select(*columns).where(units.c.run_id == run_id, units.c.status == "done")
    with store.read() as connection:
        rows = connection.execute(statement)
        return {UnitKey(*row[:4]): (row.text, stored_calls(row.calls), row.case_hash) for row in rows}


def _order(judgement: Judgement) -> tuple[str, str, str, int, bool]:
    return (judgement.variant, judgement.evalset, judgement.case_id, judgement.repeat, judgement.swapped)


def _part(judgement: Judgement) -> str:
    """Return the request that a reply is to, of one judge in one run."""
    name = f"{judgement.variant or 'label'}: {judgement.evalset}/{judgement.case_id}"
    return f"{name}#{judgement.repeat}{' swapped' if judgement.swapped else ''}"


def _row(run_id: str, judge: str, judgement: Judgement) -> dict[str, Any]:
    texts = {name: getattr(judgement, name) for name in ("reply", "error", "served", "label")}
    storables: dict[str, Any] = {name: storable(text) for name, text in texts.items() if text}
    return sealed_row("judgement", replace(judgement, **storables), run_id=run_id, name=judge, part=_part(judgement))
