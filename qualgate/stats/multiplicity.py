"""Corrections for several claims at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values, in the given order: rejecting those at most alpha keeps the chance of any false one ≤ alpha.

    Any dependence allowed. Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def provable_together(claims: Mapping[str, Collection[str]], provable_at: Mapping[str, int]) -> frozenset[str]:
    """Claims that may all be made with a chance of any false one ≤ alpha, under any dependence.

    claims: claim → its parts, one of which is false if the claim is; claims may share parts. provable_at: part → the
    largest k for which it is proven at alpha / k, 0 if not even at alpha. Closed testing (Marcus, Peritz and Gabriel,
    Biometrika 63, 1976) by Bonferroni over the fewest parts that can make a set of claims false: Holm's method if no
    part is shared, and no cost for two claims that rest on the same part.
    """

    def refuted(group: tuple[str, ...]) -> bool:
        states = {frozenset(parts) for parts in product(*(claims[name] for name in group))}
        minimal_states = (state for state in states if not any(other < state for other in states))
        return all(any(provable_at[part] >= len(state) for part in state) for state in minimal_states)

    groups = [group for size in range(1, len(claims) + 1) for group in combinations(claims, size)]
    unproven = {name for group in groups if not refuted(group) for name in group}
    return frozenset(claims.keys() - unproven)
