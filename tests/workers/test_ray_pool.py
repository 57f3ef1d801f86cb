"""One run on a cluster of the machine's own; and what a cluster refuses, or is refused for."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from qualgate.errors import UsageError
from qualgate.records.identity import own_version
from qualgate.workers import ray_pool
from qualgate.workers.pool import run_jobs
from qualgate.workers.ray_node import Seen, look
from qualgate.workers.ray_pool import OnRay
from tests.workers import fake_worker
from tests.workers.test_pool import every_unit, jobs, told, units

GIB = 2**30


def on(folder, address: str = "") -> OnRay:
    return OnRay(address=address, nbytes=GIB, reads=(str(folder),), shared=str(folder))


def test_jobs_on_a_cluster_are_answered_once_though_an_engine_dies(tmp_path, monkeypatch):
    """The other promises of the pool are held on a larger cluster, as proofs."""
    pytest.importorskip("ray", reason="no Ray: install the extra ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    settings = told(tmp_path, place=replace(on(tmp_path), nbytes=2**28))
    outcomes = list(run_jobs(jobs(tmp_path), settings, 1, body=fake_worker.dying_once))
    assert (tmp_path / "died").exists()
    assert units(outcomes) == every_unit(tmp_path)


def node(name: str = "a", **resources: float) -> dict:
    return {"NodeManagerHostname": name, "NodeManagerAddress": "10.0.0.1", "Resources": resources}


def test_a_node_that_lacks_a_folder_is_named_with_it(tmp_path):
    (tmp_path / "token").write_text("token")
    seen = look([str(tmp_path), str(tmp_path / "model")], str(tmp_path), "token")
    assert seen == Seen(missing=(str(tmp_path / "model"),), unshared="", version=own_version())
    with pytest.raises(UsageError, match=f"node a .* has no {tmp_path / 'model'}"):
        ray_pool._check("node a (10.0.0.1)", seen, on(tmp_path))


def test_a_node_that_does_not_share_the_artifacts_is_named_with_their_folder(tmp_path):
    elsewhere = tmp_path / "artifacts"
    for there in (False, True):  # the folder lacks; one of the same name stands there
        if there:
            elsewhere.mkdir()
        seen = look([], str(elsewhere), "token")
        with pytest.raises(UsageError, match=rf"node a does not share {elsewhere} .*no such file"):
            ray_pool._check("node a", seen, on(elsewhere))


def test_a_node_with_another_qualgate_is_refused(tmp_path):
    with pytest.raises(UsageError, match=f"node a has qualgate 0.0.1, but this machine has {own_version()}"):
        ray_pool._check("node a", Seen(missing=(), unshared="", version="0.0.1"), on(tmp_path))


@pytest.mark.parametrize(
    ("has", "room"),
    [
        ({"CPU": 8.0, "memory": 10.0 * GIB}, 4),  # by its cores
        ({"CPU": 8.0, "memory": 3.5 * GIB}, 3),  # by its memory
        ({"CPU": 1.0, "memory": 10.0 * GIB}, 0),
        ({"CPU": 8.0}, 0),
    ],
)
def test_a_node_has_room_for_what_its_scarcest_resource_serves(has, room):
    assert ray_pool._room(node(**has), {"CPU": 2, "memory": GIB}) == room
    assert ray_pool._room(node(**has, GPU=1.0), {"CPU": 2, "memory": GIB, "GPU": 1}) == min(room, 1)


def test_a_node_that_is_lost_while_it_is_looked_at_is_left_out(monkeypatch):
    ray = pytest.importorskip("ray", reason="no Ray: install the extra ray")

    def lost(reference):
        raise ray.exceptions.TaskUnschedulableError("the node does not exist any more")

    monkeypatch.setattr(ray, "get", lost)
    assert ray_pool._seen(None, "node n1") is None


def test_engines_that_fit_nowhere_are_told_with_what_each_node_offers():
    said = ray_pool._no_room([node("a", CPU=8.0, memory=2.0 * GIB), node("b", CPU=4.0)], {"CPU": 2, "memory": 3 * GIB})
    assert "needs 2 cores, 3.00 GiB" in said
    assert "node a (10.0.0.1): 8 cores, 2.00 GiB; node b (10.0.0.1): 4 cores, 0.00 MiB" in said
