"""Predicted speedup of speculative decoding from its parts: S = τ / (v(γ + 1) + γ c).

τ: tokens per verification, the bonus or correction included. γ: drafted tokens. c: cost of one drafted token, in plain
steps of the target. v(M): cost of a pass of the target over M rows of a sequence, in the same unit; v(1) = 1.
Leviathan et al. (2211.17192, theorem 3.8) have v = 1; multi-level drafts as in ML-SpecQD (2503.13565).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2


def tokens_expected(chances: Sequence[float]) -> float:
    """τ of drafts whose k-th token is accepted with chances[k] after accepted predecessors: 1 + c₁ + c₁c₂ + …"""
    reached, tokens = 1.0, 1.0
    for chance in chances:
        reached *= chance
        tokens += reached
    return tokens


def verify_cost(known: Mapping[int, float], rows: float) -> float | None:
    """v(rows), interpolated linearly between measured rows; None beyond them. v(1) = 1 is always known."""
    cost_at = {1: 1.0, **known}
    measured = sorted(cost_at)
    if not measured[0] <= rows <= measured[-1]:
        return None
    above = measured[bisect_left(measured, rows)]
    below = max(point for point in measured if point <= rows)
    if above == below:
        return cost_at[above]
    return cost_at[below] + (cost_at[above] - cost_at[below]) * (rows - below) / (above - below)


def drafted_cost(costs: Sequence[float], levels: Sequence[tuple[float, float]]) -> float:
    """c of the first level of a cascade, in plain steps of the target.

    costs: by level, of one plain step of its proposer. levels: from the second on, (tokens drafted per pass of the
    level above, tokens that such a pass emits): a token of level k costs (γ′ c′ + c) / τ′, c′ of the level below. A
    pass of a draft over several rows counts like one over one row.
    """
    token_cost = costs[-1]
    for cost, (drafted, emitted) in zip(reversed(costs[:-1]), reversed(levels), strict=True):
        token_cost = (drafted * token_cost + cost) / emitted
    return token_cost


def speedup(tokens: float, drafted: float, cost: float, verify: float) -> float:
    """S. tokens: τ; drafted: γ; cost: c; verify: v(γ + 1)."""
    return tokens / (verify + drafted * cost)


def best_length(chances: Sequence[float], cost: float, known: Mapping[int, float]) -> tuple[int, float]:
    """(γ, S) with the largest S for γ in 0 .. len(chances), of equals the smallest; γ = 0 is plain decoding, S = 1.

    chances: as for `tokens_expected`, as far as observed. known: as for `verify_cost`; γ with an unknown v is not
    chosen.
    """
    best = 0, 1.0
    for length in range(1, len(chances) + 1):
        verify = verify_cost(known, length + 1)
        if verify is None:
            break
        gain = speedup(tokens_expected(chances[:length]), length, cost, verify)
        best = max(best, (length, gain), key=lambda choice: choice[1])
    return best


def by_batch(
    chances: Sequence[float],
    cost: float,
    passes: Mapping[tuple[int, int], float],
    steps: Mapping[int, float],
    length: int = 0,
) -> dict[int, float]:
    """Sequences that share a pass → S, where measured.

    chances: as for `tokens_expected`; cost: c, of one sequence; passes: (sequences, rows in all) → time in any unit;
    steps: sequences → time of a draft step, empty if the draft computes nothing; length: γ, 0 for the best of each.
    """
    gains = {}
    for count in sorted({count for count, _ in passes}):
        plain = passes.get((count, count))
        if not plain or (steps and count not in steps):
            continue
        known = {rows // count: seconds / plain for (sequences, rows), seconds in passes.items() if sequences == count}
        slower = steps[count] / steps[1] * passes[1, 1] / plain if steps and steps.get(1) and (1, 1) in passes else 1.0
        if not length:
            gains[count] = best_length(chances, cost * slower, known)[1]
        elif (verify := verify_cost(known, length + 1)) is not None:
            own = [*chances, *[chances[-1] if chances else 0.0] * length][:length]
            gains[count] = speedup(tokens_expected(own), length, cost * slower, verify)
    return gains


def crossover(gains: Mapping[int, float]) -> float | None:
    """The number of sequences from which drafting gains nothing, interpolated linearly in its logarithm; None if it
    gains at the largest known number; the smallest known number if it gains nowhere."""
    sequences = sorted(gains)
    if not sequences or gains[sequences[-1]] > 1:
        return None
    for larger, count in pairwise(reversed(sequences)):
        if gains[count] > 1:
            share = (gains[count] - 1) / (gains[count] - gains[larger])
            return float(2 ** (log2(count) + share * (log2(larger) - log2(count))))
    return float(sequences[0])
