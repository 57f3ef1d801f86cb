"""What a node makes of how its child ends, with children that are no run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError, StoreVersionError, UsageError
from qualgate.errors.log_lines import log_line
from qualgate.identity import own_version
from qualgate.pipeline import node
from qualgate.pipeline.node import Node
from qualgate.records import Submission
from qualgate.store import leases, runs, submissions
from qualgate.store.database import open_store
from tests.store.made import make_plan, make_run


class Bench:
    """A node over a store of its own, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = open_store(f"sqlite:///{folder / 'pool.db'}")
        self.said: list[str] = []
        self.about: list[dict[str, object]] = []
        self.received: list[signal.Signals] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(leases, "PAUSE_SECONDS", 0.0)
        self.node = Node(
            name="n1",
            store=self.store,
            seconds=30.0,
            folder=folder / "node",
            per_owner=None,
            say=lambda line, **about: (self.said.append(line), self.about.append(about)),
            stop=lambda: self.received[0] if self.received else None,
        )

    def submit(self, **more) -> str:
        body = {"owner": "ada", "name": "gate.yaml", "folder": "/w", "gate_file": "version: 1", **more}
        return submissions.submit(self.store, Submission(program=own_version(), **body))

    def work(self):
        self.node.work(until_empty=True)
        return submissions.states(self.store)


@pytest.fixture
def bench(tmp_path):
    found = Bench(tmp_path)
    yield found
    found.patch.undo()
    found.store.close()


@pytest.fixture
def child(monkeypatch):
    """Python in place of `qualgate run`."""

    def runs_this(code: str) -> None:
        monkeypatch.setattr(Node, "_command", lambda self, claimed, home: [sys.executable, "-S", "-c", code])

    return runs_this


@pytest.mark.parametrize(("code", "reason"), [(0, ""), (10, ""), (12, ""), (64, "gate.yaml: what is wrong")])
def test_a_verdict_ends_the_submission_with_its_exit_code(bench, child, code, reason):
    child(f"import sys; print('gate.yaml: what is wrong', file=sys.stderr); sys.exit({code})")
    bench.submit()
    [found] = bench.work()
    assert (found.status, found.exit, found.deaths, found.reason) == ("done", code, 0, reason)
    assert not list((bench.folder / "node").iterdir()), "what it laid out is gone"
    assert submissions.nodes_at_work(bench.store) == []


def test_what_a_child_says_in_json_is_told_with_its_submission_and_its_last_words_are_read(bench, child, monkeypatch):
    monkeypatch.setenv("QUALGATE_LOG", "json")
    line = log_line("gate.yaml: what is wrong", level="error", run="r1", event="begun")
    child(f"import sys; print({line!r}, file=sys.stderr); sys.exit(64)")
    name = bench.submit()
    [found] = bench.work()
    assert found.reason == "gate.yaml: what is wrong"
    assert bench.about[-1] | {"event": "ended"} == {"event": "ended", "submission": name, "run": "r1", "exit": 64}
    told = dict(zip(bench.said, bench.about, strict=True))["gate.yaml: what is wrong"]
    assert (told["submission"], told["run"], told["event"], told["level"]) == (name, "r1", "begun", "error")


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process ended by signal 9"),
        ("print('no space left on device'); raise SystemExit(13)", "exit code 13: no space left on device"),
        ("raise SystemExit(1)", "exit code 1"),
    ],
)
def test_a_child_without_a_verdict_is_a_death_and_three_set_it_apart_while_others_go_on(bench, child, code, ended):
    child(code)
    first = bench.submit()
    [found] = bench.work()
    assert (found.status, found.deaths, found.claims) == ("apart", 3, 3)
    assert found.reason == f"set apart: 3 workers ended without a verdict; the last: node n1: {ended}"
    child("raise SystemExit(0)")
    second = bench.submit()
    assert {one.id: one.status for one in bench.work()} == {first: "apart", second: "done"}


def no_room(bench: Bench, name: str) -> None:
    (bench.folder / "node").mkdir()
    (bench.folder / "node" / f"{name}-1").touch()  # where its folder is to be


@pytest.mark.parametrize(
    ("needs", "spoil", "told"),
    [
        ({}, no_room, "[Errno 17] File exists"),
        ({"/models/none": ""}, lambda bench, name: None, "/models/none is not there"),
    ],
)
def test_what_cannot_be_run_here_is_given_back_with_the_reason_and_is_no_death(bench, child, needs, spoil, told):
    child("raise SystemExit(0)")
    spoil(bench, bench.submit(needs=needs))
    [found] = bench.work()
    assert (found.status, found.deaths) == ("queued", 0)
    assert found.refused["n1"].startswith(f"node n1: {told}")
    assert any(line.startswith("gave back") and told in line for line in bench.said)


def test_a_node_whose_folder_cannot_be_used_takes_nothing(bench):
    name = bench.submit()
    (bench.folder / "file").touch()
    bench.node.folder = bench.folder / "file" / "node"
    with pytest.raises(UsageError, match=r"file/node, where this node lays out .*: Not a directory\. Give another"):
        bench.work()
    assert submissions.state(bench.store, name).claims == 0


def test_what_its_process_gave_back_has_not_ended(bench, child):
    back = "update submissions set status = 'queued', deaths = 7"
    child(f"import sqlite3; c = sqlite3.connect({str(bench.folder / 'pool.db')!r}); c.execute({back!r}); c.commit()")
    bench.submit()

    def say(line, **about):
        bench.about.append(about)
        if about["event"] != "taken":
            bench.received.append(signal.SIGTERM)

    bench.node.say = say
    [found] = bench.work()
    assert (found.status, found.exit, found.deaths) == ("queued", None, 7)
    assert [about["event"] for about in bench.about] == ["taken", "left"]


UPGRADE = (
    "import sqlite3; c = sqlite3.connect({!r}); c.execute('update alembic_version set version_num = 9'); c.commit()"
)


def test_a_node_under_which_the_store_is_upgraded_takes_nothing_more(bench):
    name = bench.submit()
    exec(UPGRADE.format(str(bench.folder / "pool.db")))
    with pytest.raises(StoreVersionError, match="is at revision 9, which a newer qualgate wrote"):
        bench.work()
    assert submissions.state(bench.store, name).claims == 0


def test_a_run_that_met_a_store_upgraded_meanwhile_ends_its_node_and_not_the_submission(bench, child):
    child(UPGRADE.format(str(bench.folder / "pool.db")) + "; raise SystemExit(64)")
    name = bench.submit()
    with pytest.raises(StoreVersionError, match="is at revision 9"):
        bench.work()
    found = submissions.state(bench.store, name)
    assert (found.status, found.deaths, found.exit) == ("queued", 0, None)
    assert submissions.nodes_at_work(bench.store) == []


def test_a_node_under_which_another_qualgate_is_installed_takes_nothing_more(bench, monkeypatch):
    name = bench.submit()
    monkeypatch.setattr(node, "own_version", lambda: "9.9")
    with pytest.raises(StoreVersionError, match=rf"node n1 is qualgate {own_version()}, and 9\.9 was installed since"):
        bench.work()
    assert submissions.state(bench.store, name).claims == 0


WAITING = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open({0!r}, "w") as file:
    file.write(str(os.getpid()))
signal.pause()
"""


def in_the_middle(bench: Bench, child, then) -> float:
    """Work on a submission whose child ignores SIGTERM; `then` once it is under way. Returns the seconds from there."""
    marker = bench.folder / "child"
    child(WAITING.format(str(marker)))
    began: list[float] = []

    def act() -> None:
        while not (marker.is_file() and marker.read_text()):
            os.sched_yield()
        began.append(time.monotonic())
        then()

    thread = threading.Thread(target=act)
    thread.start()
    bench.node.work(until_empty=True)
    ended = time.monotonic()
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)
    return ended - began[0]


def test_cancelled_work_is_gone_within_five_seconds_though_it_does_not_listen(bench, child):
    name = bench.submit()
    assert in_the_middle(bench, child, lambda: submissions.cancel(bench.store, name, "ada")) < 5
    found = submissions.state(bench.store, name)
    assert (found.status, found.reason, found.deaths) == ("cancelled", "cancelled by ada", 0)


def test_a_node_that_is_stopped_gives_back_what_it_is_at(bench, child):
    name = bench.submit()
    assert in_the_middle(bench, child, lambda: bench.received.append(signal.SIGTERM)) < 5
    found = submissions.state(bench.store, name)
    assert (found.status, found.deaths, found.reason) == ("queued", 0, "node n1 stopped")


def test_work_that_another_node_took_over_is_left_to_it(bench, child):
    name = bench.submit()

    def late() -> None:
        with pytest.MonkeyPatch.context() as patch:
            ahead = 1e6 + time.time()
            patch.setattr(leases, "clock", lambda connection: ahead)
            leases.claim(bench.store, "n2", own_version(), 1e9)

    in_the_middle(bench, child, late)
    found = submissions.state(bench.store, name)
    assert (found.status, found.node, found.claims, found.deaths) == ("leased", "n2", 2, 1)


def test_a_run_that_ended_before_its_node_could_say_so_is_not_run_again(bench):
    run_id = make_run(bench.store, make_plan())
    name = bench.submit()
    lease = leases.claim(bench.store, "dead", own_version(), 30.0).lease
    with open_store(bench.store.url, lease=lease) as under, under.write() as connection:
        runs.name_run(connection, lease, run_id)
    leases.died(bench.store, lease, "killed")
    claimed = leases.claim(bench.store, "n1", own_version(), 30.0)
    assert claimed.complete
    assert bench.node._command(claimed, bench.folder)[3:] == ["gate", "--store", bench.store.url, "--run", run_id]
    assert name == claimed.lease.submission


@pytest.mark.parametrize(("name", "ago", "warned"), [("n1", 3.0, True), ("n1", 31.0, False), ("n2", 3.0, False)])
def test_a_node_whose_name_another_bears_that_has_not_left_says_so(bench, name, ago, warned):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "clock", lambda connection: time.time() - ago)
        leases.enter(bench.store, name, own_version(), 30.0, time.time())
    bench.work()
    bench.work()  # which left in good order, and so left its name free
    told = [line for line in bench.said if re.match("a node named n1 was seen [34] s ago and has not left", line)]
    assert len(told) == warned


def test_a_clock_beyond_the_lease_is_told_once(bench, child, monkeypatch):
    child("raise SystemExit(0)")
    bench.submit()
    monkeypatch.setattr(leases, "clock", lambda connection: time.time() - 5400.0)
    bench.work()
    [told] = [line for line in bench.said if "clock" in line]
    assert "the clock of node n1 is 5400 s ahead of the store's, beyond a lease of 30 s" in told


@pytest.mark.parametrize("program", [own_version(), "0.0.1"])
def test_a_node_that_was_taken_for_gone_works_on_in_sight_unless_another_version_is_at_work(bench, program):
    leases.enter(bench.store, "n1", own_version(), 30.0, time.time())
    leases.leave(bench.store, "n1")  # as whoever enters does, once it was not seen for three leases
    leases.enter(bench.store, "n2", program, 30.0, time.time())
    if program == own_version():
        bench.node._seen()
        assert [node.name for node in submissions.nodes_at_work(bench.store)] == ["n1", "n2"]
    else:
        with pytest.raises(StoreVersionError, match=r"node n2 is at work on this store with 0\.0\.1"):
            bench.node._seen()


def test_a_node_that_was_forgotten_while_it_slept_is_seen_again(bench, monkeypatch):
    monkeypatch.setattr(node, "POLL", 0.0)
    monkeypatch.setattr(node, "RENEWALS", float("inf"))
    looks = []

    def stop():
        looks.append([one.name for one in submissions.nodes_at_work(bench.store)])
        if len(looks) == 1:
            leases.leave(bench.store, "n1")  # as who enters does with one that was not seen for three leases
        return signal.SIGTERM if len(looks) == 3 else None

    bench.node.stop = stop
    bench.node.work()
    assert looks == [["n1"]] * 3


def test_a_store_that_cannot_be_reached_for_a_while_is_asked_again(bench, child, monkeypatch):
    child("raise SystemExit(10)")
    bench.submit()
    done, tries = leases.done, []

    def at_first_not(*said):
        tries.append(said)
        if len(tries) == 1:
            raise InfrastructureError("the server closed the connection")
        return done(*said)

    monkeypatch.setattr(leases, "done", at_first_not)
    [found] = bench.work()
    assert (found.status, found.exit, len(tries)) == ("done", 10, 2)


def test_a_child_ends_when_its_node_is_gone():
    """As the node's death closes it: `qualgate run` reads its input under a lease, see `under_lease`."""
    code = (
        "import signal; from types import SimpleNamespace as Made; from qualgate.pipeline import under_lease as u;"
        "u.replace = lambda gate, lease, **arms: lease; gate = Made(baseline=Made(model=''), variants=());"
        "print(u.under_lease(gate, 's-1:7'), flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline() == "Lease(submission='s-1', token=7)\n"
        assert run.poll() is None
        run.stdin.close()
        assert run.wait() == -signal.SIGTERM


@pytest.mark.parametrize("slow", ["_lacking", "lay_out"])
def test_the_lease_is_renewed_while_a_large_file_is_hashed_or_laid_out(bench, child, monkeypatch, slow):
    renewed, quick, renew = threading.Event(), getattr(node, slow), leases.renew

    def waits(*given):
        assert renewed.wait(20), "nobody renewed the lease"
        return quick(*given)

    def seen(*given):
        renewed.set()
        return renew(*given)

    monkeypatch.setattr(node, "POLL", 0.005)
    monkeypatch.setattr(node, slow, waits)
    monkeypatch.setattr(leases, "renew", seen)
    if slow == "_lacking":
        child("raise SystemExit(0)")
    else:
        given = Node._command

        def command(self, claimed, home):
            given(self, claimed, home)
            return [sys.executable, "-S", "-c", "raise SystemExit(0)"]

        monkeypatch.setattr(Node, "_command", command)
    bench.node.seconds = 0.03
    bench.submit()
    [found] = bench.work()
    assert (found.status, found.exit, renewed.is_set()) == ("done", 0, True)
