"""Report the effect of speculation beside an arm's verdict. It decides nothing: parity, quality and value do.

Counted from the draft steps of our own engine, never from drafted evaluation, which proposes the baseline's answers.
"""

from __future__ import annotations

from dataclasses import replace

from qualgate.errors import Exit
from qualgate.gate.causes.acceptance_law import off_their_law
from qualgate.gate.causes.wasted_drafts import broken, wasted_drafts
from qualgate.gate.comparisons.chunk_gaps import gaps_of
from qualgate.gate.comparisons.draft_gain import gain_of, target_of
from qualgate.gate.comparisons.draft_levels import levels_of, passes_saved, tasks_of
from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.evidence.checks import Pair, paired
from qualgate.gate.remark import Judged, Remark, Remarks
from qualgate.records import (
    CACHE_TOKEN,
    DRAFT_WEIGHTS,
    DRAFT_WORKSPACE,
    ArmEvidence,
    Generation,
    Rate,
    RunEvidence,
    Speculated,
)
from qualgate.stats.resampled_sums import DRAWS, SEED

METHOD = f"draft_ratios_cluster_bootstrap/1 seed {SEED}"


def speculation_remarks(decision: Judged) -> Remarks:
    """Add the effect of speculation to the verdicts on arms that drafted, and its alerts as last reasons.

    Broken evidence gets none, nor does an arm none of whose drafted answers has one of its target's beside it.
    """
    drafting = {arm.name: arm for arm in decision.evidence.variants if any(unit.draft_steps for unit in arm.units)}
    effects = {
        verdict.variant: speculated(decision.evidence, drafting[verdict.variant], decision.policy.alpha)
        for verdict in decision.verdicts
        if verdict.variant in drafting and verdict.exit != Exit.INTEGRITY
    }
    return {
        variant: Remark(lines=effect.alerts, facts={"speculated": effect})
        for variant, effect in effects.items()
        if effect.levels
    }


def speculated(evidence: RunEvidence, arm: ArmEvidence, alpha: float) -> Speculated:
    """Measure speculation of one arm over the answers that it and its target both gave."""
    target = target_of(evidence, arm)
    pairs = _pairs(evidence, target[0], arm)
    units, clusters = [pair.variant for pair in pairs], clusters_of(pairs)
    levels = levels_of(units, clusters, tasks_of(units, evidence.tasks), alpha)
    spec = arm.speculation
    names = spec.names if spec else [level.proposer.split(", ")[0] for level in levels]
    gain = gain_of(pairs, target, names, arm.facts, alpha, spec.tokens if spec else 0)
    memory = _memory(evidence.baseline, target, arm)
    alerts, wasted = wasted_drafts(levels, gain, memory)
    alerts = (*(off_their_law(levels, spec.rule) if spec else ()), *alerts, *broken(arm.generation.broken_drafts))
    return Speculated(
        spec=spec,
        levels=levels,
        passes_saved=passes_saved(units, clusters, alpha),
        gain=gain,
        gaps=gaps_of(pairs, alpha),
        rested=_rested(arm.generation),
        because=arm.generation.because,
        broken_drafts=arm.generation.broken_drafts,
        memory=memory,
        alerts=alerts,
        wasted=wasted,
        alpha=alpha,
        seed=SEED,
        draws=DRAWS,
        method=METHOD,
    )


def _pairs(evidence: RunEvidence, target: ArmEvidence, arm: ArmEvidence) -> list[Pair]:
    """Pair the arm's answers with its target's, where both gave one."""

    def done(side: ArmEvidence) -> dict[tuple[str, str, int], int]:
        return {
            (unit.key.evalset, unit.key.case_id, unit.key.repeat): index
            for index, unit in enumerate(side.units)
            if unit.status == "done"
        }

    both = done(target).keys() & done(arm).keys()
    sides = [
        replace(side, units=tuple(side.units[index] for question, index in done(side).items() if question in both))
        for side in (target, arm)
    ]
    return paired(replace(evidence, baseline=sides[0]), sides[1])


def _rested(generation: Generation) -> Rate | None:
    """The share of passes without a draft, among those that could have one; None without any."""
    if not generation.drafting:
        return None
    return Rate(
        numerator=generation.rested, denominator=generation.drafting, value=generation.rested / generation.drafting
    )


def _memory(baseline: ArmEvidence, target: tuple[ArmEvidence, bool], arm: ArmEvidence) -> dict[str, float]:
    """Bytes, as far as measured: the drafts' weights, their KV cache per token, their workspace per sequence, and what
    the target's quantization saved."""
    memory = {}
    if DRAFT_WORKSPACE in arm.facts:
        memory["draft_workspace"] = arm.facts[DRAFT_WORKSPACE]
    draft, weights, full = (
        arm.facts.get(DRAFT_WEIGHTS),
        arm.facts.get("memory.weights"),
        baseline.facts.get("memory.weights"),
    )
    if draft is not None:
        memory["draft_weights"] = draft
    if draft is not None and weights is not None:
        memory["target_weights"] = weights - draft
        if full is not None and weights - draft < full:
            memory["saved_by_quantization"] = full - (weights - draft)
    with_draft, alone = arm.facts.get(CACHE_TOKEN), target[0].facts.get(CACHE_TOKEN)
    caches = [side.identity.kv_cache if side.identity else "" for side in (target[0], arm)]
    if with_draft is not None and alone is not None and caches[0] == caches[1]:
        memory["draft_cache_token"] = with_draft - alone
    return memory
