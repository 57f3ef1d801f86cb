"""May generation stop for a variant? The policy, decided from the cases that are in, by tests that may be asked often.

Cases are taken in a seeded order that knows nothing of their outcome, whole clusters together; what counts is the
longest beginning of it that both arms have answered, so that neither workers nor answer lengths choose the cases. A
failed unit ends that beginning: nothing after it is looked at. Quality rules are judged by `stats.sequential`. Rules on
drift and latency have tests for one look only: they wait until every case is in, and so does an approval that needs
them. Blocking needs no more than the rule that is broken.

A verdict that rests on a look must be this one, not the fixed test on the same cases: those were chosen by looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from qualgate.errors import UsageError
from qualgate.gate.cost import terms_of
from qualgate.gate.evidence import Pair, examine, truncated_sets
from qualgate.gate.measure import measure
from qualgate.gate.measured import Measured, unmeasured
from qualgate.gate.rules import Slice, check_policy
from qualgate.gate.verdict import judge
from qualgate.metrics import METRICS
from qualgate.records import ArmEvidence, Case, Policy, RunEvidence, UnitKey, Verdict
from qualgate.stats.sequential import ASSUMED_DISAGREEMENT, ASSUMED_WEIGHT, compare_in_sequence

Question = tuple[str, str, int]  # evalset, case id, repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at one variant."""

    verdict: Verdict  # of the cases seen alone
    seen: int  # of the order's questions
    settled: bool  # more cases would not change the word; generation may stop


def seeded_order(cases: Iterable[Case], seed: int, repeats: int = 1) -> tuple[tuple[Question, ...], ...]:
    """Clusters in random order, each with its questions. The same cases and seed give the same order."""
    clusters: dict[tuple[str, str, bool], list[Question]] = {}
    for case in sorted(cases, key=lambda case: (case.evalset, case.id)):
        label = (case.evalset, case.cluster or case.id, case.cluster is None)
        clusters.setdefault(label, []).extend((case.evalset, case.id, repeat) for repeat in range(repeats))

    def drawn(label: tuple[str, str, bool]) -> bytes:
        return sha256(f"{seed}\0{label[0]}\0{label[1]}\0{label[2]}".encode("utf-8", "surrogatepass")).digest()

    return tuple(tuple(clusters[label]) for label in sorted(clusters, key=drawn))


def look(
    evidence: RunEvidence,
    policy: Policy,
    variant: str,
    order: Sequence[Sequence[Question]],
    disagreement: float = ASSUMED_DISAGREEMENT,
    weight: float = ASSUMED_WEIGHT,
) -> Look:
    """The variant's verdict on what is in, and whether it is settled.

    order: as `seeded_order` made it before generation, of exactly the closed list. disagreement, weight: assumed before
    generation, too (`TOLD_WEIGHT` when an earlier run told it). UsageError: an unknown variant, another list, or a
    policy that does not fit the evalsets.
    """
    slices = check_policy(policy, evidence.metrics)
    found = next((arm for arm in evidence.variants if arm.name == variant), None)
    if found is None:
        raise UsageError(f"The run has no variant {variant!r}: {', '.join(arm.name for arm in evidence.variants)}.")
    planned = {key for key in evidence.expected if key.arm in (variant, evidence.baseline.name)}
    listed = [question for cluster in order for question in cluster]
    if {UnitKey(arm, *question) for question in listed for arm in (variant, evidence.baseline.name)} != planned:
        raise UsageError("The order of cases is not that of the run's closed list; make it anew from the plan.")
    answered = _answered(evidence.baseline) & _answered(found)
    prefix = 0
    while prefix < len(order) and answered.issuperset(order[prefix]):
        prefix += 1
    seen = {question: place for place, cluster in enumerate(order[:prefix]) for question in cluster}
    partial = replace(
        evidence,
        expected=tuple(key for key in evidence.expected if key in planned and _question(key) in seen),
        baseline=_only(evidence.baseline, seen),
        variants=(_only(found, seen),),
    )
    examined = next(one for one in examine(partial) if one.variant == variant)
    whole = prefix == len(order)

    def measured(part: Slice, pairs: dict[str, tuple[Pair, ...]]) -> Measured:
        truncated = truncated_sets(pairs)
        if METRICS[part.rule.metric].kind != "quality":
            if whole:
                return measure(part, pairs, truncated, policy.alpha)
            return unmeasured(part, 0, "is tested once every case is in")
        largest = max(sum(name in part.evalsets for name, _, _ in cluster) for cluster in order)
        fixed = measure(part, pairs, truncated, policy.alpha)
        return _in_sequence(fixed, pairs, seen, largest, policy.alpha, disagreement, weight)

    verdict = judge(examined, slices, policy, terms_of(evidence, policy), measured)
    open_rules = any(one.tier != "advisory" and one.status == "undecided" for one in verdict.comparisons)
    settled = verdict.word == "block" or (verdict.word in ("approve", "review") and not open_rules)
    return Look(verdict=verdict, seen=len(seen), settled=settled)


def _in_sequence(
    fixed: Measured,
    pairs: dict[str, tuple[Pair, ...]],
    seen: dict[Question, int],
    largest: int,
    alpha: float,
    disagreement: float,
    weight: float,
) -> Measured:
    """The slice's numbers with the anytime-valid tests and bounds in place of the fixed ones."""
    rule = fixed.slice.rule
    if fixed.comparison.difference is None or rule.max_drop is None:
        return fixed  # what could not be measured at all
    losses: dict[int, list[float]] = {}
    for name in fixed.slice.evalsets:
        for pair in pairs[name]:
            before, after = pair.baseline.values[rule.metric], pair.variant.values[rule.metric]
            assert before is not None, "a silent scorer is not measured"
            assert after is not None, "a silent scorer is not measured"
            losses.setdefault(seen[_question(pair.baseline.key)], []).append(before - after)
    units = [losses[place] for place in sorted(losses)]
    result = compare_in_sequence(
        [sum(unit) for unit in units],
        rule.max_drop,
        alpha,
        size=np.array([len(unit) for unit in units]),
        largest=largest,
        disagreement=disagreement,
        weight=weight,
    )
    comparison = replace(
        fixed.comparison,
        lower=result.lower,
        upper=result.upper,
        p_broken=result.p_beyond,
        method=result.method,
    )
    return replace(fixed, comparison=comparison, p_within=result.p_within)


def _answered(arm: ArmEvidence) -> set[Question]:
    return {_question(unit.key) for unit in arm.units if unit.status == "done"}


def _only(arm: ArmEvidence, seen: dict[Question, int]) -> ArmEvidence:
    return replace(arm, units=tuple(unit for unit in arm.units if _question(unit.key) in seen))


def _question(key: UnitKey) -> Question:
    return key.evalset, key.case_id, key.repeat
