"""Count the deaths of a pool's workers, and decide whether to start another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from qualgate.errors import InfrastructureError
from qualgate.records import Job, JobFailure, Prompt
from qualgate.workers.queue import Queue

MAX_ATTEMPTS = 3
NAMED = 5  # cases of a job that is set apart


@dataclass(frozen=True, slots=True)
class Died:
    """A dead worker: the reason, and how many have died on its job; 0 if it never took one."""

    reason: str
    times: int


@dataclass(slots=True)
class Deaths:
    """The deaths of a pool's workers."""

    of_job: dict[tuple[str, int], int] = field(default_factory=dict)
    unready: int = 0  # in a row, none of which took a job
    answered: bool = False  # any job was

    def unready_one(self, reason: str) -> None:
        """Note a worker that never took a job. InfrastructureError if the next would not either."""
        self.unready += 1
        if self.unready >= MAX_ATTEMPTS:
            raise InfrastructureError(
                f"no worker starts: {self.unready} in a row ended before they took a job ({reason}). Their output is "
                "above; `qualgate doctor` shows what this machine lacks. Fix it and run again: it resumes."
            )

    def on(self, job: Job, reason: str) -> int:
        """Return how many have died on this job, the last one included. InfrastructureError if another would die as
        well: nothing was ever answered, and a second job kills like the first."""
        key = (job.arm.name, job.index)
        died = self.of_job[key] = self.of_job.get(key, 0) + 1
        if died == MAX_ATTEMPTS and not self.answered and sum(n >= MAX_ATTEMPTS for n in self.of_job.values()) > 1:
            raise InfrastructureError(
                f"no worker has answered anything: each of two jobs killed {MAX_ATTEMPTS} of them, the last {key[0]}'s "
                f"job {key[1]} ({reason}). Signal 9 usually means that memory ran out: `qualgate plan` shows what is "
                "needed, and `workers: {count: 1}` needs least. Then run again: it resumes."
            )
        return died

    def forget(self, job: Job) -> None:
        """Forget the deaths on a job that now lacks the killing case."""
        self.of_job.pop((job.arm.name, job.index), None)


def failure_of(job: Job, error: str) -> JobFailure:
    """Return that none of the job's units could be run."""
    return JobFailure(index=job.index, arm=job.arm.name, keys=tuple(prompt.key for prompt in job.prompts), error=error)


def set_apart(job: Job, death: str, queue: Queue) -> Iterator[JobFailure]:
    """Fail the whole job with a line that names its cases, and the jobs that wait for it."""
    cases = ", ".join(prompt.key.question for prompt in job.prompts[:NAMED])
    remainder = f" and {len(job.prompts) - NAMED} more" if len(job.prompts) > NAMED else ""
    failed = failure_of(job, f"the worker process {death}; its cases: {cases}{remainder}")
    yield failed
    yield from orphans(job, failed, queue)


def orphans(job: Job, failed: JobFailure, queue: Queue) -> Iterator[JobFailure]:
    """Fail what waits for a failed job."""
    for orphan in queue.blocked_by(job):
        yield failure_of(orphan, f"the baseline's job {job.index} failed: {failed.error}")


def without_case(job: Job, case: Prompt, queue: Queue) -> Iterator[JobFailure]:
    """Fail what waits for this one case of the job."""
    for orphan in queue.blocked_by(job, case):
        yield failure_of(orphan, f"the baseline has no answer to {case.key.question}: its worker process dies on it")
