"""Second copies of late jobs, by the real pool on workers that say what a test has them say. Nothing computes, and the
clock is the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from qualgate.records import Job, JobFailure, JobResult
from qualgate.workers import pool
from qualgate.workers.copies import Copies
from qualgate.workers.queue import Queue
from qualgate.workers.unit import READY, Refused, WorkerSettings
from tests.workers.fake_worker import result_of
from tests.workers.test_pool import jobs, told

DIES = "dies"


@dataclass(eq=False)
class Seat:
    """A worker, its pipe and its process in one, which takes a second for a job unless it is told otherwise."""

    nodes: Nodes
    number: int
    due: list[tuple[float, Any]] = field(default_factory=list)
    exitcode: int | None = None

    def send(self, handed: tuple[Job, ...]) -> None:
        for job in handed:
            self.nodes.handed.append((self.number, job))
            seconds, said = self.nodes.says(self, job)
            self.due.append((self.nodes.now + seconds, said))

    def recv(self) -> Any:
        _, said = self.due.pop(0)
        if said == DIES:
            self.exitcode = -9
            raise EOFError
        return said

    def close(self) -> None: ...

    def join(self) -> None: ...

    def kill(self) -> None:
        self.exitcode = -9


@dataclass
class Nodes:
    """A place for workers, and the clock of the pool that has them."""

    says: Callable[[Seat, Job], tuple[float, Any]]
    now: float = 0.0
    handed: list[tuple[int, Job]] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)

    most = 0

    def crew(self, body: Any, settings: WorkerSettings, count: int) -> Nodes:
        return self

    def hire(self, count: int) -> Iterator[tuple[Seat, Seat]]:
        for _ in range(count):
            self.seats.append(seat := Seat(self, len(self.seats), [(self.now, READY)]))
            yield seat, seat

    def close(self) -> None: ...

    def monotonic(self) -> float:
        return self.now

    def wait(self, pipes: list[Seat], timeout: float) -> list[Seat]:
        self.now = min(self.now + timeout, max(self.now, min(pipe.due[0][0] for pipe in pipes)))
        return [pipe for pipe in pipes if pipe.due[0][0] <= self.now]

    def handed_out(self, job: Job) -> list[int]:
        """To whom it was."""
        return [number for number, one in self.handed if (one.arm.name, one.index) == (job.arm.name, job.index)]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The variants' jobs of a run, the last of which is late with whoever has it first."""

    def run(says, workers: int = 3, every: list[Job] | None = None, **options):
        nodes = Nodes(says)
        monkeypatch.setattr(pool, "time", nodes)
        monkeypatch.setattr(pool, "wait", nodes.wait)
        settings = told(tmp_path, place=nodes)
        every = variants(tmp_path) if every is None else every
        return nodes, list(pool.run_jobs(every, settings, workers, **options))

    return run


def variants(folder: Path, count: int = 5) -> list[Job]:
    return [job for job in jobs(folder, count) if job.arm.name == "a"]


def late(first: tuple[float, Any], then: Callable[[Job], tuple[float, Any]] = lambda job: (1.0, result_of(job))):
    """What workers say where job 4 is late: `first` of whoever takes it first, `then` of the others."""

    def says(seat: Seat, job: Job) -> tuple[float, Any]:
        if job.index != 4:
            return 1.0, result_of(job)
        return first if len(seat.nodes.handed_out(job)) == 1 else then(job)

    return says


def test_a_late_job_is_handed_to_an_idle_worker_as_well_and_the_first_answer_ends_the_run(work, tmp_path):
    last = variants(tmp_path)[-1]
    nodes, outcomes = work(late((1000.0, result_of(last))))
    assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3, 4]
    assert len(set(nodes.handed_out(last))) == 2, "one copy, with another worker"
    assert nodes.now < 10
    assert nodes.seats[nodes.handed_out(last)[0]].exitcode == -9, "the other is told to stop"


def test_an_answer_that_comes_second_is_thrown_away_whatever_it_says(work, tmp_path):
    every = variants(tmp_path, 6)

    def says(seat: Seat, job: Job) -> tuple[float, Any]:
        again = len(seat.nodes.handed_out(job)) > 1
        if job.index == 4:  # beaten by its copy at 3.x s, and heard while job 5 is still awaited
            return (1.0, result_of(job)) if again else (5.0, Refused("a slow node's mistake"))
        return (20.0 if job.index == 5 else 1.0), result_of(job)

    nodes, outcomes = work(says, workers=4, every=every)
    assert sorted(outcome.index for outcome in outcomes) == list(range(6))
    assert all(isinstance(outcome, JobResult) for outcome in outcomes)
    assert nodes.now > 5


def test_nothing_is_copied_while_a_job_waits_nor_before_it_is_late(work, tmp_path):
    nodes, _ = work(lambda seat, job: (1.0, result_of(job)))
    assert len(nodes.handed) == 5
    nodes, _ = work(late((30.0, result_of(variants(tmp_path)[-1]))), workers=1)
    assert len(nodes.handed) == 5


def test_a_copy_that_fails_leaves_the_job_to_the_other(work, tmp_path):
    last = variants(tmp_path)[-1]
    failed = JobFailure(index=4, arm="a", keys=tuple(prompt.key for prompt in last.prompts), error="short of memory")
    nodes, outcomes = work(late((20.0, result_of(last)), lambda job: (1.0, failed)))
    assert len(nodes.handed_out(last)) == 2
    assert {type(outcome) for outcome in outcomes} == {JobResult}
    _, outcomes = work(late((20.0, failed), lambda job: (1.0, failed)))
    assert [outcome.error for outcome in outcomes if isinstance(outcome, JobFailure)] == ["short of memory"]


def test_a_worker_that_dies_loses_nothing_whether_it_had_the_job_or_its_copy(work, tmp_path):
    last = variants(tmp_path)[-1]
    for first, then in (((20.0, result_of(last)), (1.0, DIES)), ((4.0, DIES), (20.0, result_of(last)))):
        nodes, outcomes = work(late(first, lambda job, then=then: then))
        assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3, 4]
        assert len(nodes.handed_out(last)) == 2, "the other goes on with it"


def test_a_job_that_kills_its_workers_is_searched_after_three_with_its_copy_counted(work, tmp_path):
    last = variants(tmp_path)[-1]
    nodes, outcomes = work(late((3.0, DIES), lambda job: (2.0, DIES)))
    failures = [outcome for outcome in outcomes if isinstance(outcome, JobFailure)]
    assert sorted(key.case_id for failure in failures for key in failure.keys) == ["4-0", "4-1", "4-2"]
    asked = [len(job.prompts) for _, job in nodes.handed if job.index == last.index]
    assert asked[:4] == [3, 3, 3, 2], "by the third it is no accident"
    assert len(outcomes) == 4 + len(failures)


def test_a_run_ends_with_what_is_needed_and_when_it_is_stopped_copies_or_not(work, tmp_path):
    last, answered, there = variants(tmp_path)[-1], [], []
    slow = late((50.0, result_of(last)))
    nodes, outcomes = work(
        lambda seat, job: (there.append(seat.nodes), slow(seat, job))[1],
        needed=lambda job: not there or there[0].now < 2,
    )
    assert (len(nodes.handed_out(last)), len(outcomes)) == (1, 4)
    assert nodes.now < 3
    nodes, outcomes = work(
        late((50.0, result_of(last)), lambda job: (50.0, result_of(job))),
        stop=lambda: bool(answered.append(0) or len(answered) > 40),
    )
    assert len(nodes.handed_out(last)) == 2
    assert len(outcomes) == 4


def test_a_late_baselines_artifact_is_the_first_answers_and_its_variants_go_on(work, tmp_path):
    every = jobs(tmp_path, 4)
    read, late_one = dict[str, str](), next(job for job in every if job.arm.is_baseline and job.index == 3)

    def says(seat: Seat, job: Job) -> tuple[float, Any]:
        if job.arm.is_baseline:
            Path(job.left_at).write_text(f"attempt {job.attempt}")
        else:
            read[f"{job.arm.name} {job.index}"] = Path(job.artifact).read_text()
        slow = job.arm.is_baseline and job.index == 3 and len(seat.nodes.handed_out(job)) == 1
        return (1000.0 if slow else 1.0), result_of(job)

    nodes, outcomes = work(says, every=every)
    assert len(outcomes) == 12
    assert nodes.now < 20, "who waits for the artifact of a late job waits for its copy"
    first, copy = nodes.handed_out(late_one)
    assert first != copy
    attempts = [job.attempt for _, job in nodes.handed if job.arm.is_baseline and job.index == 3]
    assert {read["a 3"], read["b 3"]} == {f"attempt {attempts[1]}"}
    Path(replace(late_one, attempt=attempts[0]).left_at).write_text("much later")
    assert Path(late_one.artifact).read_text() == f"attempt {attempts[1]}"


def test_no_two_pools_name_their_attempts_alike(work, tmp_path):
    named = []
    for _ in range(2):
        nodes, _ = work(lambda seat, job: (1.0, result_of(job)))
        named.append({job.attempt for _, job in nodes.handed})
    assert [len(attempts) for attempts in named] == [3, 3], "one a worker"
    assert not named[0] & named[1], "an engine that outlives its coordinator writes over nobody's"


def test_while_others_wait_for_artifacts_only_what_takes_twice_as_long_is_copied(work, tmp_path):
    def says(seat: Seat, job: Job) -> tuple[float, Any]:
        return (1.8 if job.arm.is_baseline and job.index == 3 else 1.0), result_of(job)

    nodes, _ = work(says, every=jobs(tmp_path, 4), workers=4)
    assert len(nodes.handed) == 12


def test_what_is_timed_or_is_served_has_no_copy(tmp_path):
    every = jobs(tmp_path, 1)
    copies = Copies()
    for job in every:
        copies.answered(job, 1.0)
    baseline, variant, _ = every
    assert copies.wanted([(baseline, 9.0), (variant, 9.5)]) == [variant, baseline]
    assert copies.wanted([(replace(variant, timed=True), 9.0)]) == []
    served = replace(variant, arm=replace(variant.arm, served=object()))
    assert copies.wanted([(served, 9.0)]) == []
    assert Copies().wanted([(variant, 9.0)]) == [], "nobody knows what its kin take"


def test_workers_on_this_machine_get_no_copies(tmp_path, monkeypatch):
    nodes = Nodes(late((30.0, result_of(variants(tmp_path)[-1]))))
    monkeypatch.setattr(pool, "time", nodes)
    monkeypatch.setattr(pool, "wait", nodes.wait)
    monkeypatch.setattr(pool._Here, "hire", lambda self, count: nodes.hire(count))
    settings = told(tmp_path)
    assert len(list(pool.run_jobs(variants(tmp_path), settings, 3))) == 5
    assert len(nodes.handed) == 5


def test_workers_share_out_among_arms_by_what_waits_of_each_and_stay(tmp_path):
    every = [replace(job, artifact="") for job in jobs(tmp_path, 8) if not job.arm.is_baseline]
    queue, taken = Queue(every), []
    held: dict[str | None, int] = {"a": 0, "b": 0}
    for _ in range(4):
        [job] = queue.take(None, held)
        held[job.arm.name] += 1
        taken.append(job.arm.name)
    assert taken == ["a", "b", "a", "b"]
    assert [queue.take("b", held)[0].arm.name for _ in range(3)] == ["b"] * 3
