"""llm-compressor's recovery test: variant / baseline, rounded to whole per cent, must reach 95 %.

The ratio is rounded in float32, where 0.95 is 0.94999999: held against the float64 0.95, a recovery that rounds to 95 %
fails, and 95.5 % is what passes. In decimals (`single=False`) it is 94.5 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "llm_compressor_recovery"
SOURCE = "vllm-project/llm-compressor: tests/lmeval/test_lmeval.py"


def recovery(baseline: NDArray | float, variant: NDArray | float, *, single: bool = True) -> NDArray:
    """Rounded half to even. A baseline of 0 is recovered whole by 0 and not at all by more."""
    before, after = np.asarray(baseline, float), np.asarray(variant, float)
    ratio = np.where(before == 0, after == 0, after / np.where(before == 0, 1, before))
    if single:
        hundred = np.float32(100)
        return (np.round(ratio.astype(np.float32) * hundred) / hundred).astype(float)
    return np.round(ratio * 100) / 100


def judge(outcomes: Outcomes, *, least: float = 0.95, single: bool = True) -> PeerVerdict:
    """least: the ratio of scores that passes. single: as the peer computes it, in single precision."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    reached = float(recovery(outcomes.baseline.mean, outcomes.variant.mean, single=single))
    empty = "; the baseline is right on nothing" if outcomes.baseline.mean == 0 else ""
    return PeerVerdict(
        name=NAME,
        says="pass" if reached >= least else "fail",
        statistic=reached,
        threshold=least,
        why=f"recovery {reached:.0%}, rounded, against at least {least:.0%}{empty}",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
