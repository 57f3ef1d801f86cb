"""Detect a server that is greedy where it should sample, from the log-probabilities beside its tokens."""

from __future__ import annotations

from math import log

from qualgate.errors import Exit
from qualgate.gate.remark import PASSES, Judged, Remark, Remarks
from qualgate.records import ArmEvidence
from qualgate.stats.greedy_sampler import log_e_value

GREEDY_ALPHA = 1e-4  # how often a server that samples may be called greedy


def says_likeliest(arm: ArmEvidence) -> str:
    """Say that an arm's server surely picks the likeliest token though it should sample; "" where it samples, was not
    asked to, or sent no log-probabilities."""
    draws = arm.generation.drawing
    if not draws or log_e_value(draws) < log(1 / GREEDY_ALPHA):
        return ""
    tens = min(int(log_e_value(draws) / log(10)), 300)
    return (
        f"{arm.name}'s server says the likeliest token so often that one that draws by the probabilities it tells "
        f"would do so once in 10^{tens} times: it ignores the temperature"
    )


def sampler_remarks(decision: Judged) -> Remarks:
    """Withhold approvals where the server of the arm, or of one that it is held against, ignored the sampling settings.
    Where one arm is chosen, that is a step of its own."""
    if decision.policy.chooses:
        return {}
    arms = {arm.name: arm for arm in decision.evidence.variants}
    bases = [decision.evidence.baseline, *(arms[name] for name in decision.policy.references if name in arms)]
    of_bases, remarks = [says_likeliest(base) for base in bases], {}
    for verdict in decision.verdicts:
        arm = arms.get(verdict.variant)
        lines = tuple(filter(None, (*of_bases, says_likeliest(arm) if arm else "")))
        if lines and verdict.exit != Exit.INTEGRITY:
            remarks[verdict.variant] = Remark(lines=lines, withholds=(*PASSES, Exit.UNDECIDED))
    return remarks
