"""Test whether quantized weights and a quantized cache together lose more than each alone. It decides nothing.

The four arms are recognised by their identities: the baseline, a variant with other weights, one with another KV cache,
and one with both. None of them speculates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.evidence.checks import examine
from qualgate.gate.four_arm.arms_evidence import only
from qualgate.gate.four_arm.interaction import interactions
from qualgate.gate.four_arm.parity import flat
from qualgate.gate.remark import Judged, Remark, Remarks
from qualgate.gate.verdict import prepare, without
from qualgate.records import ArmEvidence, Effect, Interaction, Policy, RunEvidence, Verdict, WeightsAndCache


def weights_and_cache_remarks(decision: Judged) -> Remarks:
    """Add the effects of each change and of both together to the verdict on an arm that has both.

    Evidence that is broken, incomplete or mismatched gets none, nor does a run that may stop early.
    """
    if decision.rules.stop is not None or decision.rules.chooses:
        return {}
    verdicts = {verdict.variant: verdict for verdict in decision.verdicts}
    arms = [arm for arm in decision.evidence.variants if arm.name in verdicts]
    remarks = {}
    for names in _arms_with_both(decision.evidence.baseline, arms):
        interacting = _interactions(only(decision.evidence, names), names, decision.rules.against(), decision.now)
        if interacting is not None:
            effects = tuple(_effects(interacting, [verdicts[name] for name in names]))
            weights, cache, both = names
            comparison = WeightsAndCache(
                weights=weights, cache=cache, both=both, effects=effects, interactions=interacting
            )
            remarks[both] = Remark(lines=_loss_lines(comparison), facts={"weights_and_cache": comparison})
    return remarks


def _arms_with_both(baseline: ArmEvidence, arms: Sequence[ArmEvidence]) -> Iterator[tuple[str, str, str]]:
    """Yield (arm with the weights alone, arm with the cache alone, arm with both), by name, where all three are in
    the run.
    """
    if baseline.identity is None:
        return
    named = dict[tuple[str, str], str]()
    for arm in arms:
        if arm.identity is not None and not arm.identity.speculation:
            named.setdefault((arm.identity.weights, arm.identity.kv_cache), arm.name)
    unchanged = baseline.identity.weights, baseline.identity.kv_cache
    for (weights, cache), both in named.items():
        alone = named.get((weights, unchanged[1])), named.get((unchanged[0], cache))
        if weights != unchanged[0] and cache != unchanged[1] and alone[0] is not None and alone[1] is not None:
            yield alone[0], alone[1], both


def _interactions(
    evidence: RunEvidence, names: tuple[str, str, str], policy: Policy, now: str
) -> tuple[Interaction, ...] | None:
    """The interaction of each critical quality metric and slice; None where an arm cannot be compared."""
    slices, quarantine, evidence = prepare(evidence, policy, now)
    pairs = {examination.variant: flat(without(examination, quarantine).pairs) for examination in examine(evidence)}
    if not all(pairs[name] for name in names):
        return None
    both = pairs[names[-1]]
    units = {evidence.baseline.name: [pair.baseline for pair in both]}
    units |= {name: [pair.variant for pair in pairs[name]] for name in names}
    return interactions(slices, units, (evidence.baseline.name, *names), clusters_of(both), policy)


def _effects(interacting: Sequence[Interaction], verdicts: Sequence[Verdict]) -> Iterator[Effect]:
    """Yield each variant's comparison on the metric and slice of every interaction."""
    for interaction in interacting:
        for verdict in verdicts:
            at = "", interaction.metric, interaction.slice
            same = (c for c in verdict.comparisons if (c.against, c.metric, c.slice) == at)
            comparison = next(same, None)
            if comparison is not None:
                yield Effect(
                    metric=interaction.metric,
                    slice=interaction.slice,
                    variant=verdict.variant,
                    difference=comparison.difference,
                    lower=comparison.lower,
                    upper=comparison.upper,
                )


def _loss_lines(effect: WeightsAndCache) -> tuple[str, ...]:
    """Say for each proven interaction how many points both changes lose beyond what each loses by itself."""
    return tuple(
        f"{effect.both}: {interaction.metric} [{interaction.slice}] loses {-100 * interaction.estimate:.1f} points "
        f"beyond what {effect.weights} and {effect.cache} lose by themselves (bound: at least "
        f"{-100 * (interaction.upper or 0):.1f})"
        for interaction in effect.interactions
        if interaction.found
    )
