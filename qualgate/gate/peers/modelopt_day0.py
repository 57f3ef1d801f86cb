"""Model-Optimizer's day-0 release: a task may lose at most a point; one that gains more than five is an anomaly.

Scores within 0..1 are rates, so the threshold of 0.01 is a point. Sample size does not enter: the skill leaves it, and
the length of answers, to other gates.
"""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "modelopt_day0"
SOURCE = "NVIDIA/Model-Optimizer: plugins/modelopt/skills/day0-release (gate_compare)"
IMPLAUSIBLE = 0.05  # gain above which a task is an anomaly


def judge(outcomes: Outcomes, *, most: float = 0.01) -> PeerVerdict:
    """Apply the rule. most: the largest accepted drop, as a rate."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    drop = outcomes.baseline.mean - outcomes.variant.mean
    word = "ANOMALOUS" if -drop > IMPLAUSIBLE else "REGRESSION" if drop > most else "ACCEPT"
    return PeerVerdict(
        name=NAME,
        says="pass" if word == "ACCEPT" else "fail",
        statistic=drop,
        threshold=most,
        why=f"{word}: {100 * drop:+.2f} points lost, of at most {100 * most:g}",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
