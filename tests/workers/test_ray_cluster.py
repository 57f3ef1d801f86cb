"""The pool's promises on a cluster of a head and two nodes on this machine: the local pool's own tests, and the loss of
a node."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.workers import pool
from qualgate.workers.ray_pool import OnRay, nodes_of
from tests.workers import fake_worker
from tests.workers.test_pool import (  # noqa: F401  # the promises, kept by whoever is hired
    ended,
    every_unit,
    run,
    test_a_job_on_which_every_worker_hangs_becomes_a_failure_that_names_the_timeout,
    test_a_mistake_of_the_user_found_by_a_worker_stops_the_run_with_its_message,
    test_a_pool_whose_workers_all_die_at_start_ends_at_once_with_the_reason,
    test_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing,
    test_every_job_is_answered_once_and_variants_wait_for_their_baseline,
    told,
    units,
    until,
)

pytestmark = pytest.mark.proof
THERE = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
SMALL = {"include_dashboard": False, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """A head that has no core for engines, and two nodes with one each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        for _ in range(2):
            cluster.add_node(num_cpus=1, **SMALL)
        yield cluster
        cluster.shutdown()


def on(address: str, folder: Path, nbytes: int = 2**28) -> OnRay:
    return OnRay(address=address, nbytes=nbytes, reads=(str(folder),), shared=str(folder))


@pytest.fixture(autouse=True)
def on_the_cluster(cluster, monkeypatch):
    def crew(jobs, body, settings, count):
        where = settings.place or on(cluster.address, Path(settings.cache_dir))
        return pooled(jobs, body, replace(settings, place=where), count)

    pooled = pool._crew

    monkeypatch.setattr(pool, "_crew", crew)


def test_a_node_that_is_lost_in_the_middle_of_a_job_loses_and_doubles_nothing(cluster, tmp_path):
    """Its raylet is killed while an engine hangs on it; the job goes to the node that is left."""
    node = cluster.add_node(num_cpus=1, **SMALL)

    def stop() -> bool:
        hung = tmp_path / "hung"
        if hung.exists() and (pid := hung.read_text()) and not (tmp_path / "lost").exists():
            with suppress(OSError):
                place = Path(f"/proc/{pid}/environ").read_text()
                os.kill(int(re.findall(r"RAY_RAYLET_PID=(\d+)", place)[0]), signal.SIGKILL)
                (tmp_path / "lost").touch()
        return False

    outcomes = run(tmp_path, fake_worker.hanging_once, stop=stop)
    assert (tmp_path / "lost").exists()
    assert units(outcomes) == every_unit(tmp_path)
    with suppress(Exception):
        cluster.remove_node(node)


def test_nodes_are_told_with_what_they_offer_once_they_were_looked_at_as_before_a_run(cluster, tmp_path):
    offers = nodes_of(on(cluster.address, tmp_path))  # how many is open: a test before may have lost one
    assert {re.sub(r"^node .* \(.*\): |, [^,]*$", "", one) for one in offers} == {"1 core, 0 GPUs"}
    with pytest.raises(UsageError, match=r"node .* has no .*/none"):
        nodes_of(replace(on(cluster.address, tmp_path), reads=(str(tmp_path / "none"),)))


COORDINATOR = """
import sys
from pathlib import Path
from qualgate.workers.pool import run_jobs
from qualgate.workers.ray_node import Engine
from qualgate.workers.ray_pool import OnRay, nodes_of
from qualgate.workers.unit import WorkerSettings
from tests.workers import fake_worker
from tests.workers.test_pool import jobs

folder = Path(sys.argv[1])
on = OnRay(address="", nbytes=2**28, reads=(), shared=str(folder))
settings = WorkerSettings(cache_dir=str(folder), sampling={}, threads=1, device="cpu", place=on)
list(run_jobs(jobs(folder), settings, 1, body=fake_worker.hanging_once))
"""


def test_engines_and_the_cluster_of_its_own_end_with_a_coordinator_that_is_killed(tmp_path):
    (tmp_path / "coordinator.py").write_text(COORDINATOR)
    with subprocess.Popen([sys.executable, tmp_path / "coordinator.py", tmp_path], env=THERE) as coordinator:
        engine = until(lambda: (tmp_path / "hung").exists() and (tmp_path / "hung").read_text())
        place = Path(f"/proc/{engine}/environ").read_text()
        coordinator.kill()
    for pid in (engine, re.findall(r"RAY_RAYLET_PID=(\d+)", place)[0]):
        until(lambda pid=pid: ended(pid))
