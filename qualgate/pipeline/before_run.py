"""Notes before a run: what speaks against it, and how much of it is left to generate."""

from __future__ import annotations

from collections.abc import Iterator

from qualgate.config import GateFile
from qualgate.gate.decide import rules_before
from qualgate.gate.evidence.quarantine import Held, hold
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import foreseeable, plan_policy
from qualgate.gate.uncounted import uncounted_before
from qualgate.pipeline.check_adapters import trained_elsewhere
from qualgate.pipeline.check_drafts import drafts_of_another_template, drafts_that_cannot_pay
from qualgate.pipeline.forecast import Past, forecast
from qualgate.pipeline.judging import judges_of, own_judge
from qualgate.pipeline.memory import workers_for
from qualgate.pipeline.named_sets import asked_in_two_sets
from qualgate.pipeline.served_arms import leaves_the_machine, rests_on_lists
from qualgate.records import Plan, Policy
from qualgate.store import plain, queries
from qualgate.store.database import Store
from qualgate.store.runs import RunRecord
from qualgate.text.numbers import counted, time_text

QUICK_DRAWS = 2_000  # simulations before a run, which needs one rate and no suggested changes


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
    yield from notes_before(plan)
    sets = planned_sets(plan, quarantine)
    policy, _ = foreseeable(sets, planned_rules(plan))
    if policy is None:
        return
    rates = plan_policy(sets, policy, draws=QUICK_DRAWS, search=False)
    if not rates.decidable:
        yield (
            f"this policy would approve an identical variant in about {rates.approve:.0%} of runs; "
            "`qualgate plan` says what would change that, if anything would"
        )


def notes_before(plan: Plan) -> Iterator[str]:
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


def planned_sets(plan: Plan, quarantine: Held) -> list[PlannedSet]:
    """Return the evalsets as the planner counts them, without quarantined cases."""
    return [PlannedSet.of(item, quarantine.of(item.name), plan.repeats) for item in plan.evalsets]


def planned_rules(plan: Plan) -> Policy:
    """Return the policy with the rules that its evalsets' metrics can have."""
    return rules_before(plan.policy, {item.name: item.metrics for item in plan.evalsets})
