"""The forecast of a run's time and of its policy's verdicts, before anything is generated."""

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

QUICK_DRAWS = 2_000  # before a run: one word is wanted, and no change of the policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """A run that was not made, and what is known of it."""

    plan: Plan
    workers: int
    takes: Forecast
    memory: MemoryNeed
    spending: Foreseen
    held: Held
    rates: PlannedPolicy | None  # None: nothing of the policy can be foreseen
    early: UntilSettled | None  # with `stop: early`
    after: Mapping[int, UntilSettled] = field(default_factory=dict)  # by the number of the change in `rates.changes`
    unforeseen: tuple[str, ...]  # rules whose outcome no plan can tell, and steps of four arms
    uncounted: str = ""  # cases that no critical rule counts, so that nothing will be approved; "" = none
    gated: bool  # is any rule critical? An nel policy may gate nothing

    @property
    def exit(self) -> Exit:
        """0 where an identical variant would be approved often enough, 12 where a change would do, 64 where none."""
        if self.rates is None:
            return Exit.UNDECIDED if self.held.faults or self.uncounted or not self.gated else Exit.APPROVE
        if self.rates.refused:
            return Exit.USAGE
        fit = self.rates.decidable and not self.held.faults and not self.uncounted
        decidable = fit and (self.early is None or self.early.decidable)
        return Exit.APPROVE if decidable else Exit.UNDECIDED


def foretell(
    gate: GateFile,
    *,
    blame: bool = False,
    four_arm: bool = False,
    warn: Callable[[str], None] = lambda line: None,
) -> Foretold:
    """What `run_gate` would do with the same arguments, for how long and how much, and how surely it would decide.

    What the newest run of the gate file found, if its store holds one, is learnt from. UsageError as of a run.
    """
    if gate.feedback:  # a run refuses what is wrong with it, and so must what foretells the run
        read_feedback(gate.feedback)
    try_store(gate)
    plan = make_plan(as_run(gate, blame=blame, four_arm=four_arm), tell=warn)
    for line in _told_before(plan):
        warn(line)
    held = hold(plan.policy, plan.expected, plain.now()[:10])
    earlier = earlier_evidence(gate)
    takes = forecast(plan, workers_for(gate, plan), _earlier_answers(gate, earlier.run_id) if earlier else None)
    sets, asked = _sets(plan, held), _rules(plan)
    policy, unforeseen = foreseeable(sets, asked)
    assumed = seen_in(earlier, plan.repeats) if earlier else None
    rates = None if policy is None else plan_policy(sets, policy, assumed, earlier=earlier)
    if rates is not None and gate.nel_policy is not None:  # its rules stand in no gate file, so none can be edited
        changes = tuple(change for change in rates.changes if change.kind in ("more cases", "repeats"))
        rates = replace(rates, changes=changes)
    early, after = None, {}
    if policy is not None and rates is not None and policy.stop is not None and all(one.cases for one in sets):
        early, after = _with_looks(sets, policy, rates, assumed, earlier)
    if rates is not None:
        unforeseen = (*unforeseen, *(f"{rule.name}: {rule.note}" for rule in rates.rules if rule.approve is None))
    if plan.policy.four_arm is not None:
        unforeseen = (*unforeseen, "parity, service level and value of the four arms")
    return Foretold(
        plan=plan,
        workers=workers_for(gate, plan),
        takes=takes,
        memory=memory_for(gate, plan),
        spending=foresee(gate, plan, earlier.run_id if earlier else ""),
        held=held,
        rates=rates,
        early=early,
        after=after,
        unforeseen=unforeseen,
        uncounted="" if plan.policy.uncounted == "allow" else uncounted_before(plan.evalsets, plan.policy),
        gated=any(rule.tier == "critical" for rule in asked.rules),
    )


def doubts(plan: Plan) -> Iterator[str]:
    """Before a run, one line each: what is wrong with a quarantine, cases asked twice, a policy that hardly decides.
    Of a trial, that it decides nothing, and where its prompts go."""
    if plan.policy.trial is not None:
        yield from leaves_the_machine((*plan.arms, *judges_of(plan.policy)))
        yield f"{plan.policy.trial.said}: it decides nothing, whatever it shows, and ends with 12 at best"
        return
    held = hold(plan.policy, plan.expected, plain.now()[:10])
    yield from held.faults
    yield from not_counted(plan)
    yield from _told_before(plan)
    sets = _sets(plan, held)
    policy, _ = foreseeable(sets, _rules(plan))
    if policy is None:
        return
    rates = plan_policy(sets, policy, draws=QUICK_DRAWS, search=False)
    if not rates.decidable:
        yield (
            f"this policy would approve an identical variant in about {rates.approve:.0%} of runs; "
            "`qualgate plan` says what would change that, if anything would"
        )


def _told_before(plan: Plan) -> Iterator[str]:
    """What sets ask, what models, drafts and adapters say of themselves, and which prompts leave the machine."""
    yield from asked_in_two_sets(plan)
    yield from drafts_that_cannot_pay(plan)
    yield from drafts_of_another_template(plan)
    yield from trained_elsewhere(plan)
    yield from leaves_the_machine((*plan.arms, *judges_of(plan.policy)))
    yield from own_judge(plan.policy, plan.arms)
    yield from rests_on_lists(plan)


def not_counted(plan: Plan) -> Iterator[str]:
    """Cases that no critical rule counts, where the policy does not allow them."""
    if plan.policy.uncounted == "refuse" and (missed := uncounted_before(plan.evalsets, plan.policy)):
        yield f"nothing will be approved: {missed}. If that is meant: `gate: {{uncounted: allow}}`"


def outlook(gate: GateFile, plan: Plan, store: Store, record: RunRecord) -> str:
    """How much of the run is left to generate, and about how long that takes: as the run before it took."""
    arms, sets = [arm.name for arm in plan.arms if "@" not in arm.name], [item.name for item in plan.evalsets]
    run = queries.latest_run_of(store, arms, sets, before=record.run_id)
    past = Past(run=run, times=queries.answer_times(store, run)) if run else None
    takes = forecast(plan, workers_for(gate, plan), past)
    return left_to_do(len(plan.expected), len(record.done), takes.seconds, takes.run)


def left_to_do(total: int, done: int, seconds: float | None, run: str) -> str:
    """The same in words. seconds: of all answers, None where nobody knows; run: that they are known from."""
    left, source = total - done, f"as in run {run}" if run else "guessed from a probe of this machine"
    told = "unknown until measured" if seconds is None else f"about {time_text(seconds * left / total)}, {source}"
    return f"planned: {counted(left, 'answer')} to generate, {told}"


def _sets(plan: Plan, held: Held) -> list[PlannedSet]:
    return [PlannedSet.of(item, held.of(item.name), plan.repeats) for item in plan.evalsets]


def _rules(plan: Plan) -> Policy:
    return rules_before(plan.policy, {item.name: item.metrics for item in plan.evalsets})


def _with_looks(
    sets: Sequence[PlannedSet],
    policy: Policy,
    rates: PlannedPolicy,
    assumed: Assumed | None,
    earlier: RunEvidence | None,
) -> tuple[UntilSettled, dict[int, UntilSettled]]:
    """The rates with `stop: early`: of the policy as it is, and after each change."""
    early = until_settled(sets, policy, assumed, earlier=earlier)
    return early, {
        number: until_settled_after(one, assumed, earlier=earlier) for number, one in enumerate(rates.changes)
    }


def _earlier_answers(gate: GateFile, run_id: str) -> Past:
    """What that run's answers took: a forecast may learn from it."""
    with open_store(gate.store_url, create=False) as store:
        return Past(run=run_id, times=queries.answer_times(store, run_id))
