"""Stop variants early during a run: find settled verdicts, and skip jobs that are no longer needed.

When a variant's answers reach a planned look, the store's evidence is judged as `qualgate gate` will judge it. A
settled verdict is recorded before any job is cancelled. A crash in between loses nothing: a resumed run takes the same
looks. Evidence read for one look is kept for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from qualgate.gate.early import first_settled, seeded_order, stages
from qualgate.records import Job, Plan, RunEvidence, UnitKey
from qualgate.store import plain, runs, stoppings
from qualgate.store.database import Store


class Settling:
    """Looks of one run. With a policy that does not stop early every job is needed and there are no looks."""

    def __init__(
        self, plan: Plan, record: runs.RunRecord, store: Store, labels: Mapping[tuple[str, str], tuple[str, ...]]
    ) -> None:
        """Begin the looks of one run, from its plan and what is already stored. labels: (evalset, case) → tasks and
        tags, which a policy may need and the store does not hold."""
        self._plan, self._run_id, self._store, self._labels = plan, record.run_id, store, labels
        self._evidence: RunEvidence | None = None  # as read for the last look
        self._unread: set[UnitKey] = set()  # units stored since then
        self._variants = {arm.name for arm in plan.arms if not arm.is_baseline}
        self.stopped = set(record.stopped)
        self._answered = {arm.name: set[tuple[str, str, int]]() for arm in plan.arms}
        self._looked = dict.fromkeys(self._variants, 0)
        if plan.policy.stop is not None:
            cases = (case for item in plan.evalsets for case in item.cases)
            self._order = seeded_order(cases, plan.policy.stop.seed, plan.repeats)
            self._stages = stages(self._order, plan.policy.stop.looks)
            self.answered(record.done)

    def needed(self, arm: str) -> bool:
        """Whether the arm is still needed; the baseline is needed as long as any variant is."""
        return bool(self._variants - self.stopped) if arm not in self._variants else arm not in self.stopped

    def wants(self, job: Job) -> bool:
        """Whether the job is still needed."""
        return self.needed(job.arm.name)

    def answered(self, keys: Iterable[UnitKey]) -> None:
        """Note answers that are now in the store, and take the looks that they complete."""
        if self._plan.policy.stop is None:
            return
        for key in keys:
            self._answered[key.arm].add((key.evalset, key.case_id, key.repeat))
            self._unread.add(key)
        due_looks = {}
        for variant in sorted(self._variants - self.stopped):
            looks_taken, reached = self._looked[variant], self._looked[variant]
            # The last look has every case, so it could stop nothing.
            while reached < len(self._stages) - 1 and self._has(variant, reached):
                reached += 1
            if reached > looks_taken:
                due_looks[variant], self._looked[variant] = range(looks_taken + 1, reached + 1), reached
        if not due_looks:
            return
        evidence, time = self._read(), plain.now()
        for variant, numbers in due_looks.items():
            settled = first_settled(evidence, self._plan.policy, variant, self._order, numbers, time)
            if settled is not None:
                stoppings.stop(self._store, self._run_id, variant, settled)
                self.stopped.add(variant)

    def taken_back(self, keys: Iterable[UnitKey]) -> None:
        """Note answers that do not count any more: the looks that had them are taken anew."""
        if self._plan.policy.stop is not None:
            for key in keys:
                self._answered[key.arm].discard((key.evalset, key.case_id, key.repeat))
            self._evidence, self._looked = None, dict.fromkeys(self._variants, 0)

    def _read(self) -> RunEvidence:
        """Return the evidence for this look. After the first look only units stored since are read."""
        if self._evidence is None:
            self._evidence = replace(runs.evidence(self._store, self._run_id), labels=self._labels)
        else:
            self._evidence = runs.grown(self._store, self._evidence, self._unread)
        self._unread = set()
        return self._evidence

    def _has(self, variant: str, stage: int) -> bool:
        questions = self._stages[stage]
        return questions <= self._answered[variant] and questions <= self._answered["baseline"]
