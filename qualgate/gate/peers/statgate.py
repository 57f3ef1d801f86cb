"""statgate 0.1.1: a 95 % bootstrap interval of the paired difference above −2 points ships, one below blocks.

The interval is Efron's BCa, two-sided, from 10,000 resamples, given at least five shared cases that are half of all;
otherwise the percentile bootstrap of two samples. Equal differences have an interval of no width, so ten cases without
a flip ship, and so does a baseline that is right on nothing. statgate draws with a new seed each time; here the seed is
fixed, and resamples are drawn as counts of the distinct values, which is the same distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "statgate"
SOURCE = "yashchimata/statgate: src/statgate/verdict.py"
RESAMPLES, LEAST_PAIRS, LEAST_SHARE = 10_000, 5, 0.5


def judge(outcomes: Outcomes, *, margin: float = 0.02, alpha: float = 0.05) -> PeerVerdict:
    """Apply the rule. The statistic is the interval's lower end. INCONCLUSIVE does not ship."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    shared = outcomes.difference.n
    together = outcomes.baseline.n + outcomes.variant.n - shared
    paired = shared >= LEAST_PAIRS and shared >= LEAST_SHARE * together
    if not paired and min(outcomes.baseline.n, outcomes.variant.n) < LEAST_PAIRS:
        return cannot(NAME, SOURCE, f"it needs {LEAST_PAIRS} cases of each side")
    low, high = _bca(outcomes.differences, alpha) if paired else _apart(*outcomes.scores, alpha)
    word = "SHIP" if low > -margin else "BLOCK" if high < -margin else "INCONCLUSIVE"
    kind = "paired" if paired else "unpaired"
    return PeerVerdict(
        name=NAME,
        says="pass" if word == "SHIP" else "fail",
        statistic=low,
        threshold=-margin,
        why=f"{word}: {100 * (1 - alpha):g} % interval {low:+.4f} … {high:+.4f}, {kind}, margin {margin:g}",
        source=SOURCE,
    )


def _resampled(values: Sequence[float], rng: np.random.Generator) -> NDArray:
    """Means of the resamples."""
    levels, frequencies = np.unique(np.asarray(values, float), return_counts=True)
    n = frequencies.sum()
    return rng.multinomial(n, frequencies / n, RESAMPLES) @ levels / n


def _bca(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return the bias-corrected and accelerated bootstrap interval of a mean, at level 1 − alpha (Efron, 1987).

    Equal values give an interval of no width.
    """
    numbers = np.asarray(values, float)
    mean, n = numbers.mean(), len(numbers)
    if np.ptp(numbers) < 1e-12:
        return float(mean), float(mean)
    draws = _resampled(values, np.random.default_rng(0))
    below = np.mean(draws < mean - 1e-12) + np.mean(np.abs(draws - mean) <= 1e-12) / 2
    bias = ndtri(np.clip(below, 1 / (RESAMPLES + 1), RESAMPLES / (RESAMPLES + 1)))
    off = (numbers - mean) / (n - 1)  # of the mean without each case
    cubed = 6 * float(np.sum(off**2)) ** 1.5
    skew = float(np.sum(off**3)) / cubed if cubed > 1e-12 else 0.0
    ends = []
    for z in (ndtri(alpha / 2), ndtri(1 - alpha / 2)):
        room = 1 - skew * (bias + z)
        ends.append(float(np.quantile(draws, ndtr(z if room <= 1e-12 else bias + (bias + z) / room))))
    return min(ends), max(ends)


def _apart(baseline: Sequence[float], variant: Sequence[float], alpha: float) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    draws = _resampled(variant, rng) - _resampled(baseline, rng)
    low, high = np.quantile(draws, (alpha / 2, 1 - alpha / 2))
    return float(low), float(high)


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
