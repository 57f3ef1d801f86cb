"""The pool's workers on the nodes of a Ray cluster; who hands jobs out, and all that is promised of it, is `pool`.

An engine takes a GPU, or its share of a node's cores, and the memory that `plan` counts; Ray finds the places and
spreads them. What the baseline leaves for its variants is a file, so every node shares the artifacts' folder: that and
what engines read are looked for on each node before anything is generated. Ray's calls give an answer, or say that its
process or node is gone: to the pool that is a pipe, and a process that died.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from qualgate.errors import InfrastructureError, UsageError, one_line
from qualgate.records import Job
from qualgate.records.identity import own_version
from qualgate.text.numbers import counted, size_text
from qualgate.workers.pool import Body
from qualgate.workers.ray_node import Engine, Seen, look
from qualgate.workers.ray_reach import connect
from qualgate.workers.unit import WorkerSettings

log = logging.getLogger(__name__)

LOOK_SECONDS = 120  # in which every node is to have looked for its folders: its first Python starts
PLACE_SECONDS = 60  # in which Ray is to find a place for an engine that the cluster has room for
HIRE_SECONDS = 30.0  # between two looks for room, where there are fewer engines than there were to be
MOST_ENGINES = 1_024
LEAVE_SECONDS = 10  # in which an actor that was ended is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRay:
    """The nodes of a cluster as a place for workers."""

    address: str  # HOST:PORT, `auto`, or "" to start one on this machine
    nbytes: int  # of memory that an engine needs at least
    reads: tuple[str, ...]  # paths of models, adapters, …, by which every node reads them
    shared: str  # that every node writes to: artifacts, packed checkpoints
    gpus: bool = False  # an engine takes one
    each: bool = False  # an engine for every GPU, or without them for every node, whatever the pool's count

    @property
    def most(self) -> int:
        """See `Place`."""
        return MOST_ENGINES if self.each else 0

    def crew(self, body: Body, settings: WorkerSettings, count: int) -> Engines:
        """Return the crew for a pool of `count`. Raises as `Engines` does."""
        return Engines(body, settings, self, count)


class Seat:
    """An engine in the cluster with the interface of a worker: its process and its pipe in one."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._ours, sending_end = Pipe(duplex=False)
        self.exitcode: int | str | None = None
        self._listener = threading.Thread(target=self._listen, args=(sending_end,), daemon=True)
        self._listener.start()

    def _listen(self, sending_end: Any) -> None:
        """Pass the actor's messages on until it ends, and note why in `exitcode`."""
        import ray
        from ray.exceptions import RayError

        try:
            for reference in self._actor.messages.remote():
                message = ray.get(reference)
                if isinstance(message, str):
                    self.exitcode = message
                    break
                sending_end.send_bytes(message)
        except (RayError, OSError) as error:  # OSError: the pool has closed its end
            self.exitcode = _lost(error)
        finally:
            sending_end.close()

    def send(self, jobs: tuple[Job, ...]) -> None:
        """Send jobs to the engine; if it is gone, `recv` reports it."""
        self._actor.take.remote(jobs)

    def recv(self) -> Any:
        """Return its next message. EOFError once it has ended."""
        return self._ours.recv()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._ours.fileno()

    @property
    def closed(self) -> bool:
        """Whether the pool has closed it."""
        return self._ours.closed

    def close(self) -> None:
        """Stop sending to it and listening to it."""
        self.kill()
        self._ours.close()

    def kill(self) -> None:
        """Kill the actor, with its process."""
        import ray

        ray.kill(self._actor)

    def join(self) -> None:
        """Wait until it has ended."""
        self._listener.join(LEAVE_SECONDS)


class Engines:
    """Workers on a cluster, hired and let go. The cluster that is started here, for there is no address, ends with it.

    UsageError for what the user can mend: no Ray, another Ray or Python or qualgate in the cluster, a node without a
    folder, engines that fit nowhere. InfrastructureError for a cluster that is not reached, and for one with no place.
    """

    def __init__(self, body: Body, settings: WorkerSettings, cluster: OnRay, count: int) -> None:
        """Join the cluster, check its nodes, and compute what each engine needs. on: the settings of `workers`."""
        self._body, self._on, self._seats, self._began = body, cluster, list[Seat](), False
        self._asked: dict[Any, tuple[Any, float]] = {}  # by what says that it has its place: an actor, and since when
        self._dead: dict[Any, Exception] = {}  # actors that ended on their way to one, and of what
        self._looked = 0.0  # s, monotonic: when there was a look for room
        try:
            connect(cluster.address)
            nodes = _nodes(cluster)
            _look_around(nodes, cluster)
            spread = -(-count // len(nodes))  # engines on a node, were they spread evenly
            shares = [_devices(node, cluster) if cluster.each else spread for node in nodes]
            cores = max(1, min(int(node["Resources"]["CPU"]) // n for node, n in zip(nodes, shares, strict=True)))
            self._settings = replace(settings, threads=cores, place=None)
            self._needs = {"CPU": cores, "memory": cluster.nbytes} | ({"GPU": 1} if cluster.gpus else {})
        except BaseException:
            self.close()
            raise

    def hire(self, count: int) -> Iterator[tuple[Seat, Seat]]:
        """Return up to `count` engines that have their places by now. The others stay requested, and the pool asks
        again. If nobody is at work, engines that died on their way are returned too, so that their reason is known."""
        working = [seat for seat in self._seats if not seat.closed]
        lost, self._seats = len(working) < len(self._seats), working
        look_again = time.monotonic() - self._looked > HIRE_SECONDS if working else not self._asked
        if lost or look_again:
            self._ask(count - len(self._asked))
        hired = self._arrived()
        if hired or working:
            for error in self._dead.values():
                log.warning("an engine of the Ray cluster did not start; others go on. %s", _lost(error))
            self._dead.clear()
        elif self._asked:
            return
        elif self._dead:
            hired, self._dead = list(self._dead), {}
        else:
            self._room()  # none at all: that is another error
            raise InfrastructureError(
                f"the Ray cluster is busy: within {PLACE_SECONDS} s it had no room for {_as_text(self._needs)}. `ray "
                "status` shows what uses it; run again when that has ended: it resumes."
            )
        self._began = True
        for actor in hired:
            self._seats.append(seat := Seat(actor))
            yield seat, seat

    def _ask(self, count: int) -> None:
        """Request so many more engines, or as many as the cluster can hold."""
        import ray

        self._looked = time.monotonic()
        engine: Any = ray.remote(Engine).options(
            num_cpus=self._needs["CPU"],
            num_gpus=self._needs.get("GPU", 0),
            memory=self._needs["memory"],
            scheduling_strategy="SPREAD",
            max_concurrency=2,
        )
        for _ in range(min(count, self._room())):
            actor = engine.remote(self._body, self._settings)
            self._asked[actor.here.remote()] = actor, self._looked

    def _arrived(self) -> list[Any]:
        """Return the requested engines that have a place now; note those that ended on the way, and withdraw those that
        wait too long."""
        import ray
        from ray.exceptions import RayError

        placed = []
        ready, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0) if self._asked else ([], [])
        for reference in ready:
            actor, _ = self._asked.pop(reference)
            try:
                ray.get(reference)
                placed.append(actor)
            except RayError as error:
                self._dead[actor] = error
        for reference, (actor, since) in list(self._asked.items()):
            if time.monotonic() - since > PLACE_SECONDS:
                del self._asked[reference]
                ray.kill(actor)
        return placed

    def _room(self) -> int:
        """Return how many more engines the cluster can hold. If nobody is at work and it can hold none, raise with the
        reason."""
        try:
            nodes = _nodes(self._on)
            room = sum(_room(node, self._needs) for node in nodes)
            if not room:
                raise UsageError(_no_room(nodes, self._needs))
        except UsageError as error:
            if self._seats:
                return 0
            if self._began:
                raise InfrastructureError(
                    f"the Ray cluster has lost its nodes: {error} Run again: it resumes."
                ) from None
            raise
        return room - len(self._seats) - len(self._asked)

    def close(self) -> None:
        """Withdraw requests and leave the cluster; one that was started here stops."""
        if (ray := sys.modules.get("ray")) is not None:
            for actor, _ in self._asked.values():
                ray.kill(actor)
            ray.shutdown()


def nodes_of(cluster: OnRay) -> tuple[str, ...]:
    """Return each node that engines may use, with its resources, after checking all of them. Raises as `Engines`
    does."""
    try:
        connect(cluster.address)
        nodes = _nodes(cluster)
        _look_around(nodes, cluster)
        offered = ("CPU", "GPU", "memory")
        return tuple(
            f"{_name(node)}: {_as_text({kind: node['Resources'].get(kind, 0) for kind in offered})}" for node in nodes
        )
    finally:
        if (ray := sys.modules.get("ray")) is not None:
            ray.shutdown()


def _nodes(cluster: OnRay) -> list[Mapping[str, Any]]:
    """Return the nodes that engines may use."""
    import ray

    kind = "GPU" if cluster.gpus else "CPU"
    nodes = [
        node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU") and node["Resources"].get(kind)
    ]
    if not nodes:
        raise UsageError(f"no node of the Ray cluster offers a {kind}. Start one that does: `ray start --address=…`.")
    return nodes


def _look_around(nodes: Sequence[Mapping[str, Any]], cluster: OnRay) -> None:
    """Check that every node has the folders to read, and shares the folder to write."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At

    token = secrets.token_hex(16)
    Path(cluster.shared).mkdir(parents=True, exist_ok=True)
    (Path(cluster.shared) / token).write_text(token)
    try:
        checks = {
            ray.remote(look)
            .options(num_cpus=0, scheduling_strategy=At(node["NodeID"], soft=False))
            .remote(cluster.reads, cluster.shared, token): _name(node)
            for node in nodes
        }
        ready, late = ray.wait(list(checks), num_returns=len(checks), timeout=LOOK_SECONDS)
        if late:
            raise InfrastructureError(f"{checks[late[0]]} has not answered within {LOOK_SECONDS} s; see `ray status`.")
        seen_by_node = {checks[check]: report for check in ready if (report := _seen(check, checks[check])) is not None}
        if not seen_by_node:
            raise InfrastructureError("every node of the Ray cluster was lost while it was checked; see `ray status`.")
        for node, report in seen_by_node.items():
            _check(node, report, cluster)
        written = len(list(Path(cluster.shared).glob(f"{token}.*")))
        if written < len(seen_by_node):
            raise UsageError(
                _unshared(
                    f"{len(seen_by_node) - written} of {counted(len(seen_by_node), 'node')}",
                    cluster,
                    "written elsewhere",
                )
            )
    finally:
        for file in Path(cluster.shared).glob(f"{token}*"):
            file.unlink(missing_ok=True)


def _seen(reference: Any, node: str) -> Seen | None:
    """Return the check of a node, None if the node is lost: a run continues without it."""
    import ray
    from ray.exceptions import NodeDiedError, TaskUnschedulableError

    try:
        return ray.get(reference)
    except (TaskUnschedulableError, NodeDiedError):
        return None
    except Exception as error:  # ModuleNotFoundError, in one of Ray's wrappers
        raise UsageError(
            f"{node} cannot run qualgate: {one_line(error)}. Every node needs the Python environment of this machine, "
            f"with qualgate {own_version()}."
        ) from None


def _check(node: str, report: Seen, cluster: OnRay) -> None:
    """Raise UsageError for a node without the models or the shared folder, or with another version of qualgate."""
    if report.missing:
        raise UsageError(
            f"{node} has no {report.missing[0]}. Every node reads models by the same path: mount or copy it there."
        )
    if report.version != own_version():
        raise UsageError(
            f"{node} has qualgate {report.version}, but this machine has {own_version()}: install the same on both."
        )
    if report.unshared:
        raise UsageError(_unshared(node, cluster, report.unshared))


def _unshared(node: str, cluster: OnRay, why: str) -> str:
    """Return the message for a node that does not share the folder."""
    return (
        f"{node} does not share {cluster.shared} with this machine ({why}). The baseline's answers go to its variants "
        "through it: every node is to mount it by the same path. Where the store is a database it is beside the gate "
        "file, of a job below `qualgate submit --folder`; beside a store's file it is this machine's alone."
    )


def _devices(node: Mapping[str, Any], cluster: OnRay) -> int:
    """Return how many engines of one device a node is to run: one per GPU, or one per node without GPUs."""
    return max(1, int(node["Resources"].get("GPU", 0))) if cluster.gpus else 1


def _room(node: Mapping[str, Any], needs: Mapping[str, int]) -> int:
    """Return how many engines an empty node could hold."""
    return min(int(node["Resources"].get(kind, 0) // amount) for kind, amount in needs.items() if amount)


def _no_room(nodes: Sequence[Mapping[str, Any]], needs: Mapping[str, int]) -> str:
    """Return the message for a cluster whose nodes are all too small for one engine."""
    has = "; ".join(
        f"{_name(node)}: {_as_text({kind: node['Resources'].get(kind, 0) for kind in needs})}" for node in nodes
    )
    return (
        f"an engine of this run needs {_as_text(needs)}, and no node of the Ray cluster offers that ({has}). What "
        "would help: a node with more, or a variant whose server is started by `serve:` and takes several devices."
    )


def _as_text(amounts: Mapping[str, float]) -> str:
    named = {"CPU": lambda n: counted(int(n), "core"), "GPU": lambda n: counted(int(n), "GPU"), "memory": size_text}
    return ", ".join(named[kind](int(amount)) for kind, amount in amounts.items())


def _name(node: Mapping[str, Any]) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _lost(error: Exception) -> str:
    """Return where and why an engine ended, in one line, without Ray's advice."""
    text = str(error)
    if "creation task" in text:  # an error of the actor's own, which is the last line
        text = f"it could not begin: {text.splitlines()[-1]}. Ray's logs there tell more"
    else:
        detail = text.split("Worker exit detail:")[-1] if "Worker exit detail:" in text else one_line(error)
        text = f"its process or node was lost: {detail.partition(' Some common causes')[0]}"
    address = re.search(r"\bip[=:] ?([^\s,)]+)", str(error))
    return f"{f'node {address[1]}: ' if address else ''}{' '.join(text.split())[:300]}"
