"""TensorRT-LLM's accuracy suite: a one-sided two-sample test with a standard deviation of 50 points for each sample.

The reference there is the variant's own registered score; here the run's baseline stands for it.
"""

from __future__ import annotations

from math import sqrt

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered
from qualgate.stats.intervals import normal_quantile
from qualgate.text.numbers import counted

NAME = "trt_hypothesis"
SOURCE = "NVIDIA/TensorRT-LLM: tests/integration/defs/accuracy/accuracy_core.py"


def threshold(reference: float, n: int, *, alpha: float = 0.05, sigma: float = 0.5) -> float:
    """reference − z(1 − alpha) · sqrt(2 sigma² / n)"""
    return reference - normal_quantile(1 - alpha) * sqrt(2 * sigma**2 / n)


def judge(outcomes: Outcomes, *, alpha: float = 0.05, sigma: float = 0.5) -> PeerVerdict:
    """Apply the rule. alpha: level of the test. sigma: its assumed standard deviation of each sample."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    least = threshold(outcomes.baseline.mean, outcomes.variant.n, alpha=alpha, sigma=sigma)
    measured = outcomes.variant.mean
    return PeerVerdict(
        name=NAME,
        says="pass" if measured >= least else "fail",
        statistic=measured,
        threshold=least,
        why=f"{measured:.4f} against at least {least:.4f} for {counted(outcomes.variant.n, 'case')} (alpha {alpha:g})",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
