"""Which of a batch's cases kills its workers: that one is set apart, and the others of the batch are answered.

Of a batch that has killed as many as it may, a half is run to see whether its worker lives; then a half of the half
that is left under suspicion, until one case is alone, and kills twice: a worker may be lost by chance. What halves
answer is thrown away: the batch is run again without the case, so that its answers, and the artifact that it leaves,
are those of one batch. Where a second search of a batch finds nothing, or the arm's cases kill one after the other, it
is not the case, and the batch is set apart whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from qualgate.records import Job, Prompt

IN_VAIN = 2  # searches of an arm between which nothing of it was answered, or of a job that found nothing
ALONE = 2  # workers that a case kills by itself
MOST = 8  # cases of an arm that are found


@dataclass(frozen=True, slots=True)
class Found:
    """The case that kills, and the job without it."""

    case: Prompt
    rest: Job


@dataclass(slots=True)
class _Search:
    whole: Job
    suspects: tuple[Prompt, ...]
    killed: int = 0  # workers, by the one that is left

    @property
    def half(self) -> Job:
        """The half that comes later: it holds the longest prompts, which memory may not hold. It leaves no artifact of
        the batch."""
        return replace(self.whole, prompts=self.suspects[len(self.suspects) // 2 :], attempt="half")


@dataclass(slots=True)
class Suspects:
    """The searches of a pool."""

    _open: dict[tuple[str, int], _Search] = field(default_factory=dict)  # by arm and index
    _vain: Counter[str] = field(default_factory=Counter)  # by arm: searches since it last answered
    _found: Counter[str] = field(default_factory=Counter)
    _fruitless: Counter[tuple[str, int]] = field(default_factory=Counter)  # by arm and index: searches

    def may_begin(self, job: Job) -> bool:
        """Return whether to search the job for one case. Not in timed turns, whose batches stay whole, nor for servers,
        which cost money."""
        arm = job.arm
        if len(job.prompts) == 1 or job.timed or arm.served is not None:
            return False
        return max(self._vain[arm.name], self._fruitless[_key(job)]) < IN_VAIN and self._found[arm.name] < MOST

    def begin(self, job: Job) -> Job:
        """Start a search and return its first half to run."""
        self._vain[job.arm.name] += 1
        self._open[_key(job)] = search = _Search(job, job.prompts)
        return search.half

    def tries(self, job: Job) -> bool:
        """Whether the job is a half under suspicion, of which only the worker's survival counts."""
        return (search := self._open.get(_key(job))) is not None and job == search.half

    def answered(self, arm: str) -> None:
        """Note that an arm gave an answer."""
        self._vain[arm] = 0

    def lived(self, half: Job) -> Job:
        """Return the next half; or the whole job, if the only suspect kills nobody: the cases do it together, or it
        was chance."""
        search = self._open[_key(half)]
        self.answered(half.arm.name)
        if len(search.suspects) == 1:
            return self.give_up(half)
        search.suspects = search.suspects[: len(search.suspects) // 2]
        return search.half

    def died(self, half: Job) -> Job | Found:
        """Return the next half, or the result once a case alone has killed ALONE workers."""
        search = self._open[_key(half)]
        search.suspects = half.prompts
        case, *other_cases = half.prompts
        search.killed += not other_cases
        if search.killed < ALONE:
            return search.half
        del self._open[_key(half)]
        self._found[half.arm.name] += 1
        other_prompts = tuple(prompt for prompt in search.whole.prompts if prompt != case)
        return Found(case, replace(search.whole, prompts=other_prompts))

    def give_up(self, half: Job) -> Job:
        """Return the job of a search without a result."""
        self._fruitless[_key(half)] += 1
        return self._open.pop(_key(half)).whole


def _key(job: Job) -> tuple[str, int]:
    return job.arm.name, job.index
