"""MLPerf Inference's closed division: the score must reach 99 % of the reference's, 97 % for some models.

No standard error, no pairing.
"""

from __future__ import annotations

from collections.abc import Callable

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

SOURCE = "mlcommons/inference: tools/submission/submission_checker.py, accuracy-target"


def judge(outcomes: Outcomes, *, share: float) -> PeerVerdict:
    """Apply the rule. share: of the baseline's score, which stands for the reference's."""
    name = f"mlperf_{share * 100:.0f}"
    if why := unanswered(outcomes):
        return cannot(name, SOURCE, why)
    least, measured = outcomes.baseline.mean * share, outcomes.variant.mean
    return PeerVerdict(
        name=name,
        says="pass" if measured >= least else "fail",
        statistic=measured,
        threshold=least,
        why=f"{measured:.4f} against at least {least:.4f}, {share:.0%} of the baseline",
        source=SOURCE,
    )


def _of(share: float) -> Callable[[Outcomes], PeerVerdict]:
    return lambda outcomes: judge(outcomes, share=share)


RULES = tuple(PeerRule(name=f"mlperf_{share * 100:.0f}", source=SOURCE, judge=_of(share)) for share in (0.99, 0.97))
