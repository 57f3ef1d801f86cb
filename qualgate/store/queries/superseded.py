"""Find runs superseded by a newer run of the same gate file: of nightly runs only the last one awaits a decision.

An edited gate file is still the same one, and its name alone does not identify it. So runs belong to one gate file if
they have the same arms, models, evalsets and file name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from sqlalchemy import Connection, select

from qualgate.store.nights import gate_of
from qualgate.store.prunings import emptied_runs
from qualgate.store.queries.deciding import DECIDES
from qualgate.store.tables import arms, evalsets, runs, sealed


def superseded(connection: Connection) -> dict[str, str]:
    """Return run → the newest complete run of the same gate file, if that is another. Only runs that
    decide count, and none that a nightly file made for another of its gates."""
    gates, replaced = _gates(connection), {}
    for group in by_gate_file(connection):
        for index, run_id in enumerate(group):
            newest = next((newer for newer in group[:index] if _may_be_of_one(gates, run_id, newer)), None)
            if newest is not None:
                replaced[run_id] = newest
    return replaced


def nights_until(connection: Connection, run_id: str) -> list[str]:
    """Return complete runs of the same gate file up to this one, oldest first: those that decide, without pruned runs,
    and runs that a nightly file made for another of its gates. Raises IntegrityError for a run that is recorded as
    pruned and is not."""
    gates = _gates(connection)
    same = next((group for group in by_gate_file(connection) if run_id in group), [])
    away = emptied_runs(connection, same)
    same = [run for run in same if run not in away and _may_be_of_one(gates, run_id, run)]
    return same[same.index(run_id) :][::-1] if run_id in same else []


def _may_be_of_one(gates: dict[str, set[tuple[str, str]]], run_id: str, other_run: str) -> bool:
    """Whether two runs may belong to one gate: not if both are of nights without a common gate."""
    return run_id not in gates or other_run not in gates or bool(gates[run_id] & gates[other_run])


def _gates(connection: Connection) -> dict[str, set[tuple[str, str]]]:
    """Return run → (nightly file, gate) of each of its nights."""
    nights = sealed.c.kind == "night", sealed.c.run_id.is_not(None)
    gates = defaultdict[str, set[tuple[str, str]]](set)
    for run_id, nightly, part in connection.execute(
        select(sealed.c.run_id, sealed.c.name, sealed.c.part).where(*nights).distinct()
    ):
        gates[run_id].add((nightly, gate_of(part)))
    return dict(gates)


def by_gate_file(connection: Connection) -> list[list[str]]:
    """Return complete runs that decide, grouped by gate file, newest first. A run without a stored file name is in
    each group that it may belong to."""
    contents, names = _contents(connection), _names(connection)
    by_content = defaultdict[frozenset[tuple[str, ...]], list[str]](list)
    for run_id in _complete(connection):
        by_content[frozenset(contents[run_id])].append(run_id)
    groups = []
    for group in by_content.values():
        gate_names = sorted({names[run] for run in group} - {""}) or [""]
        groups += [[run for run in group if names[run] in ("", name)] for name in gate_names]
    return groups


def _names(connection: Connection) -> dict[str, str]:
    return {run_id: name or "" for run_id, name in connection.execute(select(runs.c.run_id, runs.c.gate_name))}


def by_gate(connection: Connection) -> list[list[str]]:
    """Return the groups of `by_gate_file`, split by gate of a nightly file; runs of no night are in each part."""
    gates, groups = _gates(connection), []
    for group in by_gate_file(connection):
        gate_keys = sorted({gate for run in group for gate in gates.get(run, ())})
        groups += [[run for run in group if gate in gates.get(run, {gate})] for gate in gate_keys] or [group]
    return groups


def _complete(connection: Connection) -> list[str]:
    complete = select(runs.c.run_id).where(runs.c.status == "complete", DECIDES)
    return list(connection.scalars(complete.order_by(runs.c.created_at.desc(), runs.c.run_id.desc())))


def _contents(connection: Connection) -> dict[str, set[tuple[str, ...]]]:
    """Return run → its arms with their models, and its evalsets."""
    contents = defaultdict[str, set[tuple[str, ...]]](set)
    for run_id, name, spec in connection.execute(
        select(arms.c.run_id, arms.c.name, arms.c.spec_json).where(arms.c.name.not_like("%@%"))
    ):
        contents[run_id].add(("arm", name, _model(spec)))
    for run_id, name in connection.execute(select(evalsets.c.run_id, evalsets.c.name)):
        contents[run_id].add(("evalset", name))
    return contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A run's name for people."""

    gate_file: str = ""  # its name; "" if it was not stored
    model: str = ""  # last part of the baseline's folder
    evalsets: tuple[str, ...] = ()  # in the gate file's order

    def __str__(self) -> str:
        model = f"{self.model}: {', '.join(self.evalsets)}"
        return f"{self.gate_file}, {model}" if self.gate_file else model


def called(connection: Connection, run_ids: list[str]) -> dict[str, Called]:
    """Return run → its name for people."""
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
    """Return the model's folder; for a damaged row its text, which matches no other run."""
    try:
        return str(json.loads(spec)["model"])
    except (ValueError, KeyError, TypeError):
        return spec
