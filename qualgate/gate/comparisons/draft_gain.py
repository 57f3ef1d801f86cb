"""Measure how much faster an arm decodes with drafts than its target without, as timed and by the law of S."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from qualgate.gate.comparisons.draft_levels import decodes, passes_of
from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import DRAFT_COST, NOISE, TWIN, VERIFY_COST, ArmEvidence, DraftStep, Gain, Rate, RunEvidence
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, BatchGain, costs_of
from qualgate.stats.resampled_sums import Sums
from qualgate.stats.speedup import best_length, by_batch, crossover, drafted_cost, verify_cost
from qualgate.text.numbers import counted


def target_of(evidence: RunEvidence, arm: ArmEvidence) -> tuple[ArmEvidence, bool]:
    """Find the arm to compare with: (same weights and cache without speculation, True), else (the baseline, False)."""
    for other in (evidence.baseline, *evidence.variants):
        if same_but_for_drafts(other, arm) and not _drafts(other) and not other.name.endswith((NOISE, TWIN)):
            return other, True
    return evidence.baseline, False


def same_but_for_drafts(arm: ArmEvidence, other: ArmEvidence) -> bool:
    """Whether both arms have the same weights and the same KV cache."""
    identity, other_identity = arm.identity, other.identity
    return (
        identity is not None
        and other_identity is not None
        and (identity.weights, identity.kv_cache) == (other_identity.weights, other_identity.kv_cache)
    )


def _drafts(arm: ArmEvidence) -> bool:
    return arm.speculation is not None or any(unit.draft_steps for unit in arm.units)


def gain_of(
    pairs: Sequence[Pair],
    target: tuple[ArmEvidence, bool],
    names: Sequence[str],
    facts: Mapping[str, float],
    alpha: float,
    tokens: int = 0,
) -> Gain:
    """Measure and predict the gain from drafts.

    pairs: the arm as the variant of `target`. names: proposers, one for each level. facts: of the arm. tokens: γ, or 0
    if it adapts: then lower levels may draft for the target too, at their own costs and chances.
    """
    levels = _levels(pairs)
    costs, first = _costs_by_level(levels, names, facts), levels.get(1, [])
    predicted, why = _predicted(first, names, costs, _verify_costs(facts))
    best, batches, by = None, dict[int, float](), _foremost(first, names)
    if by in costs:
        chances = _chances([step for step in first if _level_of(step, names, 0) == by])
        verify, passes = _verify_costs(facts), costs_of(facts, BATCH_COST)
        if passes:  # v of one sequence was timed twice: use the same one throughout
            passes |= {(1, 1): 1.0} | {(1, rows): cost for rows, cost in verify.items()}
        best = best_length(chances, costs[by], verify)
        steps = {count: cost for (level, count), cost in costs_of(facts, DRAFT_STEP_COST).items() if level == by}
        batches = by_batch(chances, costs[by], passes, steps, tokens)
    return Gain(
        against=target[0].name,
        same_weights=target[1],
        measured=_measured(pairs, alpha),
        predicted=predicted,
        predicted_reason=why,
        best_tokens=best[0] if best else None,
        best=best[1] if best else None,
        best_by=names[by - 1] if best else "",
        by_batch=tuple(BatchGain(sequences=count, predicted=speedup) for count, speedup in batches.items()),
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
    speedup = sums.statistic(lambda of: of["before"] / of["said"] / (of["after"] / of["said with"]), alpha)
    return Rate(
        numerator=whole["before"] / whole["said"],
        denominator=whole["after"] / whole["said with"],
        value=speedup.value,
        lower=None if shared else speedup.lower,
        upper=None if shared else speedup.upper,
        reason=shared or speedup.reason,
    )


def _seconds(pair: Pair) -> tuple[float | None, float | None]:
    """Seconds from the first token to the last, of the baseline and of the variant."""
    times = [
        (unit.values.get("latency.e2e"), unit.values.get("latency.ttft")) for unit in (pair.baseline, pair.variant)
    ]
    before, after = (None if whole is None or first is None else whole - first for whole, first in times)
    return before, after


def _levels(pairs: Sequence[Pair]) -> dict[int, list[DraftStep]]:
    """Level → the draft steps of all answers."""
    levels: dict[int, list[DraftStep]] = {}
    for step in (step for pair in pairs for step in pair.variant.draft_steps if decodes(step)):
        levels.setdefault(step.level, []).append(step)
    return levels


def _level_of(step: DraftStep, names: Sequence[str], verifier: int) -> int:
    """The level (from 1) of the proposer that drafted for `verifier` (0: the target); 0: unknown."""
    return next((level for level, name in enumerate(names, 1) if level > verifier and name == step.proposer), 0)


def _drafted(step: DraftStep) -> int:
    """Tokens, offered or not."""
    return step.proposed + step.unverified


def _foremost(steps: Sequence[DraftStep], names: Sequence[str]) -> int:
    """The level that drafted most tokens for the target, the first of equals; 0: none, or unknown."""
    tokens = Counter[int]()
    for step in steps:
        tokens[_level_of(step, names, 0)] += _drafted(step)
    best = max(tokens, key=lambda level: (tokens[level], -level), default=0)
    return best if tokens[best] else 0


def _predicted(
    steps: Sequence[DraftStep], names: Sequence[str], costs: Mapping[int, float], known: Mapping[int, float]
) -> tuple[float | None, str]:
    """(S, why it is unknown): Σ tokens / Σ costs over all passes of the target, each with its draft at its proposer's
    cost. For drafts of one length that is τ / (v(γ + 1) + γ c)."""
    if not steps:
        return None, "no pass was told"
    cost = _drafting_cost(steps, names, costs, 0)
    if cost is None:
        return None, "what a drafted token costs (c) was not measured"
    passes = passes_of([(0, step) for step in steps], 1)
    verify = [verify_cost(known, drafted + 1) for drafted in range(passes.longest + 1)]
    if None in verify:
        return None, f"what a pass over {verify.index(None) + 1} rows costs (v) was not measured"
    often = np.bincount(passes.proposed)
    return (len(steps) + float(passes.accepted.sum())) / (float(often @ np.array(verify, float)) + cost), ""


def _drafting_cost(
    steps: Sequence[DraftStep], names: Sequence[str], costs: Mapping[int, float], verifier: int
) -> float | None:
    """The cost of all drafts in these steps, each token at its proposer's cost; None if one was not measured."""
    tokens = Counter[int]()
    for step in steps:
        if drafted := _drafted(step):
            tokens[_level_of(step, names, verifier)] += drafted
    if not tokens.keys() <= costs.keys():
        return None
    return sum((costs[level] * count for level, count in tokens.items()), 0.0)


def _costs_by_level(
    levels: Mapping[int, Sequence[DraftStep]], names: Sequence[str], facts: Mapping[str, float]
) -> dict[int, float]:
    """Return the cost c of one token of each proposer, by its level, with the drafts made for it.

    levels: level → its passes. names: proposers from level 1. facts: measured costs. A level is left out if its own
    cost, or that of a level below it, was not measured.
    """
    costs: dict[int, float] = {}
    for level in range(len(names), 0, -1):
        pass_cost, lower_passes = facts.get(f"{DRAFT_COST}{level}"), levels.get(level + 1, [])
        drafting_cost = _drafting_cost(lower_passes, names, costs, level)
        if pass_cost is None or drafting_cost is None:
            continue
        tokens = sum(map(_drafted, lower_passes))
        emitted = 1 + sum(step.accepted for step in lower_passes) / max(1, len(lower_passes))
        cost_of_token, tokens_per_pass = drafting_cost / max(1, tokens), tokens / max(1, len(lower_passes))
        costs[level] = drafted_cost([pass_cost, cost_of_token], [(tokens_per_pass, emitted)])
    return costs


def _verify_costs(facts: Mapping[str, float]) -> dict[int, float]:
    """Rows → v."""
    named = {name.removeprefix(VERIFY_COST): value for name, value in facts.items() if name.startswith(VERIFY_COST)}
    return {int(rows): value for rows, value in named.items() if rows.isdecimal()}


def _chances(steps: Sequence[DraftStep]) -> list[float]:
    """P(token accepted | those before it were), by place in the draft, as far as any was tested."""
    passes = passes_of([(0, step) for step in steps], 1)
    tested = [int(passes.tested_at(position).sum()) for position in range(1, passes.longest + 1)]
    return [float(passes.accepted_at(position).sum()) / tests for position, tests in enumerate(tested, 1) if tests]
