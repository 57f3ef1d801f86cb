"""How engines are hired on a cluster that gives places late, or not at all; the cluster is a stand-in, with a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from typing import Any

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import JobResult
from qualgate.workers import pool, ray_pool
from qualgate.workers.ray_pool import Engines, OnRay
from qualgate.workers.unit import READY, WorkerSettings
from tests.workers.fake_worker import result_of
from tests.workers.test_copies import variants
from tests.workers.test_pool import told

ray = pytest.importorskip("ray", reason="no Ray: install the extra ray")
NO_SPACE = (
    "The actor died because of an error raised in its creation task, \x1b[36mray::Engine.__init__()\x1b[39m (pid=7, "
    'ip=10.0.0.2, actor_id=fa10, repr=<Engine>)\n  File "ray_node.py", line 52, in __init__\nOSError: [Errno 28] No '
    "space left on device"
)
KILLED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Engine\n\tpid: 7\n\tip: 10.0.0.2\nThe "
    "actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the OOM killer"
)


class Cluster:
    """Ray's calls as far as hiring makes them; its actors are their own references. It has `cores`, one an engine."""

    def __init__(self, cores: int) -> None:
        self.now, self.cores, self.asked, self.killed = 0.0, cores, list[Cluster.Actor](), list[Cluster.Actor]()
        self.when: Callable[[int], float] = lambda number: 0.0  # s, when the place of so many-th engine is there
        self.dies: Callable[[int], str] = lambda number: ""

    class Actor:
        def __init__(self, cluster: Cluster) -> None:
            self.cluster, self.number, self.since = cluster, len(cluster.asked), cluster.now
            self.here, self._then = self, b""
            cluster.asked.append(self)

        def remote(self) -> Cluster.Actor:
            return self

    class Seat:
        """At work, an engine answers the moment it is asked."""

        def __init__(self, actor: Cluster.Actor) -> None:
            self.actor, self.exitcode = actor, None
            self._ours, self._theirs = Pipe()
            if said := actor.cluster.dies(actor.number):
                self.exitcode = ray_pool._lost(Exception(said))
                self._theirs.close()
            else:
                self._theirs.send(READY)

        def send(self, jobs: tuple) -> None:
            for job in jobs if not self._theirs.closed else ():
                self._theirs.send(result_of(job))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ours, name)

        def kill(self) -> None: ...

        def join(self) -> None: ...

    def nodes(self, on: OnRay) -> list[dict]:
        where = {"NodeManagerHostname": "a", "NodeManagerAddress": "10.0.0.1"}
        return [{**where, "Resources": {"CPU": float(self.cores), "memory": 2.0**40}}]

    def monotonic(self) -> float:
        return self.now

    def remote(self, of: type) -> Any:
        cluster = self

        class Asked:
            def options(self, **wanted: Any) -> Asked:
                return self

            def remote(self, body: Any, settings: WorkerSettings) -> Cluster.Actor:
                return Cluster.Actor(cluster)

        return Asked()

    def wait(self, actors: list[Actor], *, num_returns: int, timeout: float) -> tuple[list, list]:
        assert timeout == 0, "it holds nobody up"
        ready = [one for one in actors if self.dies(one.number) or self.when(one.number) <= self.now]
        return ready, [one for one in actors if one not in ready]

    def get(self, actor: Actor) -> None:
        if said := self.dies(actor.number):
            raise ray.exceptions.RayError(said)

    def crew(self, folder: Any, count: int) -> Engines:
        settings = told(folder)
        on = OnRay(address="", nbytes=1, reads=(), shared=str(folder))
        engines = Engines(lambda pipe, settings: None, settings, on, count)
        engines._needs = {"CPU": 1, "memory": 1}
        return engines


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    cluster = Cluster(cores=4)
    monkeypatch.setattr(ray_pool, "time", cluster)
    monkeypatch.setattr(ray_pool, "connect", lambda address: None)
    monkeypatch.setattr(ray_pool, "_nodes", cluster.nodes)
    monkeypatch.setattr(ray_pool, "_look_around", lambda nodes, on: None)
    monkeypatch.setattr(ray_pool, "Seat", Cluster.Seat)
    for name in ("remote", "wait", "get"):
        monkeypatch.setattr(ray, name, getattr(cluster, name))
    monkeypatch.setattr(ray, "kill", cluster.killed.append)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    return cluster


def hired(crew: Engines, count: int) -> list[Any]:
    return [seat for seat, _ in crew.hire(count)]


def test_an_engine_without_a_place_yet_holds_nobody_up_and_is_hired_once_it_has_one(cluster, tmp_path):
    cluster.when = lambda number: 0.0 if number == 0 else 50.0
    crew = cluster.crew(tmp_path, 3)
    assert len(hired(crew, 3)) == 1
    cluster.now = 49.0
    assert hired(crew, 2) == []
    cluster.now = 50.0
    assert len(hired(crew, 2)) == 2
    assert len(cluster.asked) == 3, "nobody was asked for twice"


def test_who_has_waited_for_a_place_for_too_long_is_withdrawn_and_asked_for_anew_while_others_work(cluster, tmp_path):
    cluster.when = lambda number: 0.0 if number == 0 else 1e9
    crew = cluster.crew(tmp_path, 2)
    assert len(hired(crew, 2)) == 1
    for cluster.now in (20.0, 40.0, 61.0, 62.0, 92.0):
        assert hired(crew, 1) == []
    assert [one.number for one in cluster.killed] == [1]
    assert [(one.number, one.since) for one in cluster.asked[1:]] == [(1, 0.0), (2, 92.0)]
    crew.close()
    assert [one.number for one in cluster.killed] == [1, 2], "who waits still is called off at the end"


def test_an_engine_that_is_lost_is_replaced_at_once_and_a_node_that_comes_back_is_found_later(cluster, tmp_path):
    crew = cluster.crew(tmp_path, 4)
    seats = hired(crew, 4)
    seats[0].close()
    assert len(hired(crew, 1)) == 1
    seats[1].close()
    cluster.cores = 3  # of a lost node's
    assert hired(crew, 1) == []
    cluster.cores = 4
    assert hired(crew, 1) == [], "the cluster is not asked at every answer"
    cluster.now = 31.0
    assert len(hired(crew, 1)) == 1


def test_a_cluster_that_gives_no_place_for_a_minute_is_told_with_what_was_wanted(cluster, tmp_path):
    cluster.when = lambda number: 1e9
    crew = cluster.crew(tmp_path, 2)
    assert hired(crew, 2) == []
    cluster.now = 61.0
    with pytest.raises(InfrastructureError, match=r"is busy: within 60 s it had no room for 1 core.*ray status"):
        hired(crew, 2)
    assert len(cluster.killed) == 2


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NO_SPACE, r"node 10\.0\.0\.2: it could not begin: OSError: \[Errno 28\] No space left on device"),
        (KILLED, r"node 10\.0\.0\.2: its process or node was lost: Worker unexpectedly exits .* End of file\.\)"),
    ],
)
def test_actors_that_die_before_they_begin_end_the_run_with_what_they_died_of(cluster, tmp_path, said, told):
    cluster.dies = lambda number: said
    with pytest.raises(InfrastructureError, match=rf"3 in a row .*{told}"):
        run(cluster, tmp_path, workers=1)
    assert len(cluster.asked) == 3


def test_an_actor_that_dies_before_it_begins_is_named_while_the_others_work(cluster, tmp_path, caplog):
    cluster.dies = lambda number: NO_SPACE if number != 1 else ""
    outcomes = run(cluster, tmp_path, workers=4)
    assert [type(outcome) for outcome in outcomes] == [JobResult] * 5
    assert "No space left on device" in caplog.text
    assert len(cluster.asked) == 4, "not again before the next look"


def test_a_run_that_waits_for_its_first_place_hears_a_stop_request(cluster, tmp_path):
    cluster.when = lambda number: 1e9
    heard = iter((False, False, True))
    assert run(cluster, tmp_path, workers=2, stop=lambda: next(heard)) == []
    assert len(cluster.killed) == 2


def run(cluster: Cluster, folder: Any, workers: int, **options: Any) -> list[Any]:
    crew = cluster.crew(folder, workers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_crew", lambda *of: (crew, workers))
        patch.setattr(pool, "POLL_SECONDS", 0.0)
        return list(pool.run_jobs(variants(folder), crew._settings, workers, **options))


@pytest.mark.parametrize(
    ("nodes", "options", "count", "cores"),
    [
        ([{"CPU": 64, "GPU": 8}, {"CPU": 8, "GPU": 1}], {"gpus": True, "each": True}, 1_024, 8),
        ([{"CPU": 64, "GPU": 8}, {"CPU": 8, "GPU": 1}], {"each": True}, 1_024, 8),
        ([{"CPU": 16}, {"CPU": 4}], {"each": True}, 1_024, 4),
        ([{"CPU": 16}, {"CPU": 16}], {}, 8, 4),
    ],
)
def test_an_engine_has_its_share_of_a_nodes_cores(cluster, monkeypatch, tmp_path, nodes, options, count, cores):
    monkeypatch.setattr(ray_pool, "_nodes", lambda on: [{"Resources": one} for one in nodes])
    settings = told(tmp_path)
    on = OnRay(address="", nbytes=1, reads=(), shared=str(tmp_path), **options)
    assert Engines(lambda pipe, settings: None, settings, on, count)._needs["CPU"] == cores


def test_where_there_is_to_be_one_for_each_device_the_pools_count_is_not_asked(cluster, tmp_path):
    asked = list[int]()

    class Place(OnRay):
        def crew(self, body, settings, count):
            asked.append(count)
            return cluster

    settings = told(tmp_path)
    every = variants(tmp_path, 7)
    for each, most in ((True, 7), (False, 2)):
        place = Place(address="", nbytes=1, reads=(), shared="", each=each)
        assert pool._crew(every, lambda pipe, settings: None, replace(settings, place=place), 2) == (cluster, most)
    assert asked == [7, 2]
