"""Four arms on the same cases: baseline, quantization only, speculation only, both. Which one is to be served?

In order, where the first broken step blocks an arm and else the first open one leaves it undecided: **parity**
(speculation gives its own target's answers: speculation only the baseline's, both those of quantization only),
**quality**, **SLO**, **value** (an arm must surely save `min_saving` of the baseline's cost per accepted answer, and
both must surely beat the better single arm). Between arms that pass, the cheapest; where costs cannot be told apart,
the one with fewer moving parts. A broken supporting rule, or `review: always`, asks a person before it is served, as
for any variant; a quarantined case is evidence in no step; an A/A arm beside the four decides by a rule on it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from qualgate.errors import Exit, UsageError
from qualgate.formatting import counted
from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.ledger import SECONDS, ledger
from qualgate.gate.evidence.checks import examine
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.four_arm.advice import advise, beside_choice, traffic_of
from qualgate.gate.four_arm.interaction import interaction_of_costs, interactions, with_interaction
from qualgate.gate.four_arm.parity import equal, flat, parity_step, scored_alike
from qualgate.gate.four_arm.value import Costs, value_step
from qualgate.gate.verdict import ONLY_WITHOUT, decide_plain, overall_exit, prepare, without
from qualgate.metrics import METRICS
from qualgate.records import (
    NOISE,
    ArmStep,
    Comparison,
    FourArm,
    FourArms,
    Policy,
    RuleStatus,
    RunEvidence,
    Slo,
    UnitEvidence,
    Verdict,
    VerdictWord,
)
from qualgate.stats.intervals import clustered_percentile

SLO_PERCENTILE = 95.0


def decide_four(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """Verdicts on the three arms, in their order; the one on `both` carries the `FourArm` answer. now: see `decide`.

    UsageError: the policy names no four arms, or arms that are not in the run. Evidence that is broken, incomplete or
    mismatched gives the verdicts of `decide_plain`, and no arm is chosen.
    """
    arms = policy.four_arm
    if arms is None:
        raise UsageError("The policy names no four arms: `four_arm: {quantization: …, speculation: …, both: …}`.")
    names = (arms.quantization, arms.speculation, arms.both)
    again = _against_itself(evidence)
    verdicts = {verdict.variant: verdict for verdict in decide_plain(_only(evidence, names, again), policy, now)}
    # What is too old to decide, or quarantined, is so for parity, service levels and value, too.
    slices, held, evidence = prepare(_only(evidence, names), policy, now)
    examined = {found.variant: without(found, held) for found in examine(evidence)}
    bad = [name for name in names if not examined[name].pairs]
    if bad:
        return _not_compared([verdicts[name] for name in names], bad, policy)
    base = evidence.baseline.name
    against_target = next(f for f in examine(_held_against(evidence, arms)) if f.variant == arms.both)
    against_target = without(against_target, held)
    if not against_target.pairs:
        return _not_compared([verdicts[name] for name in names], [arms.both], policy)
    pairs = {name: flat(examined[name].pairs) for name in names}
    units = {base: [pair.baseline for pair in pairs[arms.both]]} | {
        name: [pair.variant for pair in pairs[name]] for name in names
    }
    clusters = np.array([pair.cluster for pair in pairs[arms.both]])
    found = interactions(slices, units, (base, *names), clusters, policy)
    parity = {
        arms.speculation: parity_step(arms.speculation, base, examined[arms.speculation].pairs, slices, policy),
        arms.both: with_interaction(
            parity_step(arms.both, arms.quantization, against_target.pairs, slices, policy), found, arms
        ),
    }
    same = {
        name
        for name, against in ((arms.speculation, pairs[arms.speculation]), (arms.both, flat(against_target.pairs)))
        if parity[name].status == "proven" and all(equal(pair) and scored_alike(pair) for pair in against)
    }
    terms = terms_of(evidence, policy, SECONDS)
    books = {name: ledger(name, units[name], terms) for name in (base, *names)}
    together, shared = timed_together(clusters, *units.values())
    costs = Costs(
        books=books,
        clusters=clusters,
        together=together if terms.timed else clusters,
        shared=shared if terms.timed else "",
        alpha=policy.alpha,
    )
    steps: dict[str, list[ArmStep]] = {}
    for name in names:
        step = [parity[name]] if name in parity else []
        step.append(_quality(verdicts[name], name in same, steps.get(arms.quantization, ()), arms))
        step.append(_slo(verdicts[name], units[name], together, shared, policy))
        barred = {single for single, its in steps.items() if any(one.status == "broken" for one in its[:-1])}
        step.append(value_step(name, base, arms, costs, barred))
        steps[name] = step
    choice, why = _choose(base, names, steps, verdicts[arms.quantization], costs)
    words = {name: _word(steps[name], verdicts[name], policy) for name in names}
    doubted = _only_without_quarantine(words, evidence, policy, now) if held.cases else {}
    words |= dict.fromkeys(doubted, ("review", Exit.REVIEW))
    code = _exit(choice, base, words)
    if not costs.shared and (cost := interaction_of_costs(books, (base, *names), costs.together, policy.alpha)):
        found = (*found, cost)
    at_once = policy.prices.concurrency if policy.prices else 1.0
    traffic = traffic_of(evidence.baseline, units[base], units[arms.speculation], arms, at_once)
    first, first_why = advise(traffic)
    answer = FourArm(
        choice=choice,
        why=why,
        exit=int(code),
        steps=tuple(step for name in names for step in steps[name]),
        interactions=found,
        first=first,
        first_why=beside_choice(first, first_why, choice, base, arms),
        services=tuple(books[name].service for name in (base, *names)),
        seed=arms.seed,
        blocks=arms.blocks,
    )
    return tuple(
        replace(
            verdicts[name],
            word=words[name][0],
            exit=int(words[name][1]),
            reasons=(
                *doubted.get(name, ()),
                *_reasons(steps[name], verdicts[name], policy),
                *([f"four arms: {choice or 'not known yet'}: {why}"] if name == arms.both else []),
                *examined[name].notes,
                *(verdicts[name].reasons[-1:] if again else ()),  # the noise floor, which `decide_plain` says last
            ),
            four_arm=answer if name == arms.both else None,
        )
        for name in names
    )


# --------------------------------------------------------------------------------------------------- the evidence


def _against_itself(evidence: RunEvidence) -> tuple[str, ...]:
    """The A/A arm, where there is one: for the noise floor and `stability.rerun`, and none of the four."""
    planned = {key.arm for key in evidence.expected} | {arm.name for arm in evidence.variants}
    return tuple(sorted(name for name in planned if name.endswith(NOISE)))


def _only(evidence: RunEvidence, names: Sequence[str], beside: Sequence[str] = ()) -> RunEvidence:
    """The evidence of the four arms, and of those `beside` them; the variants in the order of `names`."""
    kept = {evidence.baseline.name, *names}
    planned = {key.arm for key in evidence.expected} | {arm.name for arm in evidence.variants}
    if len(kept) != 4:
        raise UsageError(f"the four arms must be four different ones; found {', '.join(sorted(kept))}")
    if missing := sorted(kept - planned - {evidence.baseline.name}):
        raise UsageError(
            f"four_arm names {', '.join(missing)}, which the run does not have: {', '.join(sorted(planned))}"
        )
    kept |= set(beside)
    return replace(
        evidence,
        expected=tuple(key for key in evidence.expected if key.arm in kept),
        variants=tuple(arm for name in (*names, *beside) for arm in evidence.variants if arm.name == name),
    )


def _held_against(evidence: RunEvidence, arms: FourArms) -> RunEvidence:
    """`both` as the variant of `quantization`. Its drift was measured from the baseline, and says nothing here."""
    by_name = {arm.name: arm for arm in evidence.variants}
    both = by_name[arms.both]
    silent = tuple(replace(unit, kl=(), top1_agreement=None, first_divergence=None) for unit in both.units)
    kept = (arms.quantization, arms.both)
    return replace(
        evidence,
        expected=tuple(key for key in evidence.expected if key.arm in kept),
        baseline=by_name[arms.quantization],
        variants=(replace(both, units=silent),),
    )


def _not_compared(verdicts: Sequence[Verdict], bad: Sequence[str], policy: Policy) -> tuple[Verdict, ...]:
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


# -------------------------------------------------------------------------------------------------- quality and SLO


def _quality(verdict: Verdict, same: bool, of_quantization: Sequence[ArmStep], arms: FourArms) -> ArmStep:
    """By the critical rules on quality, drift, coverage and stability. same: every answer is the target's.

    Then nothing that drafting could have moved is asked of it again. What equal answers do not tell is: whether there
    are enough of them (sixty without a difference exclude no loss under five points) from a baseline that could have
    lost any, whether they repeat, and what the arm's own weights are. Speculation alone has the baseline's weights.
    """
    name, rules = verdict.variant, _of_step(verdict, "quality")
    if not same:
        return _by_rules(name, "quality", rules)
    untold = ("quality", "stability") if name == arms.speculation else ("quality", "stability", "arm")
    own = _by_rules(name, "quality", [one for one in rules if METRICS[one.metric].kind in untold])
    if own.status != "proven":
        return own
    if name == arms.speculation:
        return ArmStep(arm=name, step="quality", status="proven", reason="the baseline's, by parity")
    target = next(step for step in of_quantization if step.step == "quality")
    but = "" if target.status == "proven" else f": {target.reason}"
    return replace(target, arm=name, reason=f"{arms.quantization}'s, by parity{but}")


def _of_step(verdict: Verdict, step: str) -> list[Comparison]:
    """The critical rules that a step asks for: what serving takes and gives is `slo`, all else is quality."""

    def serves(metric: str) -> bool:
        return METRICS[metric].kind in ("latency", "cost", "service") or metric.startswith("memory.")

    return [one for one in verdict.comparisons if one.tier == "critical" and serves(one.metric) == (step == "slo")]


def _by_rules(name: str, step, rules: Sequence[Comparison]) -> ArmStep:
    for status in ("broken", "undecided"):
        if chosen := [one for one in rules if one.status == status]:
            return ArmStep(arm=name, step=step, status=status, reason=chosen[0].reason)
    kept = f"all {len(rules)} critical rules proven" if len(rules) != 1 else "the critical rule is proven"
    return ArmStep(arm=name, step=step, status="proven", reason=kept if rules else "nothing asked")


def _slo(verdict: Verdict, units: Sequence[UnitEvidence], clusters: NDArray, shared: str, policy: Policy) -> ArmStep:
    """Critical rules on latency, cost, goodput and memory, then the 95th percentile of every time that `slo` limits."""
    name, slo = verdict.variant, policy.slo or Slo()
    found = [_by_rules(name, "slo", _of_step(verdict, "slo"))]
    for metric, limit in (("latency.ttft", slo.ttft), ("latency.tpot", slo.tpot), ("latency.e2e", slo.e2e)):
        if limit is not None:
            status, reason = (
                ("undecided", f"{metric}: {shared}")
                if shared
                else _within_limit(metric, limit, units, clusters, policy.alpha)
            )
            found.append(ArmStep(arm=name, step="slo", status=status, reason=reason))
    for status in ("broken", "undecided"):
        if failing := next((step for step in found if step.status == status), None):
            return failing
    return found[-1]


def _within_limit(
    metric: str, limit: float, units: Sequence[UnitEvidence], clusters: NDArray, alpha: float
) -> tuple[RuleStatus, str]:
    asked = [index for index, unit in enumerate(units) if metric != "latency.tpot" or unit.tokens not in (0, 1)]
    seconds = [units[index].values.get(metric) for index in asked]
    if not seconds or None in seconds:
        return (
            "undecided",
            f"{metric}: no time was recorded for {counted(sum(one is None for one in seconds), 'answer')}",
        )
    found = clustered_percentile(np.array(seconds, float), clusters[asked], SLO_PERCENTILE, limit, alpha)
    told = f"{metric} p{SLO_PERCENTILE:g} is {found.estimate:.3g} s, and at most {limit:g} s is asked"
    if found.p_above <= alpha:
        return "broken", told
    return ("proven", told) if found.p_below <= alpha else ("undecided", f"{told}: too near, or too few cases, to tell")


# ---------------------------------------------------------------------------------------------------- the choice


def _choose(
    base: str,
    names: tuple[str, ...],
    steps: dict[str, list[ArmStep]],
    quantized: Verdict,
    costs: Costs,
) -> tuple[str, str]:
    """(arm, why). The cheapest arm that passed every step; of arms whose costs cannot be told apart, the simplest."""
    passed = [name for name in names if all(step.status == "proven" for step in steps[name])]
    if not passed:
        for name in names:
            if (ended := _ended_by(steps[name])) is not None and ended.status == "undecided":
                return "", f"{name}: {ended.reason}"
        return base, "none of the three may and should replace the baseline"
    # Speculation changes no answer: where quantization is proven to lose something, speculation is the simpler change.
    loses = any((one.upper or 0) < 0 for one in _of_step(quantized, "quality") if METRICS[one.metric].kind == "quality")
    quantization, speculation, both = names
    order = (speculation, quantization, both) if loses else (quantization, speculation, both)
    simplest_first = [name for name in order if name in passed]
    best = min(simplest_first, key=costs.each)
    for name in simplest_first:
        if name == best:
            break
        found = costs.ratio(best, name, 1.0)
        if found is not None and not found.upper < 1:
            return name, f"{best} is not surely cheaper, and {name} has fewer moving parts"
    return best, "passed parity, quality, SLO and value, at the lowest cost per accepted answer"


def _ended_by(steps: Sequence[ArmStep]) -> ArmStep | None:
    """The first broken step: what is proven is a fact, whatever stayed open before it. Else the first open one."""
    for status in ("broken", "undecided"):
        if found := next((step for step in steps if step.status == status), None):
            return found
    return None


def _word(steps: Sequence[ArmStep], verdict: Verdict, policy: Policy) -> tuple[VerdictWord, Exit]:
    ended = _ended_by(steps)
    if ended is not None:
        return ("block", Exit.BLOCK) if ended.status == "broken" else ("undecided", Exit.UNDECIDED)
    return ("review", Exit.REVIEW) if _asks_a_person(verdict, policy) else ("approve", Exit.APPROVE)


def _only_without_quarantine(
    words: Mapping[str, tuple[VerdictWord, Exit]], evidence: RunEvidence, policy: Policy, now: str
) -> dict[str, tuple[str, ...]]:
    """Arms that pass by their quarantine alone, each with why, as in `verdict.judge`."""
    counted = {one.variant: one for one in decide_four(evidence, replace(policy, quarantine=()), now)}
    return {
        name: (f"{ONLY_WITHOUT}: {counted[name].reasons[0]}",)
        for name, (word, _) in words.items()
        if word == "approve" and counted[name].word != "approve"
    }


def _asks_a_person(verdict: Verdict, policy: Policy) -> tuple[str, ...]:
    """Why an arm that passed every step is not to be served unseen: as in `decide_plain`."""
    broken = _of_tier(verdict, "supporting", "broken")
    return broken or (("the policy asks for a person",) if policy.review == "always" else ())


def _of_tier(verdict: Verdict, tier: str, status: str) -> tuple[str, ...]:
    return tuple(one.reason for one in verdict.comparisons if (one.tier, one.status) == (tier, status))


def _reasons(steps: Sequence[ArmStep], verdict: Verdict, policy: Policy) -> tuple[str, ...]:
    """What ended it first, or why a person is asked; then the other steps in their order, and the lesser rules."""
    ended = _ended_by(steps)
    told = ([ended] if ended else []) + [step for step in steps if step is not ended]
    said = tuple(f"{step.step} {step.status}: {step.reason}" for step in told)
    asks = _asks_a_person(verdict, policy)
    lesser = (("supporting", "undecided"), ("advisory", "broken"), ("advisory", "undecided"))
    rest = tuple(reason for tier, status in lesser for reason in _of_tier(verdict, tier, status))
    return (*said, *asks, *rest) if ended else (*asks, *said, *rest)


def _exit(choice: str, base: str, words: Mapping[str, tuple[VerdictWord, Exit]]) -> Exit:
    """0 only for an arm that may replace the baseline unseen; 11 where the chosen one is for a person to see."""
    if choice and choice != base:
        return words[choice][1]
    return Exit.UNDECIDED if not choice or any(word == "undecided" for word, _ in words.values()) else Exit.BLOCK
