"""Test whether speculative sampling accepts as often as its law says: a sampler that does not is not lossless.

A token is accepted with probability Σ min(p, q), whatever stood before it (Leviathan et al. 2211.17192, theorem 3.5).
So accepted − Σ min(p, q), over the tokens tested, is a martingale whose steps lie within an interval of length 1,
however answers and drafts depend on each other: its variance is at most a quarter of the tokens tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from qualgate.records import DraftLevel

DEVIATIONS = 6.0  # standard deviations at most of so many tokens: false alarms of 2e-9


def off_their_law(levels: Sequence[DraftLevel], rule: str) -> tuple[str, ...]:
    """List the levels that accept more or fewer tokens than chance allows. Only speculative sampling has this law:
    block verification has another, and rules that change the distribution have none."""
    if rule != "speculative_sampling":
        return ()
    lines = []
    for level in levels:
        accepted, overlap = level.accepted_of_tested, level.overlap
        if accepted is None or overlap is None:
            continue
        off = accepted.numerator - overlap.numerator
        if abs(off) > DEVIATIONS * sqrt(accepted.denominator) / 2:
            lines.append(
                f"{level.proposer} (level {level.level}): {accepted.numerator:,.0f} of {accepted.denominator:,.0f} "
                f"tested tokens accepted, and Σ min(p, q) of them is {overlap.numerator:,.1f}: more than chance parts "
                "the two, so tokens are not drawn from what they are said to be. Do not trust its answers"
            )
    return tuple(lines)
