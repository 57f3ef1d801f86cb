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
        """And somebody waits for what it says of it."""
        return not self.beaten and job in self.jobs


@dataclass(frozen=True, slots=True)
class _Broken:
    """The last that a worker says which ends by an error of its own."""

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
        crew, most = _crew(jobs, body, settings, count)
    except InfrastructureError:
        if stop():  # on the way to a cluster
            return
        raise
    alone, attempts = isinstance(crew, _Here), names_of_attempts()
    try:
        while not stop():
            queue.keep(needed)
            if len(workers) < most:
                workers.extend(_hired(crew, most - len(workers), attempts))
            _hand_out_all(workers, queue)
            if not alone:
                may = lambda job: needed(job) and not suspects.tries(job)  # noqa: E731
                _hand_out_copies(workers, copies, may, PATIENCE if queue else 1.0)
            busy = [worker for worker in workers if worker.jobs]
            awaited = any(needed(job) for one in busy if not one.beaten for job in one.jobs)
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
    """Processes of this machine."""

    body: Body
    settings: WorkerSettings
    on: dict[str, Any] = field(default_factory=dict)  # by GPU, the process that has it

    def hire(self, count: int) -> Iterator[Hired]:
        hire = self._on_gpu if self.settings.gpus else lambda: self._taken() or spawn(self.body, self.settings)
        return (hire() for _ in range(count))

    def _on_gpu(self) -> Hired:
        """With a GPU that nobody alive has."""
        gpu = next(one for one in self.settings.gpus if one not in self.on or self.on[one].exitcode is not None)
        hired = spawn(self.body, self.settings, as_environment(gpu))
        self.on[gpu] = hired[0]
        return hired

    def _taken(self) -> Hired | None:
        waiting = _AHEAD.get()
        if self.body is not serve or not waiting:
            return None
        process, pipe = waiting.pop()
        with contextlib.suppress(OSError):  # it died: the next receive notices
            pipe.send(self.settings)
        return process, pipe

    def close(self) -> None:
        """Nobody else is told."""


def _crew(jobs: Sequence[Job], body: Body, settings: WorkerSettings, count: int) -> tuple[Crew, int]:
    """Who is hired, and how many at most. Served arms are asked from here, where their servers are started, whatever
    the others run on."""
    if settings.place is None or not jobs or any(job.arm.served is not None for job in jobs):
        return _Here(body, settings), min(count, len(jobs))
    most = min(settings.place.most or count, len(jobs))
    return settings.place.crew(body, settings, most), most


def _hired(crew: Crew, count: int, attempts: Iterator[str]) -> Iterator[_Worker]:
    """As many as there is room for; on this machine, where nobody is at another's job, they need no names."""
    for process, pipe in crew.hire(count):
        yield _Worker(process, pipe, attempt="" if isinstance(crew, _Here) else next(attempts))


def _heard(worker: _Worker, deaths: Deaths, settings: WorkerSettings, tell: Callable[[str], None]) -> Heard:
    """What its pipe gives; None where that is no answer yet."""
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
    """The job that it has ended with, and who else is at it: beaten, where there is an answer now."""
    job = next(job for job in worker.jobs if (job.arm.name, job.index) == (outcome.arm, outcome.index))
    took, worker.since = time.monotonic() - worker.since, time.monotonic()
    worker.jobs.remove(job)
    others = [one for one in workers if one.is_at(job)]
    if isinstance(outcome, JobResult):
        _put_in_place(replace(job, attempt=worker.attempt))
        copies.answered(job, took)
        for one in others:
            one.beaten = True
    return job, others


def _put_in_place(job: Job) -> None:
    """The artifact of the attempt that counts: whoever else is at the job writes elsewhere, however late."""
    if job.arm.is_baseline and job.artifact and job.attempt:
        try:
            os.replace(job.left_at, job.artifact)
        except FileNotFoundError:  # who reads it says so
            pass
        except OSError as error:
            raise InfrastructureError(
                f"{job.left_at}: {error.strerror or error}. A node has left it there, for {job.artifact}: see that "
                "the nodes share the folder with this machine. Then run again: it resumes."
            ) from None


def _after_death(
    worker: _Worker, died: Died, queue: Queue, workers: Sequence[_Worker], suspects: Suspects, deaths: Deaths
) -> Iterator[JobFailure]:
    """What it had and nobody else is at is handed out again, but for what has killed MAX_ATTEMPTS."""
    left = [job for job in worker.jobs if worker.is_at(job) and not any(one.is_at(job) for one in workers)]
    if died.times < MAX_ATTEMPTS or not left:
        queue.give_back(left)
        return
    job, *others = left
    queue.give_back(others)
    if suspects.tries(job) and not worker.late:
        found = suspects.died(job)
        if isinstance(found, Found):
            deaths.forget(job)
            said = f"the worker process dies on this case ({died.reason}): {found.case.key.question}"
            yield failure_of(replace(job, prompts=(found.case,)), said)
            yield from without_case(job, found.case, queue)
            found = found.rest
        queue.give_back([found])
    elif worker.late or not suspects.may_begin(job):
        whole = suspects.give_up(job) if suspects.tries(job) else job
        yield from set_apart(whole, f"died {died.times} times on this job ({died.reason})", queue)
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
    """What is told of it, and of those that wait for it."""
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
    job, others = _taken(worker, outcome, workers, copies)
    suspects.answered(job.arm.name)
    if isinstance(outcome, JobResult):
        queue.finished(job)
        yield outcome
    elif not others:  # who may do better
        yield outcome
        yield from orphans(job, outcome, queue)


def _end_late(workers: Sequence[_Worker], seconds: float) -> None:
    """Kill those that have given no answer for so long: what they had is handed out again."""
    for worker in workers:
        if time.monotonic() - worker.since > seconds and not worker.late:
            worker.late = True
            worker.process.kill()


def _dismiss(workers: Sequence[_Worker]) -> None:
    """Those at work are killed; the others end when their pipe closes."""
    for worker in workers:
        worker.pipe.close()
        if worker.jobs:
            worker.process.kill()
    for worker in workers:
        worker.process.join()


def spawn(body: Body, settings: WorkerSettings | None, environment: Mapping[str, str] | None = None) -> Hired:
    """A process of this machine that runs `body`, and the pipe to it; it ends with the process that calls this.
    settings: None where they are sent later; environment: beside this process's own."""
    context = multiprocessing.get_context(START)
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(body, theirs, settings), daemon=True)
    with _ctrl_c_ignored(), _beside(environment or {}):
        process.start()
    theirs.close()
    return process, ours


@contextlib.contextmanager
def hired_ahead() -> Iterator[None]:
    """One worker starts now and imports the engine, which takes as long as a plan does; the first pool that wants one
    on this machine takes it. Nobody's ends here. Where one waits already, no other is started."""
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
    """In the worker: it ends at once with the coordinator, in the middle of a job too. None: hired ahead, its settings
    come when they are known."""
    coordinator = multiprocessing.parent_process()
    assert coordinator is not None, "it was spawned"

    def end_with_it() -> None:
        coordinator.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
    try:
        body(pipe, settings or told_late(pipe))
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(_Broken(one_line(error)))
        raise


@contextlib.contextmanager
def _beside(environment: Mapping[str, str]) -> Iterator[None]:
    """A process inherits it, before it imports anything."""
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
    """A process inherits it: Ctrl-C before `serve` is reached would print a traceback from every worker."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _hand_out_all(workers: Sequence[_Worker], queue: Queue) -> None:
    """A job, or a turn, to each that has none."""
    held = Counter(worker.arm for worker in workers)
    for worker in workers:
        if not worker.jobs:
            _hand_out(worker, queue, held)


def _hand_out(worker: _Worker, queue: Queue, held: Counter[str | None]) -> None:
    """held: how many workers have each arm in memory; this one's new one is counted too."""
    jobs = queue.take(worker.arm, held)
    if not jobs:
        return
    _give(worker, jobs)
    held[worker.arm] += 1


def _hand_out_copies(workers: Sequence[_Worker], copies: Copies, may: Callable[[Job], bool], times: float) -> None:
    """To idle workers, of what others are at, and at for so many times as long as its kin take."""
    idle = [worker for worker in workers if not worker.jobs]
    if not idle:
        return
    now = time.monotonic()
    out = [(job, now - one.since) for one in workers if not one.beaten for job in one.jobs if may(job)]
    for job in copies.wanted(out, times)[: len(idle)]:
        worker = min(idle, key=lambda one: (one.arm != job.arm.name, one.arm is None))
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
    """How a process that was waited for did."""
    code = process.exitcode or 0
    if isinstance(code, str):  # one elsewhere, of which it is told
        return code
    return f"signal {-code}" if code < 0 else f"exit code {code}"
