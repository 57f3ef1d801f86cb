"""Choose the arm to serve from four on the same cases: baseline, quantization only, speculation only, both.

Each arm passes these steps in order; the first broken step blocks it, else the first open one leaves it undecided:
**drafting** (an arm meant to speculate did, by counts or declaration; else nothing is chosen), **parity** (speculation
gives its own target's answers: speculation only the baseline's, both those of quantization only), **quality**, **SLO**,
**value** (an arm must surely save `min_saving` of the baseline's cost per accepted answer, and both must surely beat
the better single arm). Of the arms that pass, the cheapest is chosen; if costs are indistinguishable, the one with
fewer moving parts. A broken supporting rule or `review: always` asks a person first, as for any variant. Quarantined
cases count in no step; an A/A arm beside the four decides only by a rule on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from numpy.typing import NDArray

from qualgate.errors import Exit, UsageError
from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.ledger import SECONDS, ledger
from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.speculation import speculated
from qualgate.gate.evidence.checks import Examination, examine
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.four_arm.advice import advise, beside_choice, traffic_of
from qualgate.gate.four_arm.arms_evidence import against_itself, against_quantization, only
from qualgate.gate.four_arm.choice import choose, exit_code, reasons_of, simplest_singles, word_of
from qualgate.gate.four_arm.drafting import drafting_steps
from qualgate.gate.four_arm.family import over_the_choice
from qualgate.gate.four_arm.interaction import interaction_of_costs, interactions, with_interaction
from qualgate.gate.four_arm.parity import equal, flat, parity_step, promise_of, scored_alike
from qualgate.gate.four_arm.steps import quality_step, slo_step
from qualgate.gate.four_arm.value import Costs, value_step
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import ONLY_WITHOUT, judge_all, overall_exit, prepare, prepared_for, without
from qualgate.records import (
    ArmEvidence,
    ArmStep,
    FourArm,
    FourArms,
    Interaction,
    Policy,
    RunEvidence,
    UnitEvidence,
    Verdict,
    VerdictWord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Four:
    """Four comparable arms, with the inputs of every step."""

    arms: FourArms
    policy: Policy
    evidence: RunEvidence  # of the four alone
    slices: tuple[Slice, ...]
    verdicts: Mapping[str, Verdict]  # by the rules, on each of the three arms
    examined: Mapping[str, Examination]  # each as the baseline's variant
    against_target: Examination  # both as the variant of quantization only
    units: Mapping[str, list[UnitEvidence]]  # of all four, the baseline first, of the same cases in the same order
    clusters: NDArray  # of the cases
    together: NDArray  # the same, joined with those that share their time
    shared: str  # why these are unknown; "" where they are known

    @property
    def base(self) -> str:
        return self.evidence.baseline.name

    @property
    def names(self) -> tuple[str, str, str]:
        return self.arms.quantization, self.arms.speculation, self.arms.both

    @property
    def order(self) -> tuple[str, ...]:
        return (self.base, *self.names)

    @property
    def arm(self) -> Mapping[str, ArmEvidence]:
        return {arm.name: arm for arm in (self.evidence.baseline, *self.evidence.variants)}

    @property
    def targets(self) -> Mapping[str, str]:
        """Drafting arm → the arm whose answers it must give."""
        return {self.arms.speculation: self.base, self.arms.both: self.arms.quantization}

    def lossy(self, name: str) -> bool:
        """Whether an arm that drafts promises no parity."""
        return promise_of(self.arm[name], self.arm[self.targets[name]], self.arms.parity) == "lossy"


def _arms_named(policy: Policy) -> FourArms:
    """Return the policy's four arms. Raises UsageError for none, and for a saving that no loader would let pass."""
    arms = policy.four_arm
    if arms is None:
        raise UsageError("The policy names no four arms: `four_arm: {quantization: …, speculation: …, both: …}`.")
    if not 0 <= arms.min_saving < 1:
        raise UsageError(f"min_saving is {arms.min_saving:g}; it must be from 0 to below 1.")
    return arms


def decide_four(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """Verdicts on the three arms, in their order; the one on `both` carries the `FourArm` answer. now: see `decide`.

    UsageError: the policy names no four arms, or arms that are not in the run. Evidence that is broken, incomplete or
    mismatched gives the verdicts of `decide_plain`, and no arm is chosen.
    """
    arms = _arms_named(policy)
    names = (arms.quantization, arms.speculation, arms.both)
    again = against_itself(evidence)
    given = only(evidence, names, again)

    prepared = prepared_for(given, policy, now)

    def by_rules(alpha: float) -> dict[str, Verdict]:
        return {verdict.variant: verdict for verdict in judge_all(prepared, replace(policy, alpha=alpha))}

    verdicts = by_rules(policy.alpha)
    # Age limits and quarantine hold for parity, service levels and value, too.
    slices, quarantine, evidence = prepare(only(evidence, names), policy, now)
    examined = {examination.variant: without(examination, quarantine) for examination in examine(evidence)}
    bad = [name for name in names if not examined[name].pairs]
    if bad:
        return _not_compared([verdicts[name] for name in names], bad, policy)
    against_target = next(f for f in examine(against_quantization(evidence, arms)) if f.variant == arms.both)
    against_target = without(against_target, quarantine)
    if not against_target.pairs:
        return _not_compared([verdicts[name] for name in names], [arms.both], policy)
    units = {evidence.baseline.name: [pair.baseline for pair in flat(examined[arms.both].pairs)]}
    units |= {name: [pair.variant for pair in flat(examined[name].pairs)] for name in names}
    clusters = clusters_of(flat(examined[arms.both].pairs))
    together, shared = timed_together(clusters, *units.values())
    four = _Four(
        arms=arms, policy=policy, evidence=evidence, slices=slices, verdicts=verdicts, examined=examined,
        against_target=against_target, units=units, clusters=clusters, together=together, shared=shared,
    )  # fmt: skip
    effects = interactions(slices, four.units, four.order, clusters, policy)
    costs = _costs(four)
    steps, order, cheaper = _over_the_choice(four, effects, costs, by_rules)
    words = {name: word_of(steps[name], verdicts[name], policy) for name in names}
    doubted = _only_without_quarantine(words, evidence, policy, now) if quarantine.cases else {}
    words.update((name, ("review", Exit.REVIEW)) for name in doubted)
    answer = _reply(four, steps, words, effects, costs, choose(four.base, names, steps, order, costs, cheaper=cheaper))
    return tuple(
        replace(
            verdicts[name],
            word=words[name][0],
            exit=int(words[name][1]),
            reasons=(
                *doubted.get(name, ()),
                *reasons_of(steps[name], verdicts[name], policy),
                *([f"four arms: {answer.choice or 'not known yet'}: {answer.why}"] if name == arms.both else []),
                *examined[name].notes,
                *(verdicts[name].reasons[-1:] if again else ()),  # the noise floor, which `decide_plain` says last
            ),
            four_arm=answer if name == arms.both else None,
        )
        for name in names
    )


def _over_the_choice(
    four: _Four, effects: Sequence[Interaction], costs: Costs, by_rules: Callable[[float], dict[str, Verdict]]
) -> tuple[dict[str, list[ArmStep]], tuple[str, str], bool]:
    """Correct the steps for the choice among three arms.

    by_rules: alpha → arm → its verdict by the rules. Returns: (arm → steps; the single arms, the simpler first; whether
    one of them is surely cheaper).
    """
    barred: dict[str, Collection[str]] = {}

    def steps_at(k: int) -> dict[str, list[ArmStep]]:
        alpha = four.policy.alpha / k
        verdicts = four.verdicts if k == 1 else by_rules(alpha)
        stricter = replace(four, policy=replace(four.policy, alpha=alpha), verdicts=verdicts)
        return _steps(stricter, _parity(stricter, effects), costs, barred)

    steps_at = cache(steps_at)
    arms = four.arms
    shared = {arms.both: arms.quantization} if _same_answers_and_scores(four, arms.both) else {}
    order = simplest_singles(four.verdicts[arms.quantization], arms)
    steps, cheaper = over_the_choice(steps_at, shared, order, costs, four.policy.alpha)
    return steps, order, cheaper


def _same_answers_and_scores(four: _Four, name: str) -> bool:
    """Return whether the arm promises its target's answers and every answer and score equals the target's."""
    examination = four.against_target if name == four.arms.both else four.examined[name]
    return not four.lossy(name) and all(equal(pair) and scored_alike(pair) for pair in flat(examination.pairs))


def _parity(four: _Four, effects: Sequence[Interaction]) -> dict[str, ArmStep]:
    """Check the parity of the two drafting arms, each with its own target. effects: interactions of both changes."""
    arms, arm = four.arms, four.arm
    pairs = {arms.speculation: four.examined[arms.speculation].pairs, arms.both: four.against_target.pairs}
    steps = {
        name: parity_step(arm[name], arm[target], pairs[name], four.slices, four.policy)
        for name, target in four.targets.items()
    }
    lossy = any(map(four.lossy, four.targets))
    return {**steps, arms.both: with_interaction(steps[arms.both], effects, arms, lossy=lossy)}


def _costs(four: _Four) -> Costs:
    """Book the costs of all four arms. Cases that share their time are one cluster if cost is timed."""
    terms = terms_of(four.evidence, four.policy, SECONDS)
    return Costs(
        books={name: ledger(name, four.units[name], terms) for name in four.order},
        clusters=four.clusters,
        together=four.together if terms.timed else four.clusters,
        shared=four.shared if terms.timed else "",
    )


def _steps(
    four: _Four, parity: Mapping[str, ArmStep], costs: Costs, barred: dict[str, Collection[str]]
) -> dict[str, list[ArmStep]]:
    """Each arm's steps in order. Quantization only comes first, as `both` may take over its quality.

    barred: arm → singles that are no rivals; filled by the first call, at the policy's own alpha.
    """
    arms, policy = four.arms, four.policy
    steps: dict[str, list[ArmStep]] = {}
    drafting = drafting_steps(four.units, four.base, arms, four.arm)
    for name in four.names:
        same_answers = name in parity and parity[name].status == "proven" and _same_answers_and_scores(four, name)
        broken = {single for single, earlier in steps.items() if any(step.status == "broken" for step in earlier[:-1])}
        excluded = barred.setdefault(name, broken)
        steps[name] = [
            *([drafting[name]] if name in drafting else []),
            *([parity[name]] if name in parity else []),
            quality_step(four.verdicts[name], same_answers, steps.get(arms.quantization, ()), arms),
            slo_step(four.verdicts[name], four.units[name], four.together, four.shared, policy),
            value_step(name, four.base, arms, costs, excluded, policy.alpha),
        ]
    return steps


def _reply(
    four: _Four,
    steps: Mapping[str, list[ArmStep]],
    words: Mapping[str, tuple[VerdictWord, Exit]],
    effects: tuple[Interaction, ...],
    costs: Costs,
    chosen: tuple[str, str],
) -> FourArm:
    """Compose the answer: which arm to serve and why, and what to try first. chosen: (arm, reason)."""
    arms, policy = four.arms, four.policy
    choice, why = chosen
    if any(entry.arm == choice for entry in arms.drafting):
        why = f"{why} (what it drafted is declared in the gate file)"
    if not costs.shared and (cost := interaction_of_costs(costs.books, four.order, costs.together, policy.alpha)):
        effects = (*effects, cost)
    at_once = policy.prices.concurrency if policy.prices else 1.0
    speculation_drafted = (
        steps[arms.speculation][0].status == "proven"
    )  # that it drafted: else its times tell nothing of drafting
    baseline, drafted = four.units[four.base], four.units[arms.speculation] if speculation_drafted else []
    drafting = four.arm[arms.speculation]
    has_steps = speculation_drafted and any(unit.draft_steps for unit in drafting.units)
    gain = speculated(four.evidence, drafting, policy.alpha).gain if has_steps else None
    first, first_why = advise(traffic_of(four.evidence.baseline, baseline, drafted, arms, at_once, gain))
    return FourArm(
        choice=choice,
        why=why,
        exit=int(exit_code(choice, four.base, words)),
        steps=tuple(step for name in four.names for step in steps[name]),
        interactions=effects,
        first=first,
        first_why=beside_choice(first, first_why, choice, four.base, arms),
        services=tuple(costs.books[name].service for name in four.order),
        seed=arms.seed,
        blocks=arms.blocks,
    )


def _not_compared(verdicts: Sequence[Verdict], bad: Sequence[str], policy: Policy) -> tuple[Verdict, ...]:
    """Choose no arm, and leave every verdict undecided except those of `bad` arms that are invalid.

    bad: arms without a comparable pair.
    """
    assert policy.four_arm is not None
    code = overall_exit([verdict for verdict in verdicts if verdict.variant in bad])
    if code in (Exit.APPROVE, Exit.BLOCK, Exit.REVIEW):
        code = Exit.UNDECIDED  # one pair of arms cannot be held against the other: nothing is chosen
    why = f"no arm is chosen: {', '.join(bad)} cannot be compared"
    answer = FourArm(
        choice="", why=why, exit=int(code), steps=(), interactions=(), first="unknown", first_why=why, services=(),
        seed=policy.four_arm.seed, blocks=policy.four_arm.blocks,
    )  # fmt: skip
    return tuple(
        replace(
            verdict,
            word=verdict.word if verdict.variant in bad and verdict.word == "invalid" else "undecided",
            exit=verdict.exit if verdict.variant in bad and verdict.word == "invalid" else int(Exit.UNDECIDED),
            reasons=(*(verdict.reasons if verdict.variant in bad else ()), why),
            four_arm=answer if verdict.variant == policy.four_arm.both else None,
        )
        for verdict in verdicts
    )


def _only_without_quarantine(
    words: Mapping[str, tuple[VerdictWord, Exit]], evidence: RunEvidence, policy: Policy, now: str
) -> dict[str, tuple[str, ...]]:
    """Find the arms approved only thanks to the quarantine, as in `verdict.judge`: arm → reasons."""
    counted = {verdict.variant: verdict for verdict in decide_four(evidence, replace(policy, quarantine=()), now)}
    return {
        name: (f"{ONLY_WITHOUT}: {counted[name].reasons[0]}",)
        for name, (word, _) in words.items()
        if word == "approve" and counted[name].word != "approve"
    }
