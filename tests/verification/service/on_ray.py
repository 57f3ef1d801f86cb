"""R13: nodes of a Ray cluster and engines on them that die in the middle of runs, over a head without cores and two
nodes of one core each. What comes of it is held against the run of the local pool that nothing disturbs."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from qualgate.workers.ray_reach import RAY_HERE
from tests.verification.service.disturbed import ENDS, GATE_FILE, ROOT, Ground

SMALL = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
LOCAL, SECONDS = "{backend: local, count: 2}", "0.5"  # of a job: engines start for longer than a run would take


def lose_nodes(ground: Ground, rng: random.Random, nodes: int, engines: int) -> int:
    """At random intervals, in random order; for each node another comes. The run is started again where it gave up."""
    fates = ["node"] * nodes + ["engine"] * engines
    rng.shuffle(fates)
    with _cluster(ground) as cluster:
        (ground.folder / "gate.yaml").unlink()
        ray = f"{{backend: ray, address: '{cluster.address}', count: 2}}"
        (ground.folder / "gate.yaml").write_text(GATE_FILE.replace(LOCAL, ray))
        process, killed = ground.run(), 0
        while killed < len(fates) and process.poll() not in ENDS:
            if process.poll() is not None:
                process = ground.run()
            time.sleep(rng.uniform(0.0, 2.0))
            if not (there := _engines(ground)):
                continue
            if fates[killed] == "node":
                cluster.remove_node(rng.choice(sorted(cluster.worker_nodes, key=str)), allow_graceful=False)
                cluster.add_node(num_cpus=1, **SMALL)
            else:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(there), signal.SIGKILL)
            killed += 1
        ground.to_the_end(process)
    return killed


@contextmanager
def _cluster(ground: Ground) -> Iterator[Any]:
    """Whose engines answer by script, in the ground's folder."""
    said = {"SCRIPTED_FOLDER": str(ground.folder), "SCRIPTED_SECONDS": SECONDS, **RAY_HERE}
    before = dict(os.environ)
    os.environ |= said | {"PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, sys.path)))}
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **SMALL)
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def _engines(ground: Ground) -> list[int]:
    """Processes of engines on the ground's nodes."""
    found = list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"spawn_main" not in (folder / "cmdline").read_bytes():
                continue
            there = (folder / "environ").read_bytes()
            if b"RAY_RAYLET_PID=" in there and f"SCRIPTED_FOLDER={ground.folder}\0".encode() in there:
                found.append(int(folder.name))
    return sorted(found)
