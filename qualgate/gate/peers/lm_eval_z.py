"""lm-evaluation-harness's comparison script: a two-sided z-test of the two arms' means as if from different samples.

Any significant difference is marked, a gain as well as a loss; anything else passes, however few the cases.
"""

from __future__ import annotations

from math import hypot, isfinite

from scipy.special import ndtr

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "lm_eval_z"
SOURCE = "EleutherAI/lm-evaluation-harness: scripts/model_comparator.py"


def judge(outcomes: Outcomes, *, alpha: float = 0.05) -> PeerVerdict:
    """Apply the rule. The statistic is the p-value."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    if min(outcomes.baseline.n, outcomes.variant.n) < 2:
        return cannot(NAME, SOURCE, "one case has no standard error")
    spread = hypot(outcomes.baseline.stderr, outcomes.variant.stderr)
    if spread == 0:
        return _without_spread(outcomes.variant.mean - outcomes.baseline.mean, alpha)
    z = (outcomes.variant.mean - outcomes.baseline.mean) / spread
    p = float(2 * ndtr(-abs(z)))
    if not isfinite(p):
        return cannot(NAME, SOURCE, "the scores have no finite mean")
    moved = "lower" if z < 0 else "higher"
    return PeerVerdict(
        name=NAME,
        says="pass" if p > alpha else "fail",
        statistic=p,
        threshold=alpha,
        why=f"z = {z:.2f}, p = {p:.3g}: {'no significant difference' if p > alpha else f'significantly {moved}'}",
        source=SOURCE,
    )


def _without_spread(moved: float, alpha: float) -> PeerVerdict:
    """Give lm-eval's verdict where numpy divides by zero: p is 0 or not a number, and neither is above alpha.

    moved: difference of the means.
    """
    return PeerVerdict(
        name=NAME,
        says="fail",
        statistic=0.0 if moved else None,
        threshold=alpha,
        why=f"both standard errors are zero: p is {'0' if moved else 'not a number'}, which is marked as a difference",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
