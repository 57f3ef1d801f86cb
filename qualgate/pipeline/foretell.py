"""Forecast a run's time and its policy's verdicts before anything is generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qualgate.config import GateFile
from qualgate.errors import Exit
from qualgate.formatting import counted, time_text
from qualgate.gate.decide import rules_before
from qualgate.gate.evidence.quarantine import Held, hold
from qualgate.gate.planning.assumed import Assumed, seen_in
from qualgate.gate.planning.early_stop import UntilSettled, until_settled, until_settled_after
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy, foreseeable, plan_policy
from qualgate.gate.uncounted import uncounted_before
from qualgate.intake.feedback import read_feedback
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.check_adapters import trained_elsewhere
from qualgate.pipeline.check_drafts import (
    drafts_of_another_template,
    drafts_that_cannot_pay,
)
from qualgate.pipeline.forecast import Forecast, Past, forecast
from qualgate.pipeline.judging import judges_of, own_judge
from qualgate.pipeline.memory import MemoryNeed, memory_for, workers_for
from qualgate.pipeline.plan import asked_in_two_sets, make_plan
from qualgate.pipeline.preflight import try_store
from qualgate.pipeline.served_arms import leaves_the_machine, rests_on_lists
from qualgate.pipeline.spending import Foreseen, foresee
from qualgate.pipeline.stored import earlier_evidence
from qualgate.records import Plan, Policy, RunEvidence
from qualgate.store import plain, queries
from qualgate.store.database import Store, open_store
from qualgate.store.runs import RunRecord

QUICK_DRAWS = 2_000  # simulations before a run, which needs one rate and no suggested changes


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
    for line in _notes_before(plan):
        warn(line)
    quarantine = hold(plan.policy, plan.expected, plain.now()[:10])
    earlier = earlier_evidence(gate)
    takes = forecast(plan, workers_for(gate, plan), _earlier_answers(gate, earlier.run_id) if earlier else None)
    sets, full_policy = _sets(plan, quarantine), _rules(plan)
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


def doubts(plan: Plan) -> Iterator[str]:
    """Yield warnings before a run: faults of the quarantine, repeated cases, a policy that hardly ever decides. For a
    run that decides nothing: just that, and where its prompts go."""
    if plan.policy.decides_nothing:
        yield from leaves_the_machine((*plan.arms, *judges_of(plan.policy)))
        yield f"{plan.policy.decides_nothing}: it decides nothing, whatever it shows, and ends with 12 at best"
        return
    quarantine = hold(plan.policy, plan.expected, plain.now()[:10])
    yield from quarantine.faults
    yield from not_counted(plan)
    yield from _notes_before(plan)
    sets = _sets(plan, quarantine)
    policy, _ = foreseeable(sets, _rules(plan))
    if policy is None:
        return
    rates = plan_policy(sets, policy, draws=QUICK_DRAWS, search=False)
    if not rates.decidable:
        yield (
            f"this policy would approve an identical variant in about {rates.approve:.0%} of runs; "
            "`qualgate plan` says what would change that, if anything would"
        )


def _notes_before(plan: Plan) -> Iterator[str]:
    """Yield notes on evalsets, models, drafts and adapters, and on prompts that leave the machine."""
    yield from asked_in_two_sets(plan)
    yield from drafts_that_cannot_pay(plan)
    yield from drafts_of_another_template(plan)
    yield from trained_elsewhere(plan)
    yield from leaves_the_machine((*plan.arms, *judges_of(plan.policy)))
    yield from own_judge(plan.policy, plan.arms)
    yield from rests_on_lists(plan)


def not_counted(plan: Plan) -> Iterator[str]:
    """Yield a warning if no critical rule counts some cases, and the policy does not allow that."""
    if plan.policy.uncounted == "refuse" and (missed := uncounted_before(plan.evalsets, plan.policy)):
        yield f"nothing will be approved: {missed}. If that is meant: `gate: {{uncounted: allow}}`"


def outlook(gate: GateFile, plan: Plan, store: Store, record: RunRecord) -> str:
    """Describe how much of the run is left to generate, and about how long that takes by the run before it."""
    arms, sets = [arm.name for arm in plan.arms if "@" not in arm.name], [item.name for item in plan.evalsets]
    run = queries.latest_run_of(store, arms, sets, before=record.run_id)
    past = Past(run=run, times=queries.answer_times(store, run)) if run else None
    takes = forecast(plan, workers_for(gate, plan), past)
    return left_to_do(len(plan.expected), len(record.done), takes.seconds, takes.run)


def left_to_do(total: int, done: int, seconds: float | None, run: str) -> str:
    """Describe the rest answers. seconds: time of all answers, None if unknown; run: the source of that time."""
    remaining, source = total - done, f"as in run {run}" if run else "guessed from a probe of this machine"
    duration = (
        "time unknown until measured"
        if seconds is None
        else f"about {time_text(seconds * remaining / total)}, {source}"
    )
    return f"planned: {counted(remaining, 'answer')} to generate, {duration}"


def _sets(plan: Plan, quarantine: Held) -> list[PlannedSet]:
    return [PlannedSet.of(item, quarantine.of(item.name), plan.repeats) for item in plan.evalsets]


def _rules(plan: Plan) -> Policy:
    return rules_before(plan.policy, {item.name: item.metrics for item in plan.evalsets})


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
