"""Model-Optimizer's day-0 release: a task may lose at most a point; one that gains more than five is an anomaly.

Scores within 0..1 are taken for rates, so the threshold of 0.01 is a point. No sample size
enters: the skill tells its reader to see to that, and to the length of answers, by other gates.
"""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "modelopt_day0"
SOURCE = "NVIDIA/Model-Optimizer: plugins/modelopt/skills/day0-release (gate_compare)"
IMPLAUSIBLE = 0.05  # a gain beyond it


def judge(outcomes: Outcomes, *, most: float = 0.01) -> PeerVerdict:
    """most: the drop, in rates, that is accepted."""
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
