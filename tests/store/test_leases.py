"""Leases on submissions: every order of claims, renewals, deaths, cancellations and late answers that hypothesis finds,
against a model of its own; and each refusal by itself."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import event, insert, select

from qualgate.errors import InfrastructureError, StoreVersionError, UsageError
from qualgate.pipeline.under_lease import giving_way
from qualgate.records import Lease, Submission
from qualgate.store import leases, runs, submissions
from qualgate.store.database import open_store
from qualgate.store.lease_guard import LeaseLost, RunTaken
from qualgate.store.tables import cases
from tests.depth import examples
from tests.store.conftest import Clock
from tests.store.made import make_plan, make_run

SECONDS = 30.0
NODES = ("n1", "n2", "n3")
OWNERS = ("ada", "bo", "cy")


def handed(owner: str = "ada", name: str = "gate.yaml", **more) -> Submission:
    return Submission(owner=owner, name=name, folder="/w", gate_file="version: 1", program="1", **more)


# -------------------------------------------------------------------------------------------------------- the oracle


@dataclass
class Known:
    """What the model knows of one submission."""

    owner: str
    priority: int
    order: int
    status: str = "queued"
    token: int = 0
    expires: float = 0.0
    taken: float = 0.0
    deaths: int = 0
    until: float = 0.0  # when its pause after a death is over
    node: str = ""  # of the newest claim
    died_at: dict[str, float] = field(default_factory=dict)  # node → when, 0 where there was no other to leave it to
    recorded: int = 0  # effects that the holder of the newest claim wrote


class Pool(RuleBasedStateMachine):
    """Nodes that claim, renew, die, wake late and write; `Known` says what each is to come to."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_store(f"sqlite:///{self.folder.name}/pool.db")
        self.clock = Clock()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(leases, "clock", self.clock)
        self.patch.setattr(submissions, "clock", self.clock)
        self.known: dict[str, Known] = {}
        self.seen: dict[str, float] = {}  # nodes → when
        self.leases: list[Lease] = []  # all that were ever given, held or long lost

    def teardown(self) -> None:
        self.patch.undo()
        self.store.close()
        self.folder.cleanup()

    def holds(self, lease: Lease) -> bool:
        known = self.known[lease.submission]
        return known.status == "leased" and known.token == lease.token

    def bury(self, known: Known) -> None:
        there = {node for node, at in self.seen.items() if self.clock.now - at <= leases.FORGOTTEN * SECONDS}
        able = there - set(known.died_at) - {known.node}
        known.deaths += not able or known.node not in known.died_at
        known.died_at[known.node] = self.clock.now if able else 0.0
        known.status = "apart" if known.deaths == 3 else "queued"

    @rule(owner=st.sampled_from(OWNERS), priority=st.integers(-1, 1))
    def submit(self, owner, priority):
        name = submissions.submit(self.store, handed(owner, f"g{len(self.known)}", priority=priority))
        self.known[name] = Known(owner, priority, len(self.known))
        self.clock.now += 0.001

    @rule(node=st.sampled_from(NODES))
    def enter(self, node):
        leases.enter(self.store, node, "1", SECONDS, 0.0)
        self.seen[node] = self.clock.now

    @rule(node=st.sampled_from(NODES), per_owner=st.sampled_from([None, 1, 2]))
    def claim(self, node, per_owner):
        now, looked = self.clock.now, leases.is_work(self.store, node, "1", per_owner)
        late = [known for known in self.known.values() if known.status == "leased" and known.expires < now]
        for known in late:
            self.bury(known)
        held = [known.owner for known in self.known.values() if known.status == "leased"]
        last = {o: max((k.taken for k in self.known.values() if k.owner == o), default=0.0) for o in OWNERS}
        queued = [known for known in self.known.values() if known.status == "queued"]
        since = {o: min((k.order for k in queued if k.owner == o), default=0) for o in OWNERS}
        free = [
            (held.count(known.owner), last[known.owner], since[known.owner], -known.priority, known.order, name)
            for name, known in self.known.items()
            if known.status == "queued"
            and known.until < now
            and not known.died_at.get(node, 0.0) > now - leases.REFUSED_SECONDS
            and (per_owner is None or held.count(known.owner) < per_owner)
        ]
        found = leases.claim(self.store, node, "1", SECONDS, per_owner)
        assert (found.lease.submission if found else None) == (min(free)[-1] if free else None)
        assert looked == bool(found or late)
        if found:
            known = self.known[found.lease.submission]
            assert found.lease.token == known.token + 1
            known.status, known.token, known.expires, known.taken = "leased", known.token + 1, now + SECONDS, now
            known.node = node
            self.leases.append(found.lease)

    @rule(seconds=st.sampled_from([1.0, 10.0, 29.0, 31.0, 100.0]))
    def time_passes(self, seconds):
        self.clock.now += seconds

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(["renew", "done", "died", "release", "write"]))
    def somebody_answers(self, data, how):
        """With any lease that was ever given: a late one must change nothing."""
        lease = data.draw(st.sampled_from(self.leases))
        known, held = self.known[lease.submission], self.holds(lease)
        if how == "renew":
            assert (leases.renew(self.store, lease, "n1", SECONDS, 0.0) is not None) == held
            known.expires = self.clock.now + SECONDS if held else known.expires
            self.seen |= {"n1": self.clock.now} if held else {}
        elif how == "done":
            assert leases.done(self.store, lease, 10) == held
            known.status = "done" if held else known.status
        elif how == "died":
            assert leases.died(self.store, lease, "signal 9") == held
            if held:
                known.until = self.clock.now + leases.PAUSE_SECONDS * 2**known.deaths
                self.bury(known)
        elif how == "release":
            assert leases.release(self.store, lease, "stopped") == held
            known.status = "queued" if held else known.status
        else:
            self.write(lease, known, held)

    def write(self, lease: Lease, known: Known, held: bool) -> None:
        """As a run under the lease does: a row in another table, which is there only if the lease holds."""
        under = open_store(self.store.url, lease=lease)
        row = {"case_hash": f"{lease.submission}/{known.token}/{known.recorded}/{lease.token}", "body_json": "{}"}
        with under:
            if not held:
                with pytest.raises(LeaseLost), under.write() as connection:
                    connection.execute(insert(cases), row)
                return
            with under.write() as connection:
                connection.execute(insert(cases), row)
            known.recorded += 1

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data):
        name = data.draw(st.sampled_from(list(self.known)))  # ids are drawn: their order is none
        before, known = submissions.cancel(self.store, name, "ada"), self.known[name]
        assert before.status == known.status
        known.status = "cancelled" if known.status in ("queued", "leased") else known.status

    @invariant()
    def nothing_is_lost_and_nothing_doubled(self):
        found = {one.id: one for one in submissions.states(self.store, ended=10_000)}
        assert {n: (s.status, s.claims, s.deaths) for n, s in found.items()} == {
            n: (k.status, k.token, k.deaths) for n, k in self.known.items()
        }
        with self.store.read() as connection:
            written = list(connection.execute(select(cases.c.case_hash)).scalars())
        assert len(written) == sum(known.recorded for known in self.known.values())
        assert all(token == newest for _, newest, _, token in (name.split("/") for name in written))


quick = settings(
    examples(40, few=12),
    stateful_step_count=25,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),  # a failure is told as it was found: to shrink it takes minutes
)
TestLeases = Pool.TestCase
TestLeases.settings = quick


@pytest.mark.proof
def test_leases_at_length():
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Pool, settings=settings(quick, stateful_step_count=50))


# ------------------------------------------------------------------------------------------------------ one by one


def test_a_run_under_a_lost_lease_stores_nothing_more(store, clock):
    name = submissions.submit(store, handed())
    first = leases.claim(store, "n1", "1", SECONDS)
    with open_store(store.url, lease=first.lease) as under:
        run_id = runs.begin(under, make_plan()).run_id
        assert submissions.state(store, name).run_id == run_id
        clock.now += SECONDS + 1
        assert runs.begin(under, make_plan()).run_id == run_id, "nobody has taken it back yet"
        second = leases.claim(store, "n2", "1", SECONDS)
        assert (second.lease.token, second.run_id, second.complete, second.deaths) == (2, run_id, False, 1)
        with pytest.raises(LeaseLost, match="is leased by n2: claim 1 of it has ended, nothing was stored"):
            runs.finish(under, run_id, (), complete=True)
    assert leases.rescued(store) == 1
    with open_store(store.url, lease=second.lease) as under:
        runs.finish(under, run_id, (), complete=True)


def test_two_submissions_are_not_at_one_run_side_by_side(store):
    for name in ("a.yaml", "b.yaml"):
        submissions.submit(store, handed(name=name))
    held = [leases.claim(store, node, "1", SECONDS).lease for node in ("n1", "n2")]
    with open_store(store.url, lease=held[0]) as under:
        run_id = runs.begin(under, make_plan()).run_id
    with (
        open_store(store.url, lease=held[1]) as under,
        pytest.raises(Exception, match=f"n1 is at work on run {run_id}"),
    ):
        runs.begin(under, make_plan())


def test_who_would_be_at_another_s_run_gives_way_for_a_while_and_nothing_is_counted(store, clock):
    for name in ("a.yaml", "b.yaml"):
        submissions.submit(store, handed(name=name))
    first, second = (leases.claim(store, node, "1", 90.0).lease for node in ("n1", "n2"))
    with open_store(store.url, lease=first) as under:
        run_id = runs.begin(under, make_plan()).run_id
    gate = SimpleNamespace(store_url=store.url, lease=second)
    with open_store(store.url, lease=second) as under, pytest.raises(RunTaken), giving_way(gate):
        runs.begin(under, make_plan())
    assert not leases.died(store, second, "exit code 13"), "its node has nothing more to say of it"
    found = submissions.state(store, second.submission)
    assert (found.status, found.deaths) == ("queued", 0)
    assert f"n1 is at work on run {run_id}" in found.reason
    assert leases.claim(store, "n2", "1", 90.0) is None
    clock.now += leases.REFUSED_SECONDS + 1
    assert leases.claim(store, "n2", "1", 90.0).lease.submission == second.submission


def test_a_priority_orders_an_owner_s_own_and_pushes_nobody_aside_who_came_first(store, clock):
    for owner, name, priority in (("ada", "a", 0), ("bo", "b", 0), ("bo", "b-urgent", 1000), ("cy", "c", 5)):
        submissions.submit(store, handed(owner, name, priority=priority))
        clock.now += 1.0
    taken = [leases.claim(store, "n1", "1", SECONDS).submission.name for _ in range(4)]
    assert taken == ["a", "b-urgent", "c", "b"]


def test_a_node_that_was_forgotten_is_told_to_enter_anew(store, clock):
    leases.enter(store, "slept", "1", SECONDS, clock.now)
    assert leases.see(store, "slept", clock.now) == 0.0
    clock.now += 4 * SECONDS
    leases.enter(store, "other", "2", SECONDS, clock.now)
    assert leases.see(store, "slept", clock.now) is None
    with pytest.raises(StoreVersionError, match="node slept has qualgate 1"):
        leases.enter(store, "slept", "1", SECONDS, clock.now)


def test_the_same_question_waits_until_the_first_of_it_has_ended(store):
    first, second = (submissions.submit(store, handed()) for _ in range(2))
    taken = leases.claim(store, "n1", "1", SECONDS)
    assert taken.lease.submission == first
    assert leases.claim(store, "n2", "1", SECONDS) is None
    leases.done(store, taken.lease, 0)
    assert leases.claim(store, "n2", "1", SECONDS).lease.submission == second


def test_three_deaths_set_it_apart_with_the_last_reason(store, clock):
    name = submissions.submit(store, handed(files={"/w/echo.yaml": b"name: echo"}))
    for _ in range(2):
        taken = leases.claim(store, "n1", "1", SECONDS)
        assert taken.submission.files == {"/w/echo.yaml": b"name: echo"}
        leases.died(store, taken.lease, "node n1: its process ended by signal 9")
        clock.now += SECONDS
    leases.claim(store, "n2", "1", SECONDS)
    clock.now += SECONDS + 1
    assert leases.is_work(store, "n3", "1")
    assert leases.claim(store, "n3", "1", SECONDS) is None
    found = submissions.state(store, name)
    assert (found.status, found.deaths) == ("apart", 3)
    assert found.reason == "set apart: 3 workers ended without a verdict; the last: node n2 was not heard of any more"


def test_after_a_death_it_waits_twice_as_long_each_time_and_after_a_lost_node_not_at_all(store, clock):
    submissions.submit(store, handed())
    for pause in (leases.PAUSE_SECONDS, 2 * leases.PAUSE_SECONDS):
        leases.died(store, leases.claim(store, "n1", "1", SECONDS).lease, "signal 9")
        clock.now += pause
        assert (leases.is_work(store, "n2", "1"), leases.is_pausing(store, "n2", "1")) == (False, True)
        assert leases.claim(store, "n2", "1", SECONDS) is None
        clock.now += 0.001
        assert leases.is_work(store, "n2", "1")
    submissions.submit(store, handed(name="other.yaml"))
    leases.claim(store, "n1", "1", SECONDS)
    gone = leases.claim(store, "n1", "1", SECONDS).lease.submission
    clock.now += SECONDS + 1
    assert leases.claim(store, "n2", "1", SECONDS).lease.submission == gone
    assert not leases.is_pausing(store, "n2", "1")


def test_two_versions_of_the_program_do_not_work_on_one_store(store, clock):
    leases.enter(store, "n1", "1", SECONDS, clock.now)
    with pytest.raises(StoreVersionError, match="node n2 has qualgate 2, and node n1 is at work on this store with 1"):
        leases.enter(store, "n2", "2", SECONDS, clock.now)
    with pytest.raises(StoreVersionError, match="this command has qualgate 2"):
        submissions.submit(store, Submission(owner="a", name="g", folder="/w", gate_file="", program="2"))
    clock.now += leases.FORGOTTEN * SECONDS + 1
    leases.enter(store, "n2", "2", SECONDS, clock.now)
    assert [node.name for node in submissions.nodes_at_work(store)] == ["n2"]
    old = submissions.submit(store, Submission(owner="a", name="g", folder="/w", gate_file="", program="2"))
    assert leases.claim(store, "n1", "1", SECONDS) is None, "handed over by another version"
    assert leases.claim(store, "n2", "2", SECONDS).lease.submission == old


def test_a_node_that_was_taken_for_gone_and_is_not_enters_again_idle_or_at_work(store, clock):
    leases.enter(store, "n1", "1", SECONDS, clock.now)
    submissions.submit(store, handed())
    lease = leases.claim(store, "n1", "1", 10 * SECONDS).lease
    clock.now += leases.FORGOTTEN * SECONDS + 1
    leases.enter(store, "n2", "1", SECONDS, clock.now)
    assert leases.see(store, "n1", clock.now) is None
    assert [node.name for node in submissions.nodes_at_work(store)] == ["n2"]
    assert leases.renew(store, lease, "n1", SECONDS, clock.now + 2.0) == 2.0
    assert [(node.name, node.program) for node in submissions.nodes_at_work(store)] == [("n1", "1"), ("n2", "1")]
    assert leases.see(store, "n1", clock.now) == 0.0


def test_a_clock_that_is_off_is_told_by_how_much(store, clock):
    assert leases.enter(store, "n1", "1", SECONDS, clock.now + 5400.0) == 5400.0
    assert submissions.nodes_at_work(store)[0].skew == 5400.0
    assert leases.see(store, "n1", clock.now - 1.0) == -1.0


def test_the_stores_clock_runs(store):
    with store.read() as connection:
        first = leases.clock(connection)
        while (second := leases.clock(connection)) == first:
            pass
    assert 0 < second - first < 60
    assert first > 1_700_000_000


def test_an_unknown_submission_is_told_with_the_nearest(store):
    name = submissions.submit(store, handed())
    with pytest.raises(UsageError, match=f"no submission '{name}0' in this store, perhaps {name}"):
        submissions.cancel(store, f"{name}0", "ada")


@pytest.mark.parametrize("pooled", [True, False])
def test_a_run_that_another_gate_file_went_on_with_ends_no_submission_but_that_one_s(store, pooled, clock):
    """The policy is not in a run's key: it is then the other's, and would decide by rules that this one never wrote."""
    for name in ("strict.yaml", "lax.yaml"):
        submissions.submit(store, handed(name=name, owner=name))
    first = leases.claim(store, "n1", "1", SECONDS).lease
    with open_store(store.url, lease=first) as under:
        run_id = runs.begin(under, make_plan()).run_id
    if not pooled:
        with pytest.raises(InfrastructureError, match=f"n1 is at work on run {run_id}"):
            runs.begin(store, make_plan())
    leases.died(store, first, "killed")
    clock.now += leases.PAUSE_SECONDS + 1
    if pooled:
        second = leases.claim(store, "n2", "1", SECONDS).lease
        assert second.submission != first.submission
        with open_store(store.url, lease=second) as under:
            assert make_run(under, make_plan()) == run_id
        leases.done(store, second, 0)
    else:
        assert make_run(store, make_plan()) == run_id
        second = leases.claim(store, "n2", "1", SECONDS).lease
        leases.done(store, second, 0)
    again = leases.claim(store, "n1", "1", SECONDS)
    assert again.lease.submission == first.submission
    assert (again.run_id, again.complete) == (None, False)


def test_many_that_are_open_are_looked_at_in_few_questions(store):
    for _ in range(12):
        submissions.submit(store, handed())
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    assert len(submissions.states(store)) == 12
    assert len(asked) < 12
