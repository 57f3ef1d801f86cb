"""Answers that came by streams which later proved wrong: they are taken back, and asked again whole.

A stream that loses, doubles or mixes text is seen in a sample of answers (`served.forms`). The arm's other streamed
answers may have the same fault unseen, so none of them is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from qualgate.errors import IntegrityError
from qualgate.pipeline.early_stop import Settling
from qualgate.records import NOISE, Job, JobFailure, JobResult, Plan, UnitKey
from qualgate.served.forms import proves_streams_wrong
from qualgate.store import queries, runs
from qualgate.store.database import Store
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

Running = Callable[[Sequence[Job]], Iterator[JobResult | JobFailure]]


class Streams:
    """Streamed answers of one run without token ids, which would prove them. The A/A arm shares the baseline's server,
    and its streams."""

    def __init__(self, plan: Plan, record: runs.RunRecord, store: Store) -> None:
        """Begin with the stored answers of a resumed run."""
        self._store, self._run_id, self._jobs = store, record.run_id, plan.jobs
        read_on = {job.arm.name for job in plan.jobs if job.artifact}  # by token ids
        self._arms = {arm.name for arm in plan.arms if arm.served and arm.served.stream and arm.name not in read_on}
        stored = queries.run_summary(store, record.run_id).arms if self._arms and record.done else ()
        reasons = {arm.name: arm.footprint.generation.asked_whole for arm in stored if arm.footprint}
        self._why = {_server(name): why for name, why in reasons.items() if proves_streams_wrong(why)}
        self._streamed, self._void = dict[str, set[UnitKey]](), set[UnitKey]()
        self._note(key for key in record.done if key.arm in self._arms and _server(key.arm) not in self._why)

    def and_again(self, jobs: Sequence[Job], run: Running) -> Iterator[JobResult | JobFailure]:
        """Run jobs and yield their outcomes, then those of the answers that were taken back meanwhile. Answers are
        requested whole of arms whose streams are known to be wrong."""
        ended, unpaid = set[tuple[str, ...]](), False  # ended: servers whose limit lasts too long
        while jobs and not unpaid:
            reasons = [self._why.get(_server(job.arm.name), "") for job in jobs]
            whole = [replace(job, arm=job.arm.asked_whole(why)) for job, why in zip(jobs, reasons, strict=True)]
            arms = {job.arm.name: job.arm for job in jobs}
            for outcome in run(whole):
                if isinstance(outcome, JobFailure):
                    unpaid |= outcome.unpaid
                    ended |= {arms[outcome.arm].limited_as} if outcome.limited else set()
                yield outcome
            jobs = [job for job in self._again() if job.arm.limited_as not in ended]

    def take_back(self, result: JobResult, settling: Settling, warn: Callable[[str], None]) -> set[UnitKey]:
        """Take back the answers that a result shows to be unproven, and return their keys: those stored before, or its
        own if the worker that it came from does not know yet.

        Raises IntegrityError if a verdict was already settled on such answers.
        """
        name, why = _server(result.arm), result.generation.asked_whole
        streamed = [completion.key for completion in result.completions if not completion.token_ids]
        if result.arm not in self._arms:
            return set()
        if name in self._why:
            void = set() if why else set(streamed)  # its worker asks whole already, for whatever reason
        elif proves_streams_wrong(why):
            self._why[name], void = why, self._streamed.pop(name, set())
        else:
            self._note(streamed)
            return set()
        is_first, error = not self._void, f"it was streamed, and {self._why[name]}"
        for arm in sorted({key.arm for key in void}):
            keys = tuple(sorted(key for key in void if key.arm == arm))
            if is_first:
                warn(visible_line(f"{arm}: {counted(len(keys), 'answer')} asked again whole: {error}"))
            failure = JobFailure(index=result.index, arm=arm, keys=keys, error=error, void=True)
            runs.record_failure(self._store, self._run_id, failure)
        if void and settling.stopped and (name == "baseline" or name in settling.stopped):
            # They are void in the store by now, so a resumed run cannot end on them either.
            raise IntegrityError(
                f"{result.arm}: {self._why[name]}. The verdict of {', '.join(sorted(settling.stopped))} was settled "
                "early on such answers. Write `stream: false` beside `endpoint`, and begin a new run in another store."
            )
        settling.taken_back(void)
        self._void |= void
        return void

    def _again(self) -> list[Job]:
        """Return the parts of the jobs that are to be asked again, each once."""
        void, self._void = self._void, set()
        parts = [job.without([prompt.key for prompt in job.prompts if prompt.key not in void]) for job in self._jobs]
        return [job for job in parts if job.prompts]

    def _note(self, keys: Iterable[UnitKey]) -> None:
        for key in keys:
            self._streamed.setdefault(_server(key.arm), set()).add(key)


def _server(arm: str) -> str:
    """Return the arm whose server answers."""
    return arm.removesuffix(NOISE)
