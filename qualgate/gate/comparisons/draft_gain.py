"""How much faster an arm decodes with its drafts: as timed against its target without them, and by the law of S."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from qualgate.formatting import counted
from qualgate.gate.comparisons.draft_levels import decodes, passes_of
from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import DRAFT_COST, NOISE, TWIN, VERIFY_COST, ArmEvidence, DraftStep, Gain, Rate, RunEvidence
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, BatchGain, costs_of
from qualgate.stats.resampled_sums import Sums
from qualgate.stats.speedup import best_length, by_batch, crossover, drafted_cost, verify_cost


def target_of(evidence: RunEvidence, arm: ArmEvidence) -> tuple[ArmEvidence, bool]:
    """(the arm with the same weights and cache that does not speculate, True); where there is none, (the baseline,
    False)."""
    for other in (evidence.baseline, *evidence.variants):
        if same_but_for_drafts(other, arm) and not _drafts(other) and not other.name.endswith((NOISE, TWIN)):
            return other, True
    return evidence.baseline, False


def same_but_for_drafts(one: ArmEvidence, other: ArmEvidence) -> bool:
    """Whether both have the same weights, and hold keys and values alike."""
    mine, its = one.identity, other.identity
    return mine is not None and its is not None and (mine.weights, mine.kv_cache) == (its.weights, its.kv_cache)


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
    """pairs: the arm as the variant of `target`. names: of who drafts, a level each; facts: of the arm; tokens: γ, 0
    where it is chosen: then whoever is below the first may draft for the target too, at costs and chances of its own.
    """
    levels = _levels(pairs)
    costs, first = _costs(levels, names, facts), levels.get(1, [])
    predicted, why = _predicted(first, names, costs, _verify_costs(facts))
    best, batches, by = None, dict[int, float](), _foremost(first, names)
    if by in costs:
        chances = _chances([step for step in first if _level_of(step, names, 0) == by])
        verify, passes = _verify_costs(facts), costs_of(facts, BATCH_COST)
        if passes:  # of one sequence v was timed twice: one report tells one
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


def _levels(pairs: Sequence[Pair]) -> dict[int, list[DraftStep]]:
    """The steps of each, of all answers."""
    found: dict[int, list[DraftStep]] = {}
    for step in (step for pair in pairs for step in pair.variant.draft_steps if decodes(step)):
        found.setdefault(step.level, []).append(step)
    return found


def _level_of(step: DraftStep, names: Sequence[str], verifier: int) -> int:
    """Of who drafted here for that level (0: the target), from 1; 0: nobody that is known."""
    return next((at for at, name in enumerate(names, 1) if at > verifier and name == step.proposer), 0)


def _drafted(step: DraftStep) -> int:
    """Tokens, offered or not."""
    return step.proposed + step.unverified


def _foremost(steps: Sequence[DraftStep], names: Sequence[str]) -> int:
    """The level of who drafted most for the target, of equals the first; 0: nobody did, or nobody that is known."""
    tokens = Counter[int]()
    for step in steps:
        tokens[_level_of(step, names, 0)] += _drafted(step)
    best = max(tokens, key=lambda level: (tokens[level], -level), default=0)
    return best if tokens[best] else 0


def _predicted(
    steps: Sequence[DraftStep], names: Sequence[str], costs: Mapping[int, float], known: Mapping[int, float]
) -> tuple[float | None, str]:
    """(S, why it is not known). Σ tokens / Σ seconds over all passes of the target, each with the draft that it had,
    at what that cost whoever made it: for drafts of one length it is τ / (v(γ + 1) + γ c)."""
    if not steps:
        return None, "no pass was told"
    cost = _drafting_cost(steps, names, costs, 0)
    if cost is None:
        return None, "what a drafted token costs (c) was not measured"
    found = passes_of([(0, step) for step in steps], 1)
    verify = [verify_cost(known, drafted + 1) for drafted in range(found.longest + 1)]
    if None in verify:
        return None, f"what a pass over {verify.index(None) + 1} rows costs (v) was not measured"
    often = np.bincount(found.proposed)
    return (len(steps) + float(found.accepted.sum())) / (float(often @ np.array(verify, float)) + cost), ""


def _drafting_cost(
    steps: Sequence[DraftStep], names: Sequence[str], costs: Mapping[int, float], verifier: int
) -> float | None:
    """Of all drafts in these steps, each token at the cost of its proposer; None where one's was not measured."""
    tokens = Counter[int]()
    for step in steps:
        if drafted := _drafted(step):
            tokens[_level_of(step, names, verifier)] += drafted
    if not tokens.keys() <= costs.keys():
        return None
    return sum((costs[level] * count for level, count in tokens.items()), 0.0)


def _costs(
    levels: Mapping[int, Sequence[DraftStep]], names: Sequence[str], facts: Mapping[str, float]
) -> dict[int, float]:
    """Level of who drafts → c, with what drafts for it in it; those whose were measured."""
    found: dict[int, float] = {}
    for at in range(len(names), 0, -1):
        own, below = facts.get(f"{DRAFT_COST}{at}"), levels.get(at + 1, [])
        under = _drafting_cost(below, names, found, at)
        if own is None or under is None:
            continue
        tokens = sum(map(_drafted, below))
        emitted = 1 + sum(step.accepted for step in below) / max(1, len(below))
        a_token, a_pass = under / max(1, tokens), tokens / max(1, len(below))
        found[at] = drafted_cost([own, a_token], [(a_pass, emitted)])
    return found


def _verify_costs(facts: Mapping[str, float]) -> dict[int, float]:
    """Rows → v."""
    named = {name.removeprefix(VERIFY_COST): value for name, value in facts.items() if name.startswith(VERIFY_COST)}
    return {int(rows): value for rows, value in named.items() if rows.isdecimal()}


def _chances(steps: Sequence[DraftStep]) -> list[float]:
    """Of each place of a draft, as far as any was tested there, that a token is accepted if those before it were."""
    found = passes_of([(0, step) for step in steps], 1)
    tested = [int(found.tested_at(place).sum()) for place in range(1, found.longest + 1)]
    return [float(found.accepted_at(place).sum()) / of for place, of in enumerate(tested, 1) if of]
