"""SGLang's habit: a threshold 5 points below the mean measured when the test was written."""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "sglang_minus5"
SOURCE = "sgl-project/sglang#27342"


def judge(outcomes: Outcomes, *, below: float = 0.05) -> PeerVerdict:
    """Apply the rule. below: distance as a rate. The run's baseline stands for the mean."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    least, measured = outcomes.baseline.mean - below, outcomes.variant.mean
    return PeerVerdict(
        name=NAME,
        says="pass" if measured >= least else "fail",
        statistic=measured,
        threshold=least,
        why=f"{measured:.4f} against at least {least:.4f}, {100 * below:g} points below the baseline",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
