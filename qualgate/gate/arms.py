"""Four arms on the same cases: baseline, quantization only, speculation only, both. Which one is to be served?

In order, where the first broken step blocks an arm and else the first open one leaves it undecided: **parity**
(speculation gives its own target's answers: speculation only the baseline's, both those of quantization only),
**quality**, **SLO**, **value** (an arm must surely save `min_saving` of the baseline's cost per accepted answer, and
both must surely beat the better single arm). Between arms that pass, the cheapest; where costs cannot be told apart,
the one with fewer moving parts. A broken supporting rule, or `review: always`, asks a person before it is served, as
for any variant; a quarantined case is evidence in no step; an A/A arm beside the four decides by a rule on it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from qualgate.errors import Exit, UsageError
from qualgate.gate.cost import SECONDS, Ledger, ledger, terms_of
from qualgate.gate.evidence import Pair, examine, truncated_sets
from qualgate.gate.measure import measure
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import decide, overall_exit, prepare, without
from qualgate.metrics import METRICS
from qualgate.numbers import counted
from qualgate.records import (
    NOISE,
    ArmStep,
    Comparison,
    FourArm,
    FourArms,
    Interaction,
    Policy,
    RuleStatus,
    RunEvidence,
    Slo,
    UnitEvidence,
    Verdict,
    VerdictWord,
)
from qualgate.stats.accepted import METHOD_INTERACTION, accepted_cost_ratio, cost_interaction
from qualgate.stats.interaction import interaction
from qualgate.stats.intervals import Bounds, clustered_percentile
from qualgate.stats.multiplicity import holm
from qualgate.stats.paired import MIN_CLUSTERS

TIE = 2.0**-17  # top-2 logit gap of a near tie: one float32 step of a logit between 64 and 128
MOST_TIES = 1e-4  # mismatches at near ties that each token may cost
SLO_PERCENTILE = 95.0

MEMORY_BOUND, DECODE_BOUND, PREFILL_BOUND, TOOL_BOUND = 0.90, 0.60, 0.60, 0.50  # shares from which a rule fires
LEAST_OUTPUT, LEAST_SPEEDUP = 64, 1.1  # mean tokens and predicted speed-up below which drafting is not worth it


def decide_four(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """Verdicts on the three arms, in their order; the one on `both` carries the `FourArm` answer. now: as in `decide`.

    UsageError: the policy names no four arms, or arms that are not in the run. Evidence that is broken, incomplete or
    mismatched gives the verdicts of `decide`, and no arm is chosen.
    """
    arms = policy.four_arm
    if arms is None:
        raise UsageError("The policy names no four arms: `four_arm: {quantization: …, speculation: …, both: …}`.")
    names = (arms.quantization, arms.speculation, arms.both)
    again = _against_itself(evidence)
    verdicts = {verdict.variant: verdict for verdict in decide(_only(evidence, names, again), policy, now)}
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
    pairs = {name: _flat(examined[name].pairs) for name in names}
    units = {base: [pair.baseline for pair in pairs[arms.both]]} | {
        name: [pair.variant for pair in pairs[name]] for name in names
    }
    clusters = np.array([pair.cluster for pair in pairs[arms.both]])
    found = _interactions(slices, evidence, units, (base, *names), clusters, policy)
    parity = {
        arms.speculation: _parity(arms.speculation, base, examined[arms.speculation].pairs, slices, policy),
        arms.both: _with_interaction(
            _parity(arms.both, arms.quantization, against_target.pairs, slices, policy), found, arms
        ),
    }
    same = {
        name
        for name, against in ((arms.speculation, pairs[arms.speculation]), (arms.both, _flat(against_target.pairs)))
        if parity[name].status == "proven" and all(_equal(pair) and _scored_alike(pair) for pair in against)
    }
    terms = terms_of(evidence, policy, SECONDS)
    books = {name: ledger(name, units[name], terms) for name in (base, *names)}
    costs = _Costs(books=books, clusters=clusters, alpha=policy.alpha)
    steps: dict[str, list[ArmStep]] = {}
    for name in names:
        step = [parity[name]] if name in parity else []
        step.append(_quality(verdicts[name], name in same, steps.get(arms.quantization, ()), arms))
        step.append(_slo(verdicts[name], units[name], clusters, policy))
        barred = {single for single, its in steps.items() if any(one.status == "broken" for one in its[:-1])}
        step.append(_value(name, base, arms, costs, barred))
        steps[name] = step
    choice, why = _choose(base, names, steps, verdicts[arms.quantization], costs)
    words = {name: _word(steps[name], verdicts[name], policy) for name in names}
    code = _exit(choice, base, words)
    if cost := _cost_interaction(books, (base, *names), clusters, policy.alpha):
        found = (*found, cost)
    first, first_why = advise(traffic_of(units[base], units[arms.speculation], arms))
    answer = FourArm(
        choice=choice,
        why=why,
        exit=int(code),
        steps=tuple(step for name in names for step in steps[name]),
        interactions=found,
        first=first,
        first_why=first_why,
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
                *_reasons(steps[name], verdicts[name], policy),
                *([f"four arms: {choice or 'not known yet'}: {why}"] if name == arms.both else []),
                *examined[name].notes,
                *(verdicts[name].reasons[-1:] if again else ()),  # beside the noise floor, which `decide` says last
            ),
            four_arm=answer if name == arms.both else None,
        )
        for name in names
    )


def exit_of(verdicts: Sequence[Verdict]) -> Exit:
    """Of a four-arm comparison: that of its answer. Else `overall_exit`."""
    answers = [verdict.four_arm for verdict in verdicts if verdict.four_arm is not None]
    return Exit(answers[0].exit) if answers else overall_exit(verdicts)


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


def _flat(pairs: dict[str, tuple[Pair, ...]]) -> list[Pair]:
    return [pair for name in sorted(pairs) for pair in pairs[name]]


# -------------------------------------------------------------------------------------------------------- parity


def _parity(
    name: str, target: str, pairs: dict[str, tuple[Pair, ...]], slices: Sequence[Slice], policy: Policy
) -> ArmStep:
    """Does the arm give its target's answers? pairs: the arm as the variant of its target."""
    assert policy.four_arm is not None

    def step(status: RuleStatus, reason: str) -> ArmStep:
        return ArmStep(arm=name, step="parity", status=status, reason=reason)

    match policy.four_arm.parity:
        case "lossy":
            return step("proven", "declared to change the distribution, so its quality is judged instead")
        case "sampled":
            return step(*_same_within_margins(name, target, pairs, slices, policy.alpha))
    return step(*_identical(name, target, _flat(pairs)))


def _identical(name: str, target: str, pairs: Sequence[Pair]) -> tuple[RuleStatus, str]:
    """Token by token. A difference is excused only at a near tie of the target's own logits, and only rarely."""
    unread = sum(pair.baseline.answer is None or pair.variant.answer is None for pair in pairs)
    if unread:
        return "undecided", f"the tokens of {unread} of {counted(len(pairs), 'answer')} were not recorded"
    differing = [pair for pair in pairs if not _equal(pair)]
    if not differing:
        return "proven", f"all {len(pairs)} answers are {target}'s, token for token"
    first = [(pair, *_first_difference(pair)) for pair in differing]
    defects = [(pair, place, gap) for pair, place, gap in first if gap is None or not 0 <= gap <= TIE]
    tokens = sum(len(pair.baseline.answer or b"") // 4 for pair in pairs)
    if defects:
        pair, place, gap = defects[0]
        key = pair.variant.key
        seen = "no top-2 gap was recorded that could excuse it" if gap is None else f"top-2 gap {gap:.3g}, no near tie"
        return "broken", (
            f"{name} is defective: {len(defects)} of {counted(len(pairs), 'answer')} are not {target}'s, first at "
            f"token {place} of {key.question} ({seen})"
        )
    if len(differing) > MOST_TIES * tokens:
        return "broken", (
            f"{counted(len(differing), 'answer leaves', 'answers leave')} {target}'s at near ties, over "
            f"{MOST_TIES:g} of {tokens:,} tokens"
        )
    return "proven", f"{len(differing)} of {counted(len(pairs), 'answer')} differ from {target}'s, each from a near tie"


def _equal(pair: Pair) -> bool:
    return pair.baseline.answer is not None and pair.baseline.answer == pair.variant.answer


def _scored_alike(pair: Pair) -> bool:
    """Equal answers are: where they are not, no parity stands for the scores that were recorded."""
    scored = pair.baseline.scorers.keys() | pair.variant.scorers.keys()
    return all(pair.baseline.values.get(metric) == pair.variant.values.get(metric) for metric in scored)


def _first_difference(pair: Pair) -> tuple[int, float | None]:
    """The first token that differs, and the target's own top-2 logit gap there (None: not recorded)."""
    before, after = (np.frombuffer(unit.answer or b"", "<i4") for unit in (pair.baseline, pair.variant))
    shared = min(len(before), len(after))
    differs = np.flatnonzero(before[:shared] != after[:shared])
    place = int(differs[0]) if len(differs) else shared
    margins = np.frombuffer(pair.baseline.margins or b"", "<f8")
    return place, float(margins[place]) if place < len(margins) else None


def _same_within_margins(
    name: str, target: str, pairs: dict[str, tuple[Pair, ...]], slices: Sequence[Slice], alpha: float
) -> tuple[RuleStatus, str]:
    """Sampled answers differ; their scores must not. Every critical quality rule is held in both directions."""
    swapped = {
        name: tuple(Pair(baseline=pair.variant, variant=pair.baseline, cluster=pair.cluster) for pair in found)
        for name, found in pairs.items()
    }
    truncated = truncated_sets(pairs)
    mine = _critical_quality(slices)
    open_ = []
    for part in mine:
        for way, side in (("worse", pairs), ("better", swapped)):
            one = measure(part, side, truncated, alpha)
            broken = one.comparison.p_broken
            if broken is not None and broken <= alpha / (2 * len(mine)):
                return "broken", f"{name} is defective: {part.head} is surely {way} than {target}'s, beyond its margin"
            if one.obstacle or not one.p_within <= alpha:
                open_.append(
                    one.obstacle or f"{part.head}: {counted(one.comparison.n, 'case')} cannot tell it from {target}'s"
                )
    if open_:
        return "undecided", open_[0]
    return "proven", f"scores as {target} does, within every critical margin, in both directions"


def _critical_quality(slices: Sequence[Slice]) -> list[Slice]:
    return [part for part in slices if part.rule.tier == "critical" and METRICS[part.rule.metric].kind == "quality"]


# --------------------------------------------------------------------------------------------------- interaction


def _interactions(
    slices: Sequence[Slice],
    evidence: RunEvidence,
    units: dict[str, list[UnitEvidence]],
    order: Sequence[str],
    clusters: NDArray,
    policy: Policy,
) -> tuple[Interaction, ...]:
    """Of every critical quality metric and slice of the policy, Holm-corrected; order: baseline, the three arms."""
    tested = []
    for metric, name, sets in dict.fromkeys(
        (part.rule.metric, part.name, part.evalsets) for part in _critical_quality(slices)
    ):
        rows = [index for index, unit in enumerate(units[order[0]]) if unit.key.evalset in sets]
        scores = [[units[arm][index].values.get(metric) for arm in order] for index in rows]
        if rows and not any(None in row for row in scores):
            tested.append((metric, name, interaction(np.array(scores, float), clusters[rows], policy.alpha)))
    adjusted = holm([found.p_worse for _, _, found in tested])
    return tuple(
        Interaction(
            metric=metric, slice=name, estimate=found.estimate, lower=found.lower, upper=found.upper,
            found=p <= policy.alpha, n=found.n, clusters=found.clusters, method=found.method,
        )
        for (metric, name, found), p in zip(tested, adjusted, strict=True)
    )  # fmt: skip


def _with_interaction(parity: ArmStep, found: Sequence[Interaction], arms: FourArms) -> ArmStep:
    """Speculation that gives its target's answers loses nothing on either target: an interaction is a defect."""
    worse = next((one for one in found if one.found), None)
    if worse is None or arms.parity == "lossy":
        return parity
    told = (
        f"{arms.both} is defective: {worse.metric} [{worse.slice}] loses {-100 * worse.estimate:.1f} points beyond "
        f"what {arms.quantization} and {arms.speculation} lose by themselves "
        f"(bound: at least {-100 * (worse.upper or 0):.1f})"
    )
    return replace(parity, status="broken", reason=f"{told}; {parity.reason}" if parity.status == "broken" else told)


def _cost_interaction(
    books: dict[str, Ledger], order: Sequence[str], clusters: NDArray, alpha: float
) -> Interaction | None:
    """ln of what both cost over what the two savings promise; shown, and over 0 it explains a lost saving."""
    if any(books[name].unavailable for name in order) or len(np.unique(clusters)) < MIN_CLUSTERS:
        return None
    bounds = cost_interaction(tuple((books[name].costs, books[name].accepted) for name in order), clusters, alpha)
    if bounds is None:
        return None
    return Interaction(
        metric="cost_per_accepted_answer", slice="pooled", estimate=bounds.estimate, lower=_finite(bounds.lower),
        upper=_finite(bounds.upper), found=bounds.lower > 0, n=len(clusters), clusters=bounds.clusters,
        method=METHOD_INTERACTION,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


# -------------------------------------------------------------------------------------------------- quality and SLO


def _quality(verdict: Verdict, same: bool, of_quantization: Sequence[ArmStep], arms: FourArms) -> ArmStep:
    """By the critical rules on quality, drift, coverage and stability. same: every answer is the
    target's, and so is the quality; whether answers repeat, and what the arm's own weights are, equal answers do not
    tell. Speculation alone has the baseline's weights."""
    name, rules = verdict.variant, _of_step(verdict, "quality")
    if not same:
        return _by_rules(name, "quality", rules)
    untold = ("stability",) if name == arms.speculation else ("stability", "arm")
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


def _slo(verdict: Verdict, units: Sequence[UnitEvidence], clusters: NDArray, policy: Policy) -> ArmStep:
    """Critical rules on latency, cost, goodput and memory, then the 95th percentile of every time that `slo` limits."""
    name, slo = verdict.variant, policy.slo or Slo()
    found = [_by_rules(name, "slo", _of_step(verdict, "slo"))]
    for metric, limit in (("latency.ttft", slo.ttft), ("latency.tpot", slo.tpot), ("latency.e2e", slo.e2e)):
        if limit is not None:
            status, reason = _within_limit(metric, limit, units, clusters, policy.alpha)
            found.append(ArmStep(arm=name, step="slo", status=status, reason=reason))
    for status in ("broken", "undecided"):
        if failing := next((step for step in found if step.status == status), None):
            return failing
    return found[-1]


def _within_limit(
    metric: str, limit: float, units: Sequence[UnitEvidence], clusters: NDArray, alpha: float
) -> tuple[RuleStatus, str]:
    asked = [index for index, unit in enumerate(units) if metric != "latency.tpot" or unit.tokens > 1]
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


# --------------------------------------------------------------------------------------------------------- value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """Every arm's ledger over the same cases."""

    books: dict[str, Ledger]
    clusters: NDArray
    alpha: float

    def missing(self, *names: str) -> str:
        """Why these arms' costs cannot be compared; "" where they can."""
        if len(np.unique(self.clusters)) < MIN_CLUSTERS:
            return f"fewer than {MIN_CLUSTERS} independent cases"
        return next((why for name in names for why in self.books[name].unavailable), "")

    def ratio(self, name: str, to: str, limit: float) -> Bounds | None:
        """Cost per accepted answer of `name` / that of `to`; None where `to` accepted nothing or costs nothing."""
        base, other = self.books[to], self.books[name]
        if base.costs.sum() <= 0 or base.accepted.sum() <= 0:
            return None
        return accepted_cost_ratio(
            (base.costs, base.accepted), (other.costs, other.accepted), self.clusters, limit, self.alpha
        )

    def each(self, name: str) -> float:
        found = self.books[name].service.per_accepted
        return float("inf") if found is None else found


def _value(name: str, base: str, arms: FourArms, costs: _Costs, barred: Collection[str]) -> ArmStep:
    """Surely cheaper than the baseline by `min_saving`; both surely cheaper than the better single arm as well."""

    def step(status: RuleStatus, reason: str) -> ArmStep:
        return ArmStep(arm=name, step="value", status=status, reason=reason)

    limit = 1 - arms.min_saving
    held = [(base, limit)]
    if name == arms.both:
        # Surely below both singles is surely below the better one; no estimate has to say which that is. An arm that
        # may not be served is no rival.
        held += [(single, 1.0) for single in (arms.quantization, arms.speculation) if single not in barred]
    if why := costs.missing(name, *(other for other, _ in held)):
        return step("undecided", f"its cost per accepted answer is unavailable: {why}")
    told = []
    for other, most in held:
        found = costs.ratio(name, other, most)
        if found is None:
            if other == base:
                return step("undecided", f"{other} has no accepted answer that costs anything to compare with")
            continue  # a single arm that accepts nothing is no rival
        upper = f"{found.upper:.3g}" if isfinite(found.upper) else "unknown"
        ratio = f"{found.estimate:.3g} times {other}'s cost per accepted answer (bounds {found.lower:.3g} to {upper})"
        if found.p_above <= costs.alpha:
            return step("broken", f"{ratio}; at most {most:g} is worth it" + _simpler(other, base))
        if not found.p_below <= costs.alpha:
            return step("undecided", f"{ratio}; not surely below {most:g}" + _simpler(other, base))
        told.append(ratio)
    return step("proven", "; ".join(told))


def _simpler(other: str, base: str) -> str:
    return "" if other == base else f": {other} alone is the simpler choice"


def _choose(
    base: str,
    names: tuple[str, ...],
    steps: dict[str, list[ArmStep]],
    quantized: Verdict,
    costs: _Costs,
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


def _asks_a_person(verdict: Verdict, policy: Policy) -> tuple[str, ...]:
    """Why an arm that passed every step is not to be served unseen: as in `decide`."""
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


# -------------------------------------------------------------------------------------------------- which first?


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the baseline's time and memory go into; None: not known."""

    memory_share: float | None = None  # of the device's memory that weights and KV cache fill
    tool_share: float | None = None  # of a request's time that tools take
    prefill_share: float | None = None  # Σ time to first token / Σ time of the answers
    mean_output: float | None = None  # tokens
    speedup: float | None = None  # of speculation: Σ time of the baseline's answers / Σ time of its own


def traffic_of(baseline: Sequence[UnitEvidence], speculation: Sequence[UnitEvidence], arms: FourArms) -> Traffic:
    """Measured where times were recorded; memory and tools as the gate file declares them."""

    def total(units: Sequence[UnitEvidence], metric: str) -> float | None:
        values = [unit.values.get(metric) for unit in units]
        return None if not values or None in values else float(np.sum(np.array(values, float)))

    ttft, e2e = total(baseline, "latency.ttft"), total(baseline, "latency.e2e")
    drafted = total(speculation, "latency.e2e")
    return Traffic(
        memory_share=arms.memory_share,
        tool_share=arms.tool_share,
        prefill_share=ttft / e2e if ttft is not None and e2e else None,
        mean_output=sum(unit.tokens for unit in baseline) / len(baseline) if baseline else None,
        speedup=e2e / drafted if e2e and drafted else None,
    )


def advise(traffic: Traffic):
    """(what to try first, why): memory-bound → quantize, tool- or prefill-bound → neither, decode-bound → speculate."""
    memory, tools, prefill = traffic.memory_share, traffic.tool_share, traffic.prefill_share
    if memory is not None and memory > MEMORY_BOUND:
        return "quantize", f"weights and KV cache fill {memory:.0%} of the memory (over {MEMORY_BOUND:.0%})"
    if tools is not None and tools >= TOOL_BOUND:
        return "neither", (
            f"{tools:.0%} of a request's time is spent in tools (from {TOOL_BOUND:.0%}): faster tokens hardly show; "
            "look at the tools, and at calling them in parallel"
        )
    if prefill is None:
        return (
            "unknown",
            "no times were recorded, and neither memory_share nor tool_share is declared to be high",
        )
    if prefill >= PREFILL_BOUND:
        return "neither", (
            f"{prefill:.0%} of the time goes before the first token (from {PREFILL_BOUND:.0%}): look at prefix "
            "caching, chunked prefill, shorter prompts and cache-aware routing"
        )
    length, speedup = traffic.mean_output or 0.0, traffic.speedup
    decode = 1 - prefill
    if decode >= DECODE_BOUND and length >= LEAST_OUTPUT and speedup is not None and speedup > LEAST_SPEEDUP:
        return "speculate", (
            f"{decode:.0%} of the time is decoding, answers have {length:.0f} tokens on average, "
            f"and speculation is {speedup:.2f} times as fast"
        )
    return "neither", (
        f"no rule fires: {decode:.0%} of the time is decoding (from {DECODE_BOUND:.0%}), {length:.0f} tokens an answer "
        f"(from {LEAST_OUTPUT}), speculation {'not timed' if speedup is None else f'{speedup:.2f} times as fast'} "
        f"(over {LEAST_SPEEDUP:g})"
    )
