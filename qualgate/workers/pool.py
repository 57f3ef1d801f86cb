"""A pool of spawned worker processes on this machine.

Promise: every job ends as exactly one JobResult or JobFailure. A worker that dies takes nothing with it: its job
goes back to the queue, and after MAX_ATTEMPTS deaths becomes a JobFailure. Stopping loses no finished job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from qualgate.errors import UsageError
from qualgate.records import Job, JobFailure, JobResult
from qualgate.workers.unit import Refused, WorkerSettings, serve

MAX_ATTEMPTS = 3
Body = Callable[[Connection, WorkerSettings], None]
START = "spawn"  # a fresh interpreter: a fork would inherit torch's threads without their locks
POLL_SECONDS = 0.2  # how often a stop request is looked for while every worker is busy


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    arm: str | None = None  # the arm it has in memory


@dataclass(slots=True)
class Queue:
    """Jobs that wait. A variant's job is ready once the baseline's job of the same index has left its artifact; of what
    is ready, an earlier stage comes first."""

    waiting: list[Job]
    in_order: bool = False  # the first ready job, whatever a worker has loaded
    baseline_open: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.baseline_open = {job.index for job in self.waiting if job.arm.is_baseline}

    def take(self, loaded: str | None, elsewhere: set[str | None]) -> Job | None:
        """The next ready job: of the arm already in memory, else of an arm no other worker holds, else any."""
        ready = [
            job
            for job in self.waiting
            if job.arm.is_baseline or not job.artifact or job.index not in self.baseline_open
        ]
        if not ready:
            return None
        if self.in_order:
            self.waiting.remove(ready[0])
            return ready[0]
        job = min(
            ready,
            key=lambda job: (
                job.stage,
                job.arm.name != loaded,
                not job.arm.is_baseline and job.arm.name in elsewhere,
            ),
        )
        self.waiting.remove(job)
        return job

    def keep(self, needed: Callable[[Job], bool]) -> None:
        """Drop the jobs that are not needed."""
        self.waiting = [job for job in self.waiting if needed(job)]

    def give_back(self, job: Job) -> None:
        """Put a job that did not end before all others."""
        self.waiting.insert(0, job)

    def finished(self, job: Job) -> None:
        """Note what has left its artifact."""
        if job.arm.is_baseline:
            self.baseline_open.discard(job.index)

    def blocked_by(self, failed: Job) -> list[Job]:
        """Takes out the variants' jobs that a failed baseline job leaves without an artifact."""
        orphans = [job for job in self.waiting if failed.arm.is_baseline and job.index == failed.index and job.artifact]
        self.waiting = [job for job in self.waiting if job not in orphans]
        return orphans


def run_jobs(
    jobs: Sequence[Job],
    settings: WorkerSettings,
    count: int,
    stop: Callable[[], bool] = lambda: False,
    body: Body = serve,
    in_order: bool = False,
    needed: Callable[[Job], bool] = lambda job: True,
) -> Iterator[JobResult | JobFailure]:
    """Run `jobs` on `count` workers; yields each outcome as it arrives and ends early, cleanly, once `stop()` is true.

    body: what a worker process runs; it must be importable by name in a fresh interpreter.
    in_order: hand jobs out as they stand, though workers then load their arms again and again.
    needed: asked again after each outcome; a job that is not is dropped, unless a worker has it already. Once none that
    is under way is needed either, the run ends.
    Raises UsageError when a worker finds that the user's model cannot be run at all.
    """
    queue = Queue(list(jobs), in_order)
    deaths: dict[tuple[str, int], int] = {}
    workers: list[_Worker] = []
    try:
        workers.extend(_spawn(body, settings) for _ in range(min(count, len(jobs))))
        while not stop():
            queue.keep(needed)
            for worker in workers:
                if worker.job is None:
                    _hand_out(worker, queue, workers)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy or not (queue.waiting or any(needed(worker.job) for worker in busy if worker.job)):
                return
            for pipe in wait([worker.pipe for worker in busy], timeout=POLL_SECONDS):
                worker = next(worker for worker in busy if worker.pipe is pipe)
                job = worker.job
                assert job is not None
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):  # OSError: killed in the middle of its answer
                    workers[workers.index(worker)] = _spawn(body, settings)
                    code = _reap(worker)
                    key = (job.arm.name, job.index)
                    deaths[key] = deaths.get(key, 0) + 1
                    if deaths[key] < MAX_ATTEMPTS:
                        queue.give_back(job)
                        continue
                    outcome = _failure(job, f"the worker process died {MAX_ATTEMPTS} times on this job ({code})")
                worker.job = None
                if isinstance(outcome, Refused):
                    raise UsageError(outcome.message)
                if isinstance(outcome, JobFailure):
                    yield outcome
                    for orphan in queue.blocked_by(job):
                        yield _failure(orphan, f"the baseline's job {job.index} failed: {outcome.error}")
                else:
                    queue.finished(job)
                    yield outcome
    finally:
        _dismiss(workers)


def _dismiss(workers: Sequence[_Worker]) -> None:
    """Those at work are killed; the others end when their pipe closes."""
    for worker in workers:
        worker.pipe.close()
        if worker.job is not None:
            worker.process.kill()
    for worker in workers:
        worker.process.join()


def _spawn(body: Body, settings: WorkerSettings) -> _Worker:
    context = multiprocessing.get_context(START)
    ours, theirs = context.Pipe()
    process = context.Process(target=body, args=(theirs, settings), daemon=True)
    with _ctrl_c_ignored():
        process.start()
    theirs.close()
    return _Worker(process, ours)


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


def _hand_out(worker: _Worker, queue: Queue, workers: list[_Worker]) -> None:
    job = queue.take(worker.arm, {other.arm for other in workers if other is not worker})
    if job is None:
        return
    worker.job, worker.arm = job, job.arm.name
    with contextlib.suppress(OSError):  # it died while idle: the next receive notices, and the job is handed out again
        worker.pipe.send(job)


def _reap(worker: _Worker) -> str:
    worker.pipe.close()
    worker.process.join()
    code = worker.process.exitcode or 0
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _failure(job: Job, error: str) -> JobFailure:
    return JobFailure(index=job.index, arm=job.arm.name, keys=tuple(prompt.key for prompt in job.prompts), error=error)
