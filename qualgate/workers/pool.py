"""A pool of spawned worker processes, on this machine or on the nodes of a Ray cluster (`ray_pool`).

Promise: every unit ends in exactly one JobResult or JobFailure. Jobs are handed out one by one, those of a timed turn
together, for their answers to be given side by side. A worker that dies takes nothing with it: its job
goes back to the queue, and after MAX_ATTEMPTS deaths the case that kills is looked for and set apart (`suspects`), or
all of them are, by a JobFailure that names them. One that gives no answer for too long is ended. Of late jobs a
cluster's idle workers are given a second copy (`copies`). Where no worker lives to take a job, or none has ever
answered and a second job kills them too, the pool ends (`deaths`). Stopping loses no finished job, and workers end with
the coordinator, however that ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from qualgate.engine.gpus import as_environment
from qualgate.errors import InfrastructureError, IntegrityError, UsageError, one_line
from qualgate.records import Job, JobFailure, JobResult
from qualgate.workers.copies import Copies, names_of_attempts
from qualgate.workers.deaths import MAX_ATTEMPTS, Deaths, Died, failure_of, orphans, set_apart, without_case
from qualgate.workers.queue import Queue
from qualgate.workers.suspects import Found, Suspects
from qualgate.workers.unit import READY, STORED, Crew, Hired, Refused, Rest, WorkerSettings, serve, told_late

Body = Callable[[Connection, WorkerSettings], None]
Heard = JobResult | JobFailure | Refused | Died | None
START = "spawn"  # a fresh interpreter: a fork would inherit torch's threads without their locks
_AHEAD: ContextVar[list[Hired]] = ContextVar("hired ahead", default=[])  # noqa: B039  # nobody adds to it
PATIENCE = 2.0  # how many times as long as its kin a job takes that is late while others wait for what it leaves
POLL_SECONDS = 0.2  # how often a stop request is looked for while every worker is busy


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Any
    jobs: list[Job] = field(default_factory=list)  # handed to it and not answered yet
    arm: str | None = None  # the arm it has in memory: the last one, where it keeps several
    since: float = 0.0  # s, monotonic: when it was last handed jobs, or gave an answer
    late: bool = False  # ended for giving none
    ready: bool = False  # it has come so far that it takes jobs
    broken: str = ""  # the error it ended with, where it could still say so
    beaten: bool = False  # another has answered what it is at: its own answer is thrown away
    attempt: str = ""  # the name of its attempts at jobs that others may be at as well

    def is_at(self, job: Job) -> bool:
        """Whether it runs this job and its answer still counts."""
        return not self.beaten and job in self.jobs


@dataclass(frozen=True, slots=True)
class _Broken:
    """The last message of a worker that ends by an error of its own."""

    error: str


def run_jobs(
    jobs: Sequence[Job],
    settings: WorkerSettings,
    count: int,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda line: None,
    body: Body = serve,
    needed: Callable[[Job], bool] = lambda job: True,
) -> Iterator[JobResult | JobFailure]:
    """Run `jobs` on `count` workers; yields each outcome as it arrives and ends early, cleanly, once `stop()` is true.

    body: what a worker process runs; it must be importable by name in a fresh interpreter.
    needed: asked again after each outcome; a job that is not is dropped unless a worker has it, and the run ends once
    none is. tell: a line about a server that is not to be asked for a while.
    Raises UsageError when a worker finds that the user's model cannot be run at all, IntegrityError when an arm is no
    longer what was planned, InfrastructureError when workers die whatever they are given.
    """
    queue = Queue(list(jobs))
    deaths, copies, suspects, workers = Deaths(), Copies(), Suspects(), list[_Worker]()
    try:
        crew, crew_limit = _crew(jobs, body, settings, count)
    except InfrastructureError:
        if stop():  # on the way to a cluster
            return
        raise
    on_this_machine, attempts = isinstance(crew, _Here), names_of_attempts()
    try:
        while not stop():
            queue.keep(needed)
            if len(workers) < crew_limit:
                workers.extend(_hired(crew, crew_limit - len(workers), attempts))
            _hand_out_all(workers, queue)
            if not on_this_machine:
                may = lambda job: needed(job) and not suspects.tries(job)  # noqa: E731
                _hand_out_copies(workers, copies, may, PATIENCE if queue else 1.0)
            busy = [worker for worker in workers if worker.jobs]
            awaited = any(needed(job) for worker in busy if not worker.beaten for job in worker.jobs)
            if (workers and not busy) or not (queue or awaited):  # no workers: none has its place yet
                return
            _end_late(busy, settings.job_seconds)
            for pipe in wait([worker.pipe for worker in busy], timeout=POLL_SECONDS):
                worker = next(worker for worker in busy if worker.pipe is pipe)
                outcome = _heard(worker, deaths, settings, tell)
                if isinstance(outcome, Died):
                    workers.remove(worker)
                    yield from _after_death(worker, outcome, queue, workers, suspects, deaths)
                elif isinstance(outcome, Refused):
                    raise (IntegrityError if outcome.changed else UsageError)(outcome.message)
                elif outcome is not None:
                    yield from _after_answer(worker, outcome, queue, workers, suspects, copies)
    finally:
        _dismiss(workers)
        crew.close()


@dataclass(frozen=True, slots=True)
class _Here:
    """Workers on this machine."""

    body: Body
    settings: WorkerSettings
    on: dict[str, Any] = field(default_factory=dict)  # by GPU, the process that has it

    def hire(self, count: int) -> Iterator[Hired]:
        hire = self._on_gpu if self.settings.gpus else lambda: self._taken() or spawn(self.body, self.settings)
        return (hire() for _ in range(count))

    def _on_gpu(self) -> Hired:
        """Hire with a GPU that no living worker has."""
        gpu = next(free for free in self.settings.gpus if free not in self.on or self.on[free].exitcode is not None)
        hired = spawn(self.body, self.settings, as_environment(gpu))
        self.on[gpu] = hired[0]
        return hired

    def _taken(self) -> Hired | None:
        """Return a process that was started ahead, after sending it the settings; None if there is none."""
        waiting = _AHEAD.get()
        if self.body is not serve or not waiting:
            return None
        process, pipe = waiting.pop()
        with contextlib.suppress(OSError):  # it died: the next receive notices
            pipe.send(self.settings)
        return process, pipe

    def close(self) -> None:
        """Do nothing: there is nobody else to tell."""


def _crew(jobs: Sequence[Job], body: Body, settings: WorkerSettings, count: int) -> tuple[Crew, int]:
    """Return who can be hired, and how many at most.

    Jobs of served arms run on this machine, because their servers are started here.
    """
    if settings.place is None or not jobs or any(job.arm.served is not None for job in jobs):
        return _Here(body, settings), min(count, len(jobs))
    crew_limit = min(settings.place.most or count, len(jobs))
    return settings.place.crew(body, settings, crew_limit), crew_limit


def _hired(crew: Crew, count: int, attempts: Iterator[str]) -> Iterator[_Worker]:
    """Hire as many as there is room for; on this machine no attempt names are needed, because jobs are never copied."""
    for process, pipe in crew.hire(count):
        yield _Worker(process, pipe, attempt="" if isinstance(crew, _Here) else next(attempts))


def _heard(worker: _Worker, deaths: Deaths, settings: WorkerSettings, tell: Callable[[str], None]) -> Heard:
    """Receive from a worker's pipe; None if that is no answer yet."""
    try:
        heard = worker.pipe.recv()
    except (EOFError, OSError):  # OSError: killed in the middle of its answer
        code = _reap(worker)
        late = f"no answer within {settings.job_seconds:g} s: workers.job_timeout" if worker.late else ""
        reason = late or worker.broken or code
        if not worker.ready:
            deaths.unready_one(reason)
        return Died(reason, deaths.on(worker.jobs[0], reason) if worker.ready and not worker.beaten else 0)
    if isinstance(heard, _Broken):
        worker.broken = heard.error
        return None
    if isinstance(heard, Rest):
        worker.since += heard.seconds
        if heard.line:
            tell(heard.line)
        return None
    worker.ready, deaths.unready = True, 0
    deaths.answered |= heard != READY
    if heard != READY and worker.beaten:
        worker.jobs, worker.beaten = [], False
        return None
    return None if heard == READY else heard


def _taken(
    worker: _Worker, outcome: JobResult | JobFailure, workers: Sequence[_Worker], copies: Copies
) -> tuple[Job, list[_Worker]]:
    """Return the job that a worker has finished, and the other workers at it, beaten if there is an answer."""
    job = next(job for job in worker.jobs if (job.arm.name, job.index) == (outcome.arm, outcome.index))
    took, worker.since = time.monotonic() - worker.since, time.monotonic()
    worker.jobs.remove(job)
    other_workers = [other for other in workers if other.is_at(job)]
    if isinstance(outcome, JobResult):
        _put_in_place(replace(job, attempt=worker.attempt))
        copies.answered(job, took)
        for other in other_workers:
            other.beaten = True
    return job, other_workers


def _put_in_place(job: Job) -> None:
    """Put the artifact of the attempt that counts in place: other attempts write elsewhere, however late."""
    if job.arm.is_baseline and job.artifact and job.attempt:
        try:
            os.replace(job.left_at, job.artifact)
        except FileNotFoundError:  # who reads it says so
            pass
        except OSError as error:
            raise InfrastructureError(
                f"{job.left_at}: {error.strerror or error}. A node left it there for {job.artifact}: make sure that "
                "the nodes share the folder with this machine. Then run again: it resumes."
            ) from None


def _after_death(
    worker: _Worker, died: Died, queue: Queue, workers: Sequence[_Worker], suspects: Suspects, deaths: Deaths
) -> Iterator[JobFailure]:
    """Hand out again what the dead worker had alone, except a job that has killed MAX_ATTEMPTS workers."""
    lost_jobs = [job for job in worker.jobs if worker.is_at(job) and not any(other.is_at(job) for other in workers)]
    if died.times < MAX_ATTEMPTS or not lost_jobs:
        queue.give_back(lost_jobs)
        return
    job, *other_jobs = lost_jobs
    queue.give_back(other_jobs)
    if suspects.tries(job) and not worker.late:
        suspect = suspects.died(job)
        if isinstance(suspect, Found):
            deaths.forget(job)
            message = f"the worker process dies on this case ({died.reason}): {suspect.case.key.question}"
            yield failure_of(replace(job, prompts=(suspect.case,)), message)
            yield from without_case(job, suspect.case, queue)
            suspect = suspect.rest
        queue.give_back([suspect])
    elif worker.late or not suspects.may_begin(job):
        whole_job = suspects.give_up(job) if suspects.tries(job) else job
        yield from set_apart(whole_job, f"died {died.times} times on this job ({died.reason})", queue)
    elif died.times == MAX_ATTEMPTS and not deaths.answered and queue.has_ready:  # others show whether it is the job
        queue.put_last(job)
    else:
        queue.give_back([suspects.begin(job)])


def _after_answer(
    worker: _Worker,
    outcome: JobResult | JobFailure,
    queue: Queue,
    workers: Sequence[_Worker],
    suspects: Suspects,
    copies: Copies,
) -> Iterator[JobResult | JobFailure]:
    """Yield the outcome of a job, and of those that wait for it."""
    if outcome.part:
        worker.since, worker.jobs = time.monotonic(), [job.without(outcome.keys) for job in worker.jobs]
        yield outcome
        with contextlib.suppress(OSError):  # it died meanwhile: the next receive notices
            worker.pipe.send(STORED)
        return
    tried = next((job for job in worker.jobs if suspects.tries(job)), None)
    if tried is not None:
        worker.jobs.remove(tried)
        queue.give_back([suspects.lived(tried)])
        return
    job, other_workers = _taken(worker, outcome, workers, copies)
    suspects.answered(job.arm.name)
    if isinstance(outcome, JobFailure) and outcome.limited:
        queue.keep(lambda other: other.arm.limited_as != job.arm.limited_as)
    if isinstance(outcome, JobResult):
        queue.finished(job)
        yield outcome
    elif not other_workers:  # who may do better
        yield outcome
        yield from orphans(job, outcome, queue)


def _end_late(workers: Sequence[_Worker], seconds: float) -> None:
    """Kill workers without an answer for too long: their jobs are handed out again."""
    for worker in workers:
        if time.monotonic() - worker.since > seconds and not worker.late:
            worker.late = True
            worker.process.kill()


def _dismiss(workers: Sequence[_Worker]) -> None:
    """Kill workers at work; the others end when their pipe closes."""
    for worker in workers:
        worker.pipe.close()
        if worker.jobs:
            worker.process.kill()
    for worker in workers:
        worker.process.join()


def spawn(body: Body, settings: WorkerSettings | None, environment: Mapping[str, str] | None = None) -> Hired:
    """Start a process on this machine that runs `body`, with a pipe to it; it ends with its parent. settings: None if
    they are sent later; environment: added to this process's own."""
    context = multiprocessing.get_context(START)
    own_end, worker_end = context.Pipe()
    process = context.Process(target=_begin, args=(body, worker_end, settings), daemon=True)
    with _ctrl_c_ignored(), _beside(environment or {}):
        process.start()
    worker_end.close()
    return process, own_end


@contextlib.contextmanager
def hired_ahead() -> Iterator[None]:
    """Start one worker now, which imports the engine while the plan is made; the first local pool takes it. Only one
    waits."""
    if _AHEAD.get():
        yield
        return
    waiting = [spawn(serve, None)]
    token = _AHEAD.set(waiting)
    try:
        yield
    finally:
        _AHEAD.reset(token)
        for process, pipe in waiting:
            process.kill()
            process.join()
            pipe.close()


def _begin(body: Body, pipe: Connection, settings: WorkerSettings | None) -> None:
    """Run in the worker: it ends at once with the coordinator, even during a job. settings: None for a worker hired
    ahead."""
    coordinator = multiprocessing.parent_process()
    assert coordinator is not None, "it was spawned"

    def end_with_it() -> None:
        coordinator.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
    try:
        body(pipe, settings or told_late(pipe))
    except Exception as error:
        with contextlib.suppress(OSError):  # the pool has closed its end
            pipe.send(_Broken(one_line(error)))
        raise


@contextlib.contextmanager
def _beside(environment: Mapping[str, str]) -> Iterator[None]:
    """Set variables that a child process inherits before it imports anything."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C in child processes: before `serve` it would print a traceback from every worker."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _hand_out_all(workers: Sequence[_Worker], queue: Queue) -> None:
    """Give a job, or a turn, to each idle worker."""
    workers_by_arm = Counter(worker.arm for worker in workers)
    for worker in workers:
        if not worker.jobs:
            _hand_out(worker, queue, workers_by_arm)


def _hand_out(worker: _Worker, queue: Queue, workers_by_arm: Counter[str | None]) -> None:
    """Give a worker its next job. workers_by_arm: how many have each arm in memory; this one's new arm is counted
    too."""
    jobs = queue.take(worker.arm, workers_by_arm)
    if not jobs:
        return
    _give(worker, jobs)
    workers_by_arm[worker.arm] += 1


def _hand_out_copies(workers: Sequence[_Worker], copies: Copies, may: Callable[[Job], bool], times: float) -> None:
    """Give idle workers copies of jobs that have been out for `times` as long as their arm's jobs take."""
    idle = [worker for worker in workers if not worker.jobs]
    if not idle:
        return
    now = time.monotonic()
    running = [(job, now - busy.since) for busy in workers if not busy.beaten for job in busy.jobs if may(job)]
    for job in copies.wanted(running, times)[: len(idle)]:
        worker = min(idle, key=lambda candidate: (candidate.arm != job.arm.name, candidate.arm is None))
        idle.remove(worker)
        copies.made.add((job.arm.name, job.index))
        _give(worker, [job])


def _give(worker: _Worker, jobs: list[Job]) -> None:
    worker.jobs, worker.arm, worker.since = jobs, jobs[-1].arm.name, time.monotonic()
    with contextlib.suppress(OSError):  # it died while idle: the next receive notices, and they are handed out again
        worker.pipe.send(tuple(replace(job, attempt=job.attempt or worker.attempt) for job in jobs))


def _reap(worker: _Worker) -> str:
    worker.pipe.close()
    worker.process.join()
    return ended(worker.process)


def ended(process: Any) -> str:
    """Return how a finished process ended."""
    code = process.exitcode or 0
    if isinstance(code, str):  # one elsewhere, of which it is told
        return code
    return f"signal {-code}" if code < 0 else f"exit code {code}"
