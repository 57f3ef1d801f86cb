"""Forecast a run's time and its policy's verdicts before anything is generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qualgate.config import GateFile
from qualgate.errors import Exit
from qualgate.gate.evidence.quarantine import Held, hold
from qualgate.gate.planning.assumed import Assumed, seen_in
from qualgate.gate.planning.early_stop import UntilSettled, until_settled, until_settled_after
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy, foreseeable, plan_policy
from qualgate.gate.uncounted import uncounted_before
from qualgate.intake.feedback import read_feedback
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.before_run import notes_before, planned_rules, planned_sets
from qualgate.pipeline.forecast import Forecast, Past, forecast
from qualgate.pipeline.memory import MemoryNeed, memory_for, workers_for
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.preflight import try_store
from qualgate.pipeline.spending import Foreseen, foresee
from qualgate.pipeline.stored import earlier_evidence
from qualgate.records import Plan, Policy, RunEvidence
from qualgate.store import plain, queries
from qualgate.store.database import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """Forecast of a run: its plan, cost, and chance of a decision."""

    plan: Plan
    workers: int
    takes: Forecast
    memory: MemoryNeed
    spending: Foreseen
    quarantine: Held
    rates: PlannedPolicy | None  # None: no outcome of the policy can be forecast
    early: UntilSettled | None  # with `stop: early`
    after: Mapping[int, UntilSettled] = field(default_factory=dict)  # by position of the change in `rates.changes`
    unforeseen: tuple[str, ...]  # rules and four-arm steps whose outcome cannot be forecast
    uncounted: str = ""  # cases that no critical rule counts, so that nothing will be approved; "" = none
    gated: bool  # whether any rule is critical; an nel policy may gate nothing

    @property
    def exit(self) -> Exit:
        """0 if an identical variant would be approved often enough, 12 if a change would help, 64 if none would."""
        if self.rates is None:
            return Exit.UNDECIDED if self.quarantine.faults or self.uncounted or not self.gated else Exit.APPROVE
        if self.rates.refused:
            return Exit.USAGE
        fit = self.rates.decidable and not self.quarantine.faults and not self.uncounted
        decidable = fit and (self.early is None or self.early.decidable)
        return Exit.APPROVE if decidable else Exit.UNDECIDED


def foretell(
    gate: GateFile,
    *,
    blame: bool = False,
    warn: Callable[[str], None] = lambda line: None,
) -> Foretold:
    """Forecast what `run_gate` would do with the same arguments: time, cost, and the chance of a decision.

    It learns from the gate file's newest run in the store, if any. Raises UsageError as a run does.
    """
    if gate.feedback:  # refuse the faults that a run would refuse
        read_feedback(gate.feedback)
    try_store(gate)
    plan = make_plan(as_run(gate, blame=blame), tell=warn)
    for line in notes_before(plan):
        warn(line)
    quarantine = hold(plan.policy, plan.expected, plain.now()[:10])
    earlier = earlier_evidence(gate)
    takes = forecast(plan, workers_for(gate, plan), _earlier_answers(gate, earlier.run_id) if earlier else None)
    sets, full_policy = planned_sets(plan, quarantine), planned_rules(plan)
    policy, unforeseen = foreseeable(sets, full_policy)
    assumed = seen_in(earlier, plan.repeats) if earlier else None
    rates = None if policy is None else plan_policy(sets, policy, assumed, earlier=earlier)
    if rates is not None and gate.nel_policy is not None:  # its rules are in no gate file, so they cannot be edited
        changes = tuple(change for change in rates.changes if change.kind in ("more cases", "repeats"))
        rates = replace(rates, changes=changes)
    early, after = None, {}
    if policy is not None and rates is not None and policy.stop is not None and all(planned.cases for planned in sets):
        early, after = _with_looks(sets, policy, rates, assumed, earlier)
    if rates is not None:
        unforeseen = (*unforeseen, *(f"{rule.name}: {rule.note}" for rule in rates.rules if rule.approve is None))
    if plan.policy.chooses:
        unforeseen = (*unforeseen, "parity, service level and value of the four arms")
    return Foretold(
        plan=plan,
        workers=workers_for(gate, plan),
        takes=takes,
        memory=memory_for(gate, plan),
        spending=foresee(gate, plan, earlier.run_id if earlier else ""),
        quarantine=quarantine,
        rates=rates,
        early=early,
        after=after,
        unforeseen=unforeseen,
        uncounted="" if plan.policy.uncounted == "allow" else uncounted_before(plan.evalsets, plan.policy),
        gated=any(rule.tier == "critical" for rule in full_policy.rules),
    )


def _with_looks(
    sets: Sequence[PlannedSet],
    policy: Policy,
    rates: PlannedPolicy,
    assumed: Assumed | None,
    earlier: RunEvidence | None,
) -> tuple[UntilSettled, dict[int, UntilSettled]]:
    """Return the rates with `stop: early`: for the policy as it is, and after each change."""
    early = until_settled(sets, policy, assumed, earlier=earlier)
    return early, {
        number: until_settled_after(change, assumed, earlier=earlier) for number, change in enumerate(rates.changes)
    }


def _earlier_answers(gate: GateFile, run_id: str) -> Past:
    with open_store(gate.store_url, create=False) as store:
        return Past(run=run_id, times=queries.answer_times(store, run_id))
