"""llm-compressor's recovery test: variant / baseline, rounded to two decimals, must reach 0.95.

Both scores come from JSON, so they are doubles, and Python's `round` turns 0.945 and above into 0.95. A baseline of 0
ends the test in an error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "llm_compressor_recovery"
SOURCE = "vllm-project/llm-compressor: tests/lmeval/test_lmeval.py"


def recovery(baseline: NDArray | float, variant: NDArray | float) -> NDArray:
    """variant / baseline, rounded to two decimals as Python rounds a double; nan where the baseline is 0."""
    before, after = np.broadcast_arrays(np.asarray(baseline, float), np.asarray(variant, float))
    ratio = np.divide(after, before, out=np.full(before.shape, np.nan), where=before != 0)
    levels, level_of = np.unique(ratio, return_inverse=True)
    return np.array([round(float(level), 2) for level in levels])[level_of].reshape(ratio.shape)


def judge(outcomes: Outcomes, *, least: float = 0.95) -> PeerVerdict:
    """Apply the rule. least: the smallest ratio of scores that passes."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    if outcomes.baseline.mean == 0:
        return cannot(NAME, SOURCE, "the baseline is right on nothing, and the test divides by it")
    reached = float(recovery(outcomes.baseline.mean, outcomes.variant.mean))
    return PeerVerdict(
        name=NAME,
        says="pass" if reached >= least else "fail",
        statistic=reached,
        threshold=least,
        why=f"recovery {reached:.0%}, rounded, against at least {least:.0%}",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
