"""vLLM's proposed gate: Wilson's lower bound of the variant's rate must reach 92 % of the registered score.

The registered score counts as exact, and cases are not paired.
"""

from __future__ import annotations

from math import sqrt

from scipy.special import ndtri

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "vllm_wilson"
SOURCE = "vllm-project/vllm: pull request 44704, issue 34333"


def judge(outcomes: Outcomes, *, rtol: float = 0.08, confidence: float = 0.95) -> PeerVerdict:
    """Apply the rule. The run's baseline stands for the registered score."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    least = outcomes.baseline.mean * (1 - rtol)
    lower = wilson_lower(outcomes.variant.mean, outcomes.variant.n, confidence)
    return PeerVerdict(
        name=NAME,
        says="pass" if lower >= least else "fail",
        statistic=lower,
        threshold=least,
        why=f"lower bound {lower:.4f} against at least {least:.4f}, {rtol:.0%} below the baseline",
        source=SOURCE,
    )


def wilson_lower(rate: float, n: int, confidence: float) -> float:
    """Lower end of Wilson's two-sided interval (1927) for a rate measured on n > 0 cases."""
    z = float(ndtri(0.5 + confidence / 2))
    spread = z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return (rate + z * z / (2 * n) - spread) / (1 + z * z / n)


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
