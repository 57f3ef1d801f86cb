"""The deaths of a pool's workers, and whether there is any sense in starting another."""

from __future__ import annotations

from dataclasses import dataclass, field

from qualgate.errors import InfrastructureError
from qualgate.records import Job

MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Died:
    """A worker that has: why, and how many have on the job that it was at; 0 if it never took one."""

    reason: str
    times: int


@dataclass(slots=True)
class Deaths:
    """Of a pool's workers."""

    of_job: dict[tuple[str, int], int] = field(default_factory=dict)
    unready: int = 0  # in a row, none of which took a job
    answered: bool = False  # any job was

    def unready_one(self, reason: str) -> None:
        """Note one that never took a job. InfrastructureError where the next would not either."""
        self.unready += 1
        if self.unready >= MAX_ATTEMPTS:
            raise InfrastructureError(
                f"no worker starts: {self.unready} in a row ended before they took a job ({reason}). What they "
                "said is above; `qualgate doctor` shows what this machine lacks. Then run again: it resumes."
            )

    def on(self, job: Job, reason: str) -> int:
        """How many have died on this job, with the one that just has. InfrastructureError where the next would die as
        well: nothing was ever answered, and a second job kills as the first."""
        key = (job.arm.name, job.index)
        died = self.of_job[key] = self.of_job.get(key, 0) + 1
        if died == MAX_ATTEMPTS and not self.answered and sum(n >= MAX_ATTEMPTS for n in self.of_job.values()) > 1:
            raise InfrastructureError(
                f"no worker has answered anything: each of two jobs killed {MAX_ATTEMPTS} of them, the last "
                f"{key[0]}'s job {key[1]} ({reason}). Signal 9 is mostly memory that ran out: `qualgate plan` tells "
                "what is needed, `workers: {count: 1}` needs least. Then run again: it resumes."
            )
        return died

    def forget(self, job: Job) -> None:
        """It is another by now: without the case that killed."""
        self.of_job.pop((job.arm.name, job.index), None)
