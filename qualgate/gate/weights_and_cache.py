"""Are quantized weights and a quantized cache together worse than each by itself? Beside a verdict; it decides nothing.

The four arms are found by what they are: the baseline, a variant with other weights, one that holds keys and values
otherwise, and one in which both are what they are in these two. None of them speculates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.evidence.checks import examine
from qualgate.gate.four_arm.arms_evidence import only
from qualgate.gate.four_arm.interaction import interactions
from qualgate.gate.four_arm.parity import flat
from qualgate.gate.verdict import prepare, without
from qualgate.records import ArmEvidence, Effect, Interaction, Policy, RunEvidence, Verdict, WeightsAndCache


def with_weights_and_cache(
    verdicts: Sequence[Verdict], evidence: RunEvidence, policy: Policy, now: str
) -> tuple[Verdict, ...]:
    """The verdicts; one on an arm in which both are changed has what each did alone and what they do together.

    Not of evidence that is broken, incomplete or mismatched. now: see `decide`.
    """
    judged = {one.variant: one for one in verdicts}
    arms = [arm for arm in evidence.variants if arm.name in judged]
    found = {}
    for names in _fours(evidence.baseline, arms):
        told = _told(only(evidence, names), names, policy, now)
        if told is not None:
            effects = tuple(_effects(told, [judged[name] for name in names]))
            weights, cache, both = names
            found[both] = WeightsAndCache(weights=weights, cache=cache, both=both, effects=effects, interactions=told)
    return tuple(_with(one, found[one.variant]) if one.variant in found else one for one in verdicts)


def _fours(baseline: ArmEvidence, arms: Sequence[ArmEvidence]) -> Iterator[tuple[str, str, str]]:
    """(weights alone, cache alone, both), by name, for each arm in which both are changed."""
    if baseline.identity is None:
        return
    named = dict[tuple[str, str], str]()
    for arm in arms:
        if arm.identity is not None and not arm.identity.speculation:
            named.setdefault((arm.identity.weights, arm.identity.kv_cache), arm.name)
    mine = baseline.identity.weights, baseline.identity.kv_cache
    for (weights, cache), both in named.items():
        alone = named.get((weights, mine[1])), named.get((mine[0], cache))
        if weights != mine[0] and cache != mine[1] and alone[0] is not None and alone[1] is not None:
            yield alone[0], alone[1], both


def _told(
    evidence: RunEvidence, names: tuple[str, str, str], policy: Policy, now: str
) -> tuple[Interaction, ...] | None:
    """The interaction of each critical quality metric and slice; None where an arm cannot be compared."""
    slices, held, evidence = prepare(evidence, policy, now)
    pairs = {one.variant: flat(without(one, held).pairs) for one in examine(evidence)}
    if not all(pairs[name] for name in names):
        return None
    both = pairs[names[-1]]
    units = {evidence.baseline.name: [pair.baseline for pair in both]}
    units |= {name: [pair.variant for pair in pairs[name]] for name in names}
    return interactions(slices, units, (evidence.baseline.name, *names), clusters_of(both), policy)


def _effects(found: Sequence[Interaction], verdicts: Sequence[Verdict]) -> Iterator[Effect]:
    """Of each variant's comparison of what an interaction is about."""
    for one in found:
        for verdict in verdicts:
            same = (c for c in verdict.comparisons if (c.metric, c.slice) == (one.metric, one.slice))
            comparison = next(same, None)
            if comparison is not None:
                yield Effect(
                    metric=one.metric,
                    slice=one.slice,
                    variant=verdict.variant,
                    difference=comparison.difference,
                    lower=comparison.lower,
                    upper=comparison.upper,
                )


def _with(verdict: Verdict, found: WeightsAndCache) -> Verdict:
    said = [
        f"{found.both}: {one.metric} [{one.slice}] loses {-100 * one.estimate:.1f} points beyond what {found.weights} "
        f"and {found.cache} lose by themselves (bound: at least {-100 * (one.upper or 0):.1f})"
        for one in found.interactions
        if one.found
    ]
    return replace(verdict, weights_and_cache=found, reasons=(*verdict.reasons, *said))
