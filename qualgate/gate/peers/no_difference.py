"""The habit of model cards: an exact McNemar test finds no significant difference, so the variant counts as equal.

The fewer the cases, the more it passes.
"""

from __future__ import annotations

from scipy.stats import binomtest

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "no_difference"
SOURCE = "McNemar 1947, two-sided at 5 %, as many model cards and reports apply it"


def judge(outcomes: Outcomes, *, alpha: float = 0.05) -> PeerVerdict:
    """Apply the rule. A gain passes, however large. The statistic is the p-value."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    flips = outcomes.lost + outcomes.gained
    p = float(binomtest(outcomes.lost, flips).pvalue) if flips else 1.0
    fails = p <= alpha and outcomes.lost > outcomes.gained
    return PeerVerdict(
        name=NAME,
        says="fail" if fails else "pass",
        statistic=p,
        threshold=alpha,
        why=f"{outcomes.lost} lost, {outcomes.gained} gained: p = {p:.3g}, "
        + ("significantly lower" if fails else "no significant loss"),
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
