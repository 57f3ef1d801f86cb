"""Second copies of late jobs, as MapReduce's backup tasks (Dean and Ghemawat, OSDI 2004): the last straggler of a run
is not awaited alone.

On a cluster, once no job waits any more, an idle engine is handed as well the job that has been out for longest beyond
what its arm's jobs take; the first answer is the job's, and the other is thrown away unread. One copy a job.
What waits for a baseline's artifact is not waiting for an engine, so such a job may be copied before; then it is late
at twice what its arm's jobs take. What is timed has no copy, for the faster of two times is no time of its arm's; nor
what a server answers, for that is paid for. A pool on this machine makes none: its workers share its cores and its
devices.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from qualgate.records import Job


@dataclass(slots=True)
class Copies:
    """How long jobs of an arm take, and which jobs have a second copy."""

    took: dict[str, tuple[float, int]] = field(default_factory=dict)  # arm → s in all, of so many jobs
    made: set[tuple[str, int]] = field(default_factory=set)  # arm and index

    def answered(self, job: Job, seconds: float) -> None:
        """Note that a job came back after so many seconds."""
        before, jobs = self.took.get(job.arm.name, (0.0, 0))
        self.took[job.arm.name] = before + seconds, jobs + 1

    def wanted(self, out: Iterable[tuple[Job, float]], times: float = 1.0) -> list[Job]:
        """Return the jobs to copy, each out for so many seconds: those that are late, the latest first. times: of their
        arm's usual time, beyond which they are late."""
        late = [
            (over, job) for job, seconds in out if self._may(job) and (over := seconds - times * self._usual(job)) > 0
        ]
        return [job for _, job in sorted(late, key=lambda late_job: -late_job[0])]

    def _usual(self, job: Job) -> float:
        """Return the mean seconds of the job's arm, loading included."""
        seconds, jobs = self.took[job.arm.name]
        return seconds / jobs

    def _may(self, job: Job) -> bool:
        """Return whether the job may have a second copy: none if it is timed or served, has one, or its arm's time is
        unknown."""
        never_copied = job.timed or job.arm.served is not None
        return not never_copied and job.arm.name in self.took and (job.arm.name, job.index) not in self.made


def names_of_attempts() -> Iterator[str]:
    """Yield names that no other pool gives: an engine that outlives its coordinator may still write under one of
    its."""
    pool = secrets.token_hex(4)
    return (f"{pool}-{number}" for number in count(1))
