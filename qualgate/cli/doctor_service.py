"""Check a store, its disks and its cluster for faults that would stop a run, each with a remedy."""

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
from qualgate.store.address import artifacts_folder, file_of
from qualgate.store.database import REVISIONS, open_store
from qualgate.store.health import Health, health
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted, size_text

LEAST_FREE = 2**30  # bytes; with less, a run of any size may fill the disk
MOST_NAMED = 3  # names of a list in one line
MOST_SKEW = 60.0  # seconds between two clocks; beyond, the dates of runs mislead


def service_findings(url: str, gate: GateFile | None) -> tuple[Finding, ...]:
    """Run every check; those of the store's content need it to open. gate: check its folders and cluster too."""
    findings = []
    try:
        with open_store(url, create=False) as store:
            findings += _store_findings(health(store))
    except QualgateError as error:  # wrong address, no driver, no rights, another revision, a network disk
        findings.append(Finding(what="store", state="stops", detail=str(error)))
    if file_of(url) is not None:
        findings.append(sqlite_finding())
    findings += (_folder(what, folder) for what, folder in _folders(url, gate))
    if gate is not None and gate.ray is not None:
        findings.append(_ray(gate))
    return tuple(replace(finding, detail=visible_line(finding.detail)) for finding in findings)


def _store_findings(store: Health) -> Iterator[Finding]:
    """Yield findings on a store that can be read: its version, role, history and clock."""
    detail = f"{store.server}, revision {REVISIONS[-1]} as this program's, {size_text(store.nbytes)}"
    yield Finding(what="store", state="ready", detail=detail)
    if store.role:
        yield _role(store)
    yield _history(store)
    yield _clock(store)


def _role(store: Health) -> Finding:
    """Say whether the store's role may make runs; one that owns the store may, with a warning."""
    if store.lacking:
        detail = (
            f"{store.role} cannot make a run: it lacks {_first_names(store.lacking)}. Ask the store's owner for "
            "GRANT qualgate_writer (`qualgate db roles` makes it, and grants it new tables after an upgrade)"
        )
        return Finding(what="role", state="stops", detail=detail)
    owner = "; it owns the store, so it could change history: give runs a writer (`qualgate db roles`)"
    may = f"{store.role} may make runs{owner if store.owns else ''}"
    return Finding(what="role", state="ready", detail=may)


def _history(store: Health) -> Finding:
    """Say whether the database's triggers keep the store's history from being changed."""
    if not store.unguarded:
        return Finding(what="history", state="ready", detail="append-only: the database refuses to change or delete it")
    detail = (
        f"the database lets {_first_names(store.unguarded)} change: triggers of the store are gone. Move it into a new "
        "store, which has them and where every seal is compared: qualgate db copy FROM TO"
    )
    return Finding(what="history", state="stops", detail=detail)


def _clock(store: Health) -> Finding:
    """Say how far this machine's clock is off the store's; more than MOST_SKEW dates runs wrongly."""
    skew = f"this machine is {_skew_text(store.skew)} the store's clock"
    if abs(store.skew) > MOST_SKEW:
        return Finding(what="clock", state="optional", detail=f"{skew}: runs are dated wrongly. Set it right")
    return Finding(what="clock", state="ready", detail=skew)


def _skew_text(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}"


def _folders(url: str, gate: GateFile | None) -> Iterator[tuple[str, Path]]:
    if (path := file_of(url)) is not None:
        yield "store's disk", path.parent
    elif gate is not None:
        yield "answers' disk", artifacts_folder(url, gate.path.parent)


def _folder(what: str, folder: Path) -> Finding:
    """Say whether the folder, or the nearest one above it that exists, can be written and has LEAST_FREE bytes free."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())  # a run makes what is missing
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK | os.X_OK):
        detail = f"{existing} cannot be written: give it to the user who runs qualgate"
        return Finding(what=what, state="stops", detail=detail)
    if free < LEAST_FREE:
        consequence = "a run ends with 13 once it is full. Free some, or move the store"
        detail = f"{size_text(free)} free in {existing}: {consequence}"
        return Finding(what=what, state="stops", detail=detail)
    return Finding(what=what, state="ready", detail=f"{size_text(free)} free in {existing}")


def _ray(gate: GateFile) -> Finding:
    """Say whether ray is installed and, for a gate file with a cluster, which nodes answer."""
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


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
