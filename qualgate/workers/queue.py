"""Waiting jobs, and which is next: the choice takes as long for ten million answers as for ten, so 512 workers do not
wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

from qualgate.records import Job, Prompt

Placed = tuple[int, Job]  # the place in the order of handing out, which no other job has
Lane = tuple[int, str]  # stage, arm


class Queue:
    """A variant's job is ready once the baseline's job of the same index has left its artifact; of what is ready, an
    earlier stage comes first. Timed jobs of one stage are a turn, which one worker takes whole."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """Queue the jobs in order; variants' jobs wait for the baseline's job of the same index."""
        self._baseline_open = {job.index for job in jobs if job.arm.is_baseline}
        self._ready: dict[Lane, list[Placed]] = {}  # heaps, none of them empty
        self._behind: dict[int, list[Placed]] = {}  # the baseline's job of that index
        self._examples: dict[Lane, Job] = {}
        self._before = count(-1, -1)  # places before all others
        self._after = count(len(jobs))
        for place, job in enumerate(jobs):
            self._put(place, job)

    def __bool__(self) -> bool:
        return bool(self._ready or self._behind)

    @property
    def has_ready(self) -> bool:
        """Whether anything can be taken now."""
        return bool(self._ready)

    def take(self, loaded: str | None, workers_by_arm: Mapping[str | None, int]) -> list[Job]:
        """Return the next turn in order; or the next ready job: of the loaded arm, else of the baseline or an arm that
        no worker has, else of the one with the fewest workers for its waiting jobs, so that they stay with it. [] if
        nothing is ready. workers_by_arm: how many workers have each arm."""
        if not self._ready:
            return []
        _, job = min(heap[0] for heap in self._ready.values())
        if job.timed:
            turn = [placed for lane in list(self._ready) if lane[0] == job.stage for placed in self._ready.pop(lane)]
            return [job for _, job in sorted(turn)]

        def rank(lane: Lane) -> tuple[int, bool, float, int]:
            (place, job), waiting = self._ready[lane][0], len(self._ready[lane])
            crowd = 0.0 if job.arm.is_baseline else workers_by_arm.get(job.arm.name, 0) / waiting
            return job.stage, job.arm.name != loaded, crowd, place

        lane = min(self._ready, key=rank)
        _, job = heappop(self._ready[lane])
        if not self._ready[lane]:
            del self._ready[lane]
        return [job]

    def keep(self, needed: Callable[[Job], bool]) -> None:
        """Drop jobs that are not needed; one job of each arm and stage decides for all of them."""
        dropped_lanes = {lane for lane, job in self._examples.items() if not needed(job)}
        if dropped_lanes:
            self._drop(lambda job: (job.stage, job.arm.name) in dropped_lanes)
            for lane in dropped_lanes:
                del self._examples[lane]

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Put unfinished jobs before all others."""
        for job in reversed(jobs):
            self._put(next(self._before), job)

    def put_last(self, job: Job) -> None:
        """Put an unfinished job behind all others of its stage."""
        self._put(next(self._after), job)

    def finished(self, job: Job) -> None:
        """Note that a job has left its artifact."""
        if job.arm.is_baseline:
            self._baseline_open.discard(job.index)
            for place, follower in self._behind.pop(job.index, ()):
                self._put(place, follower)

    def blocked_by(self, failed: Job, case: Prompt | None = None) -> list[Job]:
        """Take out the variants' jobs that a failed baseline job leaves without an artifact; for a single case without
        an answer, only their parts with that case."""
        if not failed.arm.is_baseline:
            return []
        waiting = self._drop(lambda job: job.index == failed.index and bool(job.artifact))
        if case is None:
            return waiting
        affected = [(job, [p for p in job.prompts if p.key.question == case.key.question]) for job in waiting]
        remaining = [
            replace(job, prompts=tuple(p for p in job.prompts if p not in blocked)) for job, blocked in affected
        ]
        self.give_back([job for job in remaining if job.prompts])
        return [replace(job, prompts=tuple(blocked)) for job, blocked in affected if blocked]

    def _put(self, place: int, job: Job) -> None:
        """Put a job among the ready ones, or behind the baseline's job whose artifact it needs."""
        lane = job.stage, job.arm.name
        self._examples.setdefault(lane, job)
        if job.timed or job.arm.is_baseline or not job.artifact or job.index not in self._baseline_open:
            heappush(self._ready.setdefault(lane, []), (place, job))
        else:
            self._behind.setdefault(job.index, []).append((place, job))

    def _drop(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        """Drop jobs and return them in order."""
        every = [placed for lane in (*self._ready.values(), *self._behind.values()) for placed in lane]
        self._ready, self._behind = {}, {}
        for place, job in every:
            if not unwanted(job):
                self._put(place, job)
        return [job for _, job in sorted(placed for placed in every if unwanted(placed[1]))]
