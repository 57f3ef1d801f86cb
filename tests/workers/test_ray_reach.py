"""The way into a cluster that is none, or does not answer. No cluster is started."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.pipeline.locks import stop_requested
from qualgate.workers import ray_reach
from qualgate.workers.pool import run_jobs
from qualgate.workers.ray_pool import OnRay
from qualgate.workers.ray_reach import connect
from tests.workers.test_pool import jobs, told


@contextmanager
def silent(on_call=lambda number: None):
    """The address of one that takes connections and says nothing. on_call: told of each, from 1."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = []

        def listen():
            while True:
                try:
                    held.append(listening.accept()[0])
                except OSError:
                    return
                on_call(len(held))

        threading.Thread(target=listen, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for one in held:
            one.close()


# In the place of Ray, which would call in seconds, and at this machine's other address.
CALLS = """
import socket, sys, time
host, port = sys.argv[1].split(":")
held = socket.create_connection((host, int(port)))
time.sleep(60)
"""


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="no Ray: install the extra ray")


def test_where_ray_is_not_installed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs ray"):
        connect("")


def test_an_address_that_nobody_listens_at_is_told_at_once(ray):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(InfrastructureError, match=f"no Ray cluster answers at {address}.*ConnectionRefused"):
            connect(address)


def test_what_answers_and_is_no_ray_is_given_up_in_time_and_told_of_meanwhile(ray, monkeypatch, caplog):
    monkeypatch.setattr(ray_reach, "TRY_SECONDS", 1.0)
    monkeypatch.setattr(ray_reach, "TELL_SECONDS", 0.0)
    with silent() as address:
        said = f"{address} answers, but not as Ray does \\(no reply of Ray within 1"
        with pytest.raises(InfrastructureError, match=said):
            connect(address)
    assert [one.getMessage() for one in caplog.records] == [
        f"{address} has not answered as Ray does yet; waiting for up to 1 s"
    ]


def test_what_ray_says_there_is_told_as_if_it_had_been_said_here(ray, monkeypatch):
    versions = "print('noise'); print('RuntimeError: Version mismatch: Ray 2.60.0 there, 2.61.0 here.'); exit(1)"
    monkeypatch.setattr(ray_reach, "_TRY", versions)
    with silent() as address:
        with pytest.raises(UsageError, match=r"^Version mismatch.* here\. Install the same versions on both"):
            connect(address)
        monkeypatch.setattr(ray_reach, "_TRY", "print('ConnectionError: no. Authentication token is missing'); exit(1)")
        with pytest.raises(InfrastructureError, match=r"not as Ray does \(ConnectionError: no. Authentication token"):
            connect(address)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_on_its_way_to_a_cluster_stops_at_once(ray, tmp_path, monkeypatch, number):
    monkeypatch.setattr(ray_reach, "_TRY", CALLS)

    def once_it_is_tried(call):
        if call == 2:  # the first only looks whether anybody is there
            asked.append(time.monotonic())
            os.kill(os.getpid(), number)

    asked = []
    with silent(once_it_is_tried) as address, stop_requested() as stop:
        on = OnRay(address=address, nbytes=2**20, reads=(), shared=str(tmp_path))
        settings = told(tmp_path, place=on)
        assert list(run_jobs(jobs(tmp_path), settings, 1, lambda: stop() is not None)) == []
        assert stop() == number
    assert time.monotonic() - asked[0] < 5


def test_who_does_not_hear_stop_requests_is_interrupted_as_ever(ray, ctrl_c, monkeypatch):
    monkeypatch.setattr(ray_reach, "_TRY", CALLS)
    with silent(lambda call: call == 2 and os.kill(os.getpid(), signal.SIGINT)) as address:
        with pytest.raises(KeyboardInterrupt):
            connect(address)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("address", "code"), [("127.0.0.1:1", signal.SIGTERM), ("", 1)])
def test_a_stop_request_that_ray_takes_for_itself_is_given_to_whom_it_was_meant_for(ray, monkeypatch, address, code):
    def init(**told):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(code))  # as Ray does
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ray, "init", init)
    for name in ("_reach", "_try"):
        monkeypatch.setattr(ray_reach, name, lambda address: None)
    with stop_requested() as stop, pytest.raises(InfrastructureError, match="stopped before Ray at"):
        connect(address)
    assert stop() == signal.SIGTERM
