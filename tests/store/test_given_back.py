"""Nodes that cannot do what they took: others are asked, and nothing is set apart that one of them may do."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from qualgate.errors import NotHere, UsageError
from qualgate.errors.extras import install_command
from qualgate.pipeline.under_lease import giving_way
from qualgate.store import leases, submissions
from qualgate.workers import ray_reach
from tests.store.test_leases import SECONDS, handed


def test_a_node_where_everything_dies_sets_nothing_apart_that_another_may_take(store, clock):
    name = submissions.submit(store, handed())
    for node in ("sick", "busy"):
        leases.enter(store, node, "1", 1e6, clock.now)
    for _ in range(4):
        leases.died(store, leases.claim(store, "sick", "1", SECONDS).lease, "node sick: exit code 13")
        clock.now += SECONDS
        assert leases.claim(store, "sick", "1", SECONDS) is None, "it is left to the other for a while"
        clock.now += leases.REFUSED_SECONDS
    found = submissions.state(store, name)
    assert (found.status, found.deaths) == ("queued", 1)
    assert found.refused == {"sick": "node sick: exit code 13"}
    assert leases.claim(store, "busy", "1", SECONDS).lease.submission == name


@pytest.mark.parametrize(
    ("at_work", "died_at"), [("abcd", "abc"), ("ab", "aba"), ("ab", "aaba"), ("a", "aaa"), ("ab", "aaaabb")]
)
def test_what_kills_its_worker_wherever_it_runs_is_set_apart_after_three_deaths(store, clock, at_work, died_at):
    name = submissions.submit(store, handed())
    for node in at_work:
        leases.enter(store, node, "1", 1e6, clock.now)
    for node in died_at:
        assert submissions.state(store, name).status == "queued"
        leases.died(store, leases.claim(store, node, "1", SECONDS).lease, "signal 9")
        clock.now += leases.REFUSED_SECONDS + 1
    assert submissions.state(store, name).status == "apart"


def test_a_node_of_another_version_can_take_nothing_and_is_waited_for_by_none(store, clock):
    name = submissions.submit(store, handed())
    leases.enter(store, "old", "1", 1e6, clock.now)
    with store.write() as connection:
        leases._enter(connection, "new", "2", 1e6, 0.0)
    for _ in range(3):
        leases.died(store, leases.claim(store, "old", "1", SECONDS).lease, "signal 9")
        clock.now += SECONDS
    assert submissions.state(store, name).status == "apart"


def test_a_node_that_lacks_something_gives_it_to_others_and_the_last_sets_it_apart(store, clock):
    name = submissions.submit(store, handed())
    for node in ("n1", "n2"):
        leases.enter(store, node, "1", 1e6, clock.now)
    assert leases.refuse(store, leases.claim(store, "n1", "1", SECONDS).lease, "/m is not there")
    assert leases.claim(store, "n1", "1", SECONDS) is None, "it would lack it still"
    assert leases.refuse(store, leases.claim(store, "n2", "1", SECONDS).lease, "/m is not there")
    for _ in range(2):
        clock.now += leases.REFUSED_SECONDS + 1
        for node in ("n1", "n2"):
            assert submissions.state(store, name).status == "queued"
            leases.refuse(store, leases.claim(store, node, "1", SECONDS).lease, "/m is not there")
    found = submissions.state(store, name)
    assert (found.status, found.reason) == ("apart", "no node has what it needs; node n2: /m is not there")
    assert found.refused == {"n1": "node n1: /m is not there", "n2": "node n2: /m is not there"}


def test_what_a_node_may_not_take_now_is_no_work_for_it(store, clock):
    refused = submissions.submit(store, handed(name="refused"))
    leases.refuse(store, leases.claim(store, "n1", "1", SECONDS).lease, "/m is not there")
    for name, owner, priority in (("held", "bo", 1), ("held", "cy", 0), ("of a full owner", "bo", 0)):
        submissions.submit(store, handed(name=name, owner=owner, priority=priority))
    held = leases.claim(store, "n2", "1", SECONDS, 1)
    assert held.submission.name == "held"
    assert not leases.is_work(store, "n1", "1", 1)
    assert not leases.is_work(store, "n3", "2"), "they were handed over by another version"
    assert leases.is_work(store, "n1", "1"), "nobody says how many an owner may have"
    assert leases.is_work(store, "n3", "1", 1), "it refused nothing"
    clock.now += leases.REFUSED_SECONDS + 1
    assert leases.renew(store, held.lease, "n2", SECONDS, clock.now) is not None
    assert leases.is_work(store, "n1", "1", 1)
    assert leases.claim(store, "n1", "1", SECONDS, 1).lease.submission == refused


def without_ray() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        ray_reach.connect("")


def without_gpus() -> None:
    raise NotHere("none can be used here")


def mistaken() -> None:
    raise UsageError("gate.yaml: what is wrong")


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (without_ray, f"node n1: `workers: {{backend: ray}}` needs ray. Install it: {install_command('ray')}"),
        (without_gpus, "node n1: none can be used here"),
        (mistaken, None),
    ],
)
def test_a_run_that_its_node_cannot_begin_is_another_s_and_one_that_is_mistaken_nobody_s(store, clock, ends, reason):
    name = submissions.submit(store, handed())
    lease = leases.claim(store, "n1", "1", SECONDS).lease
    with pytest.raises(UsageError), giving_way(SimpleNamespace(store_url=store.url, lease=lease)):
        ends()
    found = submissions.state(store, name)
    assert leases.done(store, lease, 64) == (reason is None), "its node has nothing more to say where it was given back"
    assert found.status == ("queued" if reason else "leased")
    assert found.refused == ({"n1": reason} if reason else {})
    assert (leases.claim(store, "n2", "1", SECONDS) is not None) == (reason is not None)
