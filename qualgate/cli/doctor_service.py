"""What of a store, its pool and its cluster would stop a run, each finding with what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qualgate.cli.doctor import Finding, sqlite_finding
from qualgate.cli.pool import LEASE, submissions_folder
from qualgate.config import GateFile
from qualgate.errors import QualgateError
from qualgate.errors.extras import install_command, installed_version
from qualgate.escaping import visible_line
from qualgate.formatting import counted, size_text
from qualgate.identity import own_version
from qualgate.store.address import artifacts_folder, file_of
from qualgate.store.database import REVISIONS, open_store
from qualgate.store.health import Health, health

LEAST_FREE = 2**30  # bytes: below that a run of any size may fill the disk
MOST_NAMED = 3  # of a list, in a line


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
    yield _nodes(one)
    yield _queue(one)
    yield _programs(one)


def _role(one: Health) -> Finding:
    if one.lacking:
        detail = (
            f"{one.role} cannot make a run or be a node: it lacks {_some(one.lacking)}. Ask the store's owner for "
            "GRANT qualgate_writer (`qualgate db roles` makes it, and grants it new tables after an upgrade)"
        )
        return Finding(what="role", state="stops", detail=detail)
    owner = "; it owns the store, so it could change history: give runs and nodes a writer (`qualgate db roles`)"
    may = f"{one.role} may make runs and be a node{owner if one.owns else ''}"
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
    lease = min((node.lease for node in one.nodes), default=LEASE)
    off = {"this machine": one.skew} | {
        f"node {node.name}": node.skew for node in one.nodes if node.name in one.at_work
    }
    wrong = [f"{who} {_off(skew)}" for who, skew in off.items() if abs(skew) > lease]
    if wrong:
        detail = (
            f"{_some(wrong)} the store's clock, beyond a lease of {lease:g} s: runs are dated wrongly. Set it right"
        )
        return Finding(what="clock", state="optional", detail=detail)
    return Finding(what="clock", state="ready", detail=f"{_off(one.skew)} the store's, a lease is {lease:g} s")


def _off(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}"


def _nodes(one: Health) -> Finding:
    told = [f"{node.name} ({node.seen:.0f} s ago{'' if node.name in one.at_work else ', gone'})" for node in one.nodes]
    if one.at_work:
        return Finding(what="nodes", state="ready", detail=f"{len(one.at_work)} at work: {', '.join(told)}")
    gone = f"; seen before: {', '.join(told)}" if told else ""
    if waiting := one.queue.get("queued", 0) + one.queue.get("leased", 0):
        wait = counted(waiting, "submission waits", "submissions wait")
        detail = f"none is at work, and {wait}: qualgate worker --store URL{gone}"
        return Finding(what="nodes", state="stops", detail=detail)
    return Finding(what="nodes", state="ready", detail=f"none is at work, and nothing waits for one{gone}")


def _queue(one: Health) -> Finding:
    told = ", ".join(f"{number} {status}" for status, number in sorted(one.queue.items())) or "empty"
    oldest = f"; the oldest has been queued for {one.waited:.0f} s" if one.queue.get("queued") else ""
    late = f"; {counted(one.late, 'lease')} ran out, taken back by the next claim" if one.late else ""
    apart = "; `qualgate status` says why some were set apart" if one.queue.get("apart") else ""
    unseen = not one.at_work and one.waited > LEASE  # for so long a node may be on its way
    left = one.latest > LEASE  # any node that claims would have taken it back
    stuck = "; no node takes them: start one, or see what those at work are at: `qualgate status`"
    detail = f"{told}{oldest}{late}{apart}"
    if unseen or left:
        return Finding(what="queue", state="stops", detail=detail + stuck)
    return Finding(what="queue", state="ready", detail=detail)


def _programs(one: Health) -> Finding:
    own = own_version()
    others = [f"node {node.name} has {node.program}" for node in one.nodes
              if node.name in one.at_work and node.program != own]  # fmt: skip
    here = {node.program for node in one.nodes if node.name in one.at_work} | {own}
    others += [f"{counted(number, 'submission')} of {program}, which no node has"
               for program, number in sorted(one.programs.items()) if program not in here]  # fmt: skip
    if others:
        detail = (
            f"{_some(others)}; here is {own}. A run must not be of two programs: install one version on all, then "
            "cancel what waits for another and submit it again"
        )
        return Finding(what="programs", state="stops", detail=detail)
    return Finding(what="programs", state="ready", detail=f"qualgate {own} alone")


def _folders(url: str, gate: GateFile | None) -> Iterator[tuple[str, Path]]:
    if (path := file_of(url)) is not None:
        yield "store's disk", path.parent
    elif gate is not None:
        yield "answers' disk", artifacts_folder(url, gate.path.parent)
    yield "node's disk", submissions_folder()


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
