"""One worker process: it takes jobs, loads their arms if they are not at hand, runs them, and sends each result back.
Where times decide, arms take turns, so all are kept at hand if they fit, and one just loaded is warmed up first.

A worker never opens the store and never decides anything. It ignores Ctrl-C, because the coordinator
decides when to stop, and it ends by itself when the coordinator's end of the pipe closes.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

from qualgate.engine.device import Device
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.peak import with_peak
from qualgate.engine.room import is_short
from qualgate.errors import IntegrityError, QualgateError, UsageError, one_line
from qualgate.records import NOISE, Generation, Job, JobFailure, JobResult, UnitKey
from qualgate.served.faults import BudgetSpent, LimitLasts
from qualgate.served.retries import Pace
from qualgate.workers.deaths import failure_of
from qualgate.workers.stderr import say_above_the_bar

if TYPE_CHECKING:
    from qualgate.served.ledger import Ledger

SHORT = (
    "Memory was short, though passes were made smaller where they could be. What helps: fewer workers (`workers: "
    "{count: 1}`), keys and values in fewer bits (`kv_cache: int8`), a smaller `max_new_tokens`, or more memory; then "
    "run again"
)


Hired = tuple[Any, Any]  # a process and the pipe to it, as `multiprocessing` has them


class Crew(Protocol):
    """Workers that one pool can hire."""

    def hire(self, count: int) -> Iterable[Hired]:
        """Hire up to so many more that have a place by now: the pool asks again while it has fewer. Raises if none will
        have one."""
        ...

    def close(self) -> None:
        """Close after all were let go."""


class Place(Protocol):
    """A place for workers other than this machine."""

    @property
    def most(self) -> int:
        """Number of workers to request, in place of the pool's count; 0: the pool's."""
        ...

    def crew(self, body: Any, settings: WorkerSettings, count: int) -> Crew:
        """Return the crew for a pool of `count` workers that run `body` with these settings."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings shared by every worker of a pool."""

    cache_dir: str  # where packed checkpoints are made and found
    sampling: dict[str, Any]
    threads: int
    device: Device
    gpus: tuple[str, ...] = ()  # see `gpus_of`: each worker sees one of these alone; (): all see what there is
    job_seconds: float = inf  # in which a job is to be answered, with the loading of its arm
    keep: bool = False  # every arm that was loaded, for all fit in memory; else one at a time
    workers: int = 1  # of the pool: they share how many requests a served arm's server may be asked at once
    ledger: Callable[[], Ledger] | None = None  # opens the file that counts requests to servers; None: without any
    place: Place | None = None  # None: workers are processes of this machine


READY = "ready"  # what a worker says first: it has started, and takes jobs
STORED = "stored"  # what it hears when a part of its job is dealt with


@dataclass(frozen=True, slots=True)
class Refused:
    """A mistake in the user's input, or (changed) an arm that is no longer as planned: the run stops with this message
    (exit 64 or 14)."""

    message: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """A job's server rests for so many seconds, in which no answer is expected. line: a message for people, "" for
    none."""

    seconds: float
    line: str


def serve(pipe: Connection, settings: WorkerSettings) -> None:
    """Answer every job that arrives on `pipe`, some at a time, with a JobResult, a JobFailure or a Refused, until it
    closes."""
    prepare()
    arms = _Arms(settings, pipe)
    pipe.send(READY)
    while True:
        try:
            jobs: tuple[Job, ...] = pipe.recv()
        except (EOFError, ConnectionResetError):  # the latter where nobody has read that it is ready
            return
        try:
            for answer in _answers(arms, jobs):
                pipe.send(answer)
        except BrokenPipeError:
            return


def prepare() -> None:
    """Prepare a worker before its first import."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    say_above_the_bar()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    # torch's idle threads would spin for milliseconds after each of its operations, on cores that our kernels want.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def import_engine() -> None:
    """Import what our engine needs to answer, which takes seconds; a plan can be made meanwhile.

    Garbage collection is off during the imports: it would take a fifth of the time, and what libraries make stays.
    """
    gc.disable()
    try:
        for module in ("transformers.modeling_utils", "qualgate.engine.job", "qualgate.engine.load"):
            import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def told_late(pipe: Connection) -> WorkerSettings:
    """Receive the settings of a worker that was hired before they were known, importing the engine meanwhile."""
    prepare()
    import_engine()
    return pipe.recv()


class _Arms:
    """The arms loaded by this process."""

    def __init__(self, settings: WorkerSettings, pipe: Connection) -> None:
        """Prepare a worker. pipe: to the pool, for jobs and results."""
        self._settings, self._pipe, self._sending = settings, pipe, threading.Lock()
        self._sent: set[UnitKey] = set()
        self._whole: dict[str, str] = {}  # why servers are asked for whole answers, by arm
        self._paces: dict[tuple[object, ...], Pace] = {}  # of requests, as learnt so far, by server and model
        self.device: Device = settings.device
        self._loaded: dict[str, LoadedArm] = {}
        self._cold: set[str] = set()
        self._new = True  # nothing was ever loaded
        self._ledger: Any = None

    def answer(self, job: Job) -> JobResult:
        """Answer the job, by its server or by our own engine."""
        if job.arm.served is None:
            return self.weighed(job)
        from qualgate.served.job import run_served

        settings, served = self._settings, job.arm.served
        if settings.ledger is not None and self._ledger is None:
            self._ledger = settings.ledger()
        at_once = max(1, served.concurrency // settings.workers)
        new_pace = Pace(served.requests_per_minute / settings.workers, served.patience)
        pace = self._paces.setdefault((*job.arm.limited_as, served.requests_per_minute), new_pace)
        how = {"pace": pace, "ledger": self._ledger, "hand": self._hand}
        name = job.arm.name.removesuffix(NOISE)
        job = replace(job, arm=job.arm.asked_whole(self._whole.get(name, "")))
        result = run_served(
            job, settings.sampling, at_once, **how, notify=lambda seconds, line: self._send(Rest(seconds, line))
        )
        self._whole[name] = result.generation.asked_whole
        return result

    def _hand(self, part: JobResult | JobFailure) -> None:
        """Send a partial result and wait until it is stored before more is requested: a killed run then loses only
        answers in flight."""
        self._sent.update(part.keys)
        try:
            self._send(part)
            self._pipe.recv()
        except (EOFError, OSError):  # the coordinator has gone
            os._exit(1)

    def _send(self, message: Any) -> None:
        with self._sending:  # parts may be handed on in a thread
            self._pipe.send(message)

    def failure(self, job: Job, error: str) -> JobFailure:
        """Return the failure of the units without a result."""
        return failure_of(job.without(self._sent), error)

    def weighed(self, job: Job, *decoded: Any) -> JobResult:
        """Answer the job by our own engine. decoded: the result of `decoded`, if any."""
        arm = self.ready(job)
        from qualgate.engine.job import run_job

        return run_job(arm, job, *decoded)

    def decoded(self, job: Job) -> Any:
        """Decode a job that comes before the baseline's."""
        arm = self.ready(job)
        from qualgate.engine.job import decode_first

        return decode_first(arm, job)

    def ready(self, job: Job) -> LoadedArm:
        """Return the job's arm, loaded if necessary, and warmed up once before its first timed job."""
        name = job.arm.name
        arm = self._loaded.get(name)
        if arm is None or arm.spec != job.arm:
            arm = None
            self._make_room()
            import_engine()  # not before: answers of servers want none of it
            import torch

            from qualgate.engine.load import load_arm

            settings = self._settings
            torch.set_num_threads(settings.threads)
            arm = load_arm(job.arm, settings.cache_dir, settings.sampling, device=settings.device)
            self._loaded[name] = arm
            gc.freeze()  # to look through libraries and models takes a fifth of a second, from whichever answer is due
            self._cold.add(name)
        if name in self._cold and job.timed:
            from qualgate.engine.job import warm_up

            warm_up(arm, job)
        self._cold.discard(name)
        return arm

    def _make_room(self) -> None:
        """Free loaded arms before the next: two at once would double the memory. Before the first arm no garbage
        collection runs, because it would take as long as loading a small model."""
        if self._new:
            self._new = False
            return
        if not self._settings.keep:
            self._loaded.clear()
        gc.unfreeze()
        gc.collect()


def _answers(arms: _Arms, jobs: Sequence[Job]) -> Iterator[JobResult | JobFailure | Refused]:
    """Answer each job in order; a variant before the baseline decodes first, and is weighed once the artifact is
    there."""
    unread, failed, waiting = {job.index for job in jobs if job.arm.is_baseline}, dict[int, str](), []
    for job in jobs:
        reads = not job.arm.is_baseline and bool(job.artifact)
        if reads and job.index in failed:
            answer = failure_of(job, failed[job.index])
        elif reads and job.index in unread:
            answer = _caught(arms, job, arms.decoded)
            if not isinstance(answer, JobFailure | Refused):
                waiting.append((job, answer))
                continue
        else:
            answer = _caught(arms, job, arms.answer)
        yield answer
        if job.arm.is_baseline:
            unread.discard(job.index)
            if isinstance(answer, JobFailure):
                failed[job.index] = f"the baseline's job {job.index} failed: {answer.error}"
    for job, decoded in waiting:
        if job.index in failed:
            yield failure_of(job, failed[job.index])
        else:
            yield _caught(arms, job, lambda job, decoded=decoded: arms.weighed(job, decoded))


def _caught(arms: _Arms, job: Job, work: Callable[[Job], Any]) -> Any:
    """Run `work` on the job and its arm. Return the result with the peak memory, or what went wrong."""
    try:
        answer, peak = with_peak(lambda: work(job), arms.device)
        if answer is None or job.arm.served is not None:  # what a server holds is not this process's
            return answer
        took = Generation(peak=peak.resident, device_peak=peak.device)
        return replace(answer, generation=answer.generation + took)
    except (UsageError, IntegrityError) as error:
        return Refused(str(error), changed=isinstance(error, IntegrityError))
    except Exception as error:
        if not isinstance(error, QualgateError):
            logging.getLogger(__name__).warning("%s, job %d", job.arm.name, job.index, exc_info=True)
        message = str(error) if isinstance(error, QualgateError) else one_line(error)
        failed = arms.failure(job, f"{message}. {SHORT}" if is_short(error) else message)
        return replace(failed, unpaid=isinstance(error, BudgetSpent), limited=isinstance(error, LimitLasts))
