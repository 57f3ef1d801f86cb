"""How much faster an arm decodes with its drafts: as timed against its target without them, and by the law of S."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qualgate.formatting import counted
from qualgate.gate.comparisons.draft_levels import decodes, passes_of
from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import DRAFT_COST, NOISE, TWIN, VERIFY_COST, ArmEvidence, DraftLevel, Gain, Rate, RunEvidence
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, BatchGain, costs_of
from qualgate.stats.resampled_sums import Sums
from qualgate.stats.speedup import best_length, by_batch, crossover, drafted_cost, verify_cost


def target_of(evidence: RunEvidence, arm: ArmEvidence) -> tuple[ArmEvidence, bool]:
    """(the arm with the same weights that does not speculate, True); where there is none, (the baseline, False)."""
    weights = arm.identity.weights if arm.identity else None
    for other in (evidence.baseline, *evidence.variants):
        same = other.identity is not None and other.identity.weights == weights
        if same and not _drafts(other) and not other.name.endswith((NOISE, TWIN)):
            return other, True
    return evidence.baseline, False


def _drafts(arm: ArmEvidence) -> bool:
    return arm.speculation is not None or any(unit.draft_steps for unit in arm.units)


def gain_of(
    pairs: Sequence[Pair],
    target: tuple[ArmEvidence, bool],
    levels: Sequence[DraftLevel],
    facts: Mapping[str, float],
    alpha: float,
    tokens: int = 0,
) -> Gain:
    """pairs: the arm as the variant of `target`. facts: of the arm; tokens: γ, 0 where it is chosen."""
    costs = _costs(levels, facts)
    predicted, why = _predicted(pairs, costs, _verify_costs(facts))
    best, batches = None, dict[int, float]()
    if costs is not None and (chances := _chances(levels)):
        best = best_length(chances, costs, _verify_costs(facts))
        steps = {count: cost for (level, count), cost in costs_of(facts, DRAFT_STEP_COST).items() if level == 1}
        batches = by_batch(chances, costs, costs_of(facts, BATCH_COST), steps, tokens)
    return Gain(
        against=target[0].name,
        same_weights=target[1],
        measured=_measured(pairs, alpha),
        predicted=predicted,
        predicted_reason=why,
        best_tokens=best[0] if best else None,
        best=best[1] if best else None,
        by_batch=tuple(BatchGain(sequences=count, predicted=one) for count, one in batches.items()),
        crossover=crossover(batches),
    )


def _measured(pairs: Sequence[Pair], alpha: float) -> Rate:
    """(Σ seconds / Σ tokens) of the target over those of the arm, first tokens and their seconds left out; over answers
    of several tokens in both. Batches that ran side by side are drawn together."""
    both = [pair for pair in pairs if min(pair.baseline.tokens or 0, pair.variant.tokens or 0) > 1]
    untimed = sum(None in _seconds(pair) for pair in both)
    if untimed or not both:
        of = counted(len(both), "answer")
        why = f"no time was recorded for {untimed} of {of}" if both else "no answer of both has several tokens"
        return Rate(numerator=0, denominator=0, value=None, reason=why)
    seconds = np.array([_seconds(pair) for pair in both], float)
    tokens = np.array([[(unit.tokens or 0) - 1 for unit in (pair.baseline, pair.variant)] for pair in both], float)
    together, shared = time_groups_of(both)
    columns = {"before": seconds[:, 0], "after": seconds[:, 1], "said": tokens[:, 0], "said with": tokens[:, 1]}
    sums = Sums.of(columns, clusters_of(both) if shared else together)
    whole = sums.whole
    if not (whole["before"] > 0 and whole["after"] > 0):
        return Rate(numerator=0, denominator=0, value=None, reason="the answers took no time")
    found = sums.statistic(lambda of: of["before"] / of["said"] / (of["after"] / of["said with"]), alpha)
    return Rate(
        numerator=whole["before"] / whole["said"],
        denominator=whole["after"] / whole["said with"],
        value=found.value,
        lower=None if shared else found.lower,
        upper=None if shared else found.upper,
        reason=shared or found.reason,
    )


def _seconds(pair: Pair) -> tuple[float | None, float | None]:
    """Of both, from the first token to the last."""
    times = [
        (unit.values.get("latency.e2e"), unit.values.get("latency.ttft")) for unit in (pair.baseline, pair.variant)
    ]
    before, after = (None if whole is None or first is None else whole - first for whole, first in times)
    return before, after


def _predicted(pairs: Sequence[Pair], cost: float | None, known: Mapping[int, float]) -> tuple[float | None, str]:
    """(S, why it is not known). Σ tokens / Σ seconds over all passes, each with the draft that it had: for drafts of
    one length it is τ / (v(γ + 1) + γ c)."""
    told = (step for pair in pairs for step in pair.variant.draft_steps)
    steps = [(0, step) for step in told if step.level == 1 and decodes(step)]
    if not steps:
        return None, "no pass was told"
    if cost is None:
        return None, "what a drafted token costs (c) was not measured"
    found = passes_of(steps, 1)
    verify = [verify_cost(known, drafted + 1) for drafted in range(found.longest + 1)]
    if None in verify:
        return None, f"what a pass over {verify.index(None) + 1} rows costs (v) was not measured"
    often = np.bincount(found.proposed)
    seconds = float(often @ np.array(verify, float)) + cost * float((found.proposed + found.unverified).sum())
    return (len(steps) + float(found.accepted.sum())) / seconds, ""


def _costs(levels: Sequence[DraftLevel], facts: Mapping[str, float]) -> float | None:
    """c, with what drafts for the draft in it; None where a level's was not measured."""
    costs = [facts.get(f"{DRAFT_COST}{one.level}") for one in levels]
    if not costs or None in costs:
        return None
    below = [((one.proposed + one.unverified) / one.passes, 1 + one.accepted / one.passes) for one in levels[1:]]
    return drafted_cost([cost for cost in costs if cost is not None], below)


def _verify_costs(facts: Mapping[str, float]) -> dict[int, float]:
    """Rows → v."""
    named = {name.removeprefix(VERIFY_COST): value for name, value in facts.items() if name.startswith(VERIFY_COST)}
    return {int(rows): value for rows, value in named.items() if rows.isdecimal()}


def _chances(levels: Sequence[DraftLevel]) -> list[float]:
    """Of each place of a draft, as far as any was tested there, that a token is accepted if those before it were."""
    first = next((one for one in levels if one.level == 1), None)
    found = []
    for place in first.positions if first else ():
        if place.conditional.value is None:
            break
        found.append(place.conditional.value)
    return found
