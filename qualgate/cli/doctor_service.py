"""Faults of a store, its disks and its cluster that would stop a run, each with what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qualgate.cli.doctor import Finding, sqlite_finding
from qualgate.config import GateFile
from qualgate.errors import QualgateError
from qualgate.errors.extras import install_command, installed_version
from qualgate.escaping import visible_line
from qualgate.formatting import counted, size_text
from qualgate.store.address import artifacts_folder, file_of
from qualgate.store.database import REVISIONS, open_store
from qualgate.store.health import Health, health

LEAST_FREE = 2**30  # bytes: below that a run of any size may fill the disk
MOST_NAMED = 3  # of a list, in a line
MOST_SKEW = 60.0  # s between two clocks, beyond which the dates of runs mislead


def service_findings(url: str, gate: GateFile | None) -> tuple[Finding, ...]:
    """Every check; what rests on the store is left out where that cannot be opened. gate: whose folders, and whose
    cluster, are looked at too."""
    found = []
    try:
        with open_store(url, create=False) as store:
            found += _of_store(health(store))
    except (
        QualgateError
    ) as error:  # wrong address, no driver, no rights, another revision, a network's disk: it says so
        found.append(Finding(what="store", state="stops", detail=str(error)))
    if file_of(url) is not None:
        found.append(sqlite_finding())
    found += (_folder(what, folder) for what, folder in _folders(url, gate))
    if gate is not None and gate.ray is not None:
        found.append(_ray(gate))
    return tuple(replace(one, detail=visible_line(one.detail)) for one in found)


def _of_store(one: Health) -> Iterator[Finding]:
    at = f"{one.server}, revision {REVISIONS[-1]} as this program's, {size_text(one.nbytes)}"
    yield Finding(what="store", state="ready", detail=at)
    if one.role:
        yield _role(one)
    yield _history(one)
    yield _clock(one)


def _role(one: Health) -> Finding:
    if one.lacking:
        detail = (
            f"{one.role} cannot make a run: it lacks {_some(one.lacking)}. Ask the store's owner for "
            "GRANT qualgate_writer (`qualgate db roles` makes it, and grants it new tables after an upgrade)"
        )
        return Finding(what="role", state="stops", detail=detail)
    owner = "; it owns the store, so it could change history: give runs a writer (`qualgate db roles`)"
    may = f"{one.role} may make runs{owner if one.owns else ''}"
    return Finding(what="role", state="ready", detail=may)


def _history(one: Health) -> Finding:
    if not one.unguarded:
        return Finding(what="history", state="ready", detail="append-only: the database refuses to change or delete it")
    detail = (
        f"the database lets {_some(one.unguarded)} change: triggers of the store are gone. Move it into a new store, "
        "which has them and where every seal is compared: qualgate db copy FROM TO"
    )
    return Finding(what="history", state="stops", detail=detail)


def _clock(one: Health) -> Finding:
    off = f"this machine is {_off(one.skew)} the store's clock"
    if abs(one.skew) > MOST_SKEW:
        return Finding(what="clock", state="optional", detail=f"{off}: runs are dated wrongly. Set it right")
    return Finding(what="clock", state="ready", detail=off)


def _off(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}"


def _folders(url: str, gate: GateFile | None) -> Iterator[tuple[str, Path]]:
    if (path := file_of(url)) is not None:
        yield "store's disk", path.parent
    elif gate is not None:
        yield "answers' disk", artifacts_folder(url, gate.path.parent)


def _folder(what: str, folder: Path) -> Finding:
    there = next(one for one in (folder, *folder.parents) if one.exists())  # a run makes what is missing
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK | os.X_OK):
        detail = f"{there} cannot be written: give it to the user who runs qualgate"
        return Finding(what=what, state="stops", detail=detail)
    if free < LEAST_FREE:
        detail = f"{size_text(free)} free in {there}: a run ends with 13 once it is full. Free some, or move the store"
        return Finding(what=what, state="stops", detail=detail)
    return Finding(what=what, state="ready", detail=f"{size_text(free)} free in {there}")


def _ray(gate: GateFile) -> Finding:
    version = installed_version("ray")
    if not version:
        return Finding(what="ray", state="stops", detail="it is not installed here", get=install_command("ray"))
    if not gate.ray:
        return Finding(what="ray", state="ready", detail=f"{version}; a run starts a cluster of this machine alone")
    from qualgate.pipeline.jobs import cluster_nodes

    try:
        nodes = cluster_nodes(gate)
    except QualgateError as error:
        return Finding(what="ray", state="stops", detail=str(error))
    if not nodes:
        return Finding(what="ray", state="ready", detail=f"{version}; every arm is served, so no cluster is asked")
    detail = f"{version} and this Python on {counted(len(nodes), 'node')}: {'; '.join(nodes)}"
    return Finding(what="ray", state="ready", detail=detail)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
