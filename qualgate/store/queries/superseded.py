"""Which runs a newer one of the same gate file has taken the place of: of a nightly run only the last night waits.

A gate file that is edited is no other, and its name alone does not tell two of them apart. So runs are of one where the
same arms, made from the same models, were asked the same evalsets, by files of one name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from sqlalchemy import Connection, select

from qualgate.store.night_tables import nights
from qualgate.store.prunings import emptied_runs
from qualgate.store.queries.trials import IS_TRIAL
from qualgate.store.tables import arms, evalsets, runs


def superseded(connection: Connection) -> dict[str, str]:
    """Run → the newest complete run of the same gate file, where that is another. No trial is one of them, and none
    that a nightly file made for another of its gates."""
    gates, found = _gates(connection), {}
    for same in by_gate_file(connection):
        for place, run_id in enumerate(same):
            newest = next((one for one in same[:place] if _may_be_of_one(gates, run_id, one)), None)
            if newest is not None:
                found[run_id] = newest
    return found


def nights_until(connection: Connection, run_id: str) -> list[str]:
    """Complete runs of the same gate file up to this one, oldest first. No trial is one of them, and none that was
    pruned; nor one that a nightly file made for another of its gates, which may ask the same models otherwise.
    IntegrityError for a run that is recorded as pruned and is not."""
    gates = _gates(connection)
    same = next((one for one in by_gate_file(connection) if run_id in one), [])
    away = emptied_runs(connection, same)
    same = [one for one in same if one not in away and _may_be_of_one(gates, run_id, one)]
    return same[same.index(run_id) :][::-1] if run_id in same else []


def _may_be_of_one(gates: dict[str, set[tuple[str, str]]], run_id: str, other: str) -> bool:
    """Unless both are of nights, and of no gate in common."""
    return run_id not in gates or other not in gates or bool(gates[run_id] & gates[other])


def _gates(connection: Connection) -> dict[str, set[tuple[str, str]]]:
    """Run → nightly file and gate of each night that it is the run of."""
    rows = select(nights.c.run_id, nights.c.nightly, nights.c.gate).where(nights.c.run_id.is_not(None)).distinct()
    found = defaultdict[str, set[tuple[str, str]]](set)
    for run_id, nightly, gate in connection.execute(rows):
        found[run_id].add((nightly, gate))
    return dict(found)


def by_gate_file(connection: Connection) -> list[list[str]]:
    """Complete runs that are no trials, newest first, those of one gate file together. One that is older than names
    are kept is with each that it may be of."""
    asked, names = _asked(connection), _names(connection)
    alike = defaultdict[frozenset[tuple[str, ...]], list[str]](list)
    for run_id in _complete(connection):
        alike[frozenset(asked[run_id])].append(run_id)
    found = []
    for same in alike.values():
        every = sorted({names[one] for one in same} - {""}) or [""]
        found += [[one for one in same if names[one] in ("", name)] for name in every]
    return found


def _names(connection: Connection) -> dict[str, str]:
    """Run → its gate file's name; "" where that was not kept."""
    return {run_id: name or "" for run_id, name in connection.execute(select(runs.c.run_id, runs.c.gate_name))}


def by_gate(connection: Connection) -> list[list[str]]:
    """As `by_gate_file`, each gate of a nightly file by itself: runs that are of no night are with each of them."""
    gates, found = _gates(connection), []
    for same in by_gate_file(connection):
        every = sorted({gate for one in same for gate in gates.get(one, ())})
        found += [[one for one in same if gate in gates.get(one, {gate})] for gate in every] or [same]
    return found


def _complete(connection: Connection) -> list[str]:
    """Runs that are no trials, newest first."""
    complete = select(runs.c.run_id).where(runs.c.status == "complete", ~IS_TRIAL)
    return list(connection.scalars(complete.order_by(runs.c.created_at.desc(), runs.c.run_id.desc())))


def _asked(connection: Connection) -> dict[str, set[tuple[str, ...]]]:
    """Run → its arms with their models, and its evalsets."""
    asked = defaultdict[str, set[tuple[str, ...]]](set)
    for run_id, name, spec in connection.execute(
        select(arms.c.run_id, arms.c.name, arms.c.spec_json).where(arms.c.name.not_like("%@%"))
    ):
        asked[run_id].add(("arm", name, _model(spec)))
    for run_id, name in connection.execute(select(evalsets.c.run_id, evalsets.c.name)):
        asked[run_id].add(("evalset", name))
    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What people call a run by."""

    gate_file: str = ""  # its name; "" where the store is older than that was kept
    model: str = ""  # the baseline's folder, by its last name
    evalsets: tuple[str, ...] = ()  # in the gate file's order

    def __str__(self) -> str:
        model = f"{self.model}: {', '.join(self.evalsets)}"
        return f"{self.gate_file}, {model}" if self.gate_file else model


def called(connection: Connection, run_ids: list[str]) -> dict[str, Called]:
    """Run → what it is called by."""
    specs = select(arms.c.run_id, arms.c.spec_json, runs.c.gate_name).join(runs, runs.c.run_id == arms.c.run_id)
    specs = specs.where(arms.c.run_id.in_(run_ids), arms.c.position == 0)
    sets = select(evalsets.c.run_id, evalsets.c.name).where(evalsets.c.run_id.in_(run_ids))
    names = defaultdict[str, list[str]](list)
    for run_id, name in connection.execute(sets.order_by(evalsets.c.position)):
        names[run_id].append(name)
    return {
        run_id: Called(gate_file=gate_file or "", model=_called(_model(spec)), evalsets=tuple(names[run_id]))
        for run_id, spec, gate_file in connection.execute(specs)
    }


def _called(model: str) -> str:
    shipped = PurePath(model).parts[-2:] == ("refmodel", "weights")
    return "reference" if shipped else PurePath(model).name


@lru_cache(maxsize=4096)  # one night's are the last one's
def _model(spec: str) -> str:
    """The folder; of a row that is not what was recorded, its text: no other run's."""
    try:
        return str(json.loads(spec)["model"])
    except (ValueError, KeyError, TypeError):
        return spec
