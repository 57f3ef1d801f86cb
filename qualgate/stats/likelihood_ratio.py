"""Ratio of two models' perplexities of the same texts, or of their bits per byte: variant / baseline.

For a text, y is the loss of log-likelihood of the variant (in nats), and x the divisor: its words or bytes, or for bits
the baseline's own nats. Σ y / Σ x is the log of the ratio of perplexities; for bits the ratio less 1. It is a ratio
estimator (Cochran, Sampling Techniques, 6) over clusters of texts, tested with the limit inside (Fieller, 1954): is the
mean of y − limit · x below 0? By Student's t, with as many degrees of freedom as texts of one length would have (Kish,
1965): three long texts beside sixty short ones are little more than three.

t uses only the observed spread, and damage may be rare. So both tests allow for a kind of text that was not drawn, as
in `unseen_clusters.p_at_most`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike

from qualgate.stats.intervals import Bounds, independent_clusters
from qualgate.stats.percentiles import beyond
from qualgate.stats.unseen_clusters import p_at_most

METHOD = "likelihood_ratio_paired_t/1"

# Assumed loss of an undrawn kind of text, as a multiple of the limit: if any text may be of that kind, and if the kind
# has its share of all words. Relative to the largest loss seen it is 3 times that, as for a Pareto tail of index 1.5.
# With the first factor at least 44 texts are needed for any proof: so many contain one of a kind that is one in 15
# (95 %). A loss in one text of 50 alone is missed by 60 texts in 30 % of draws. A factor of 20 would need 59 texts, and
# prove almost nothing from the 62 pages of wikitext in lm-eval.
UNSEEN_TEXTS, UNSEEN_WORDS, OF_LARGEST = 15.0, 5.0, 3.0
MOST_TIMES = 2**20  # the texts there are, beyond which no number of texts is advised
MOST_NATS = 700.0  # a word or byte: e to this is near the largest float


class LikelihoodRatio:
    """Both tests of Σ y / Σ x, and its bounds, for one limit."""

    def __init__(
        self, y: ArrayLike, x: ArrayLike, clusters: ArrayLike, limit: float, alpha: float, *, logs: bool
    ) -> None:
        """y, x: of each text, see above; x is not negative, and not all zero. clusters: integer labels. limit: a ratio
        over 1. logs: y / x is the log of a ratio, else the ratio less 1."""
        self._rate: Callable[[float], float] = log if logs else lambda ratio: ratio - 1
        self.limit, self.alpha, allowed = limit, alpha, self._rate(limit)
        _, members = np.unique(np.asarray(clusters), return_inverse=True)
        columns = np.asarray(y, float), np.asarray(x, float)
        self._y, self._x = (np.bincount(members, column) / columns[1].mean() for column in columns)
        self.count, weight = len(self._x), float(self._x.sum())
        self._estimate = float(self._y.sum()) / weight
        self.ratio = ratio_of(self._estimate) if logs else 1 + self._estimate
        # A short text's loss counts as of one of average length: that is what more like it would add.
        each = self._y / np.maximum(self._x, weight / self.count)
        self._alike = weight**2 / float(self._x @ self._x)
        by_weight = independent_clusters(self._x, alpha)
        worst, best = OF_LARGEST * float(each.max()), -OF_LARGEST * float(each.min())
        self._worse = [
            (self.count, max(UNSEEN_TEXTS * allowed, worst)),
            (by_weight, max(UNSEEN_WORDS * allowed, worst)),
        ]
        self._better = [(by_weight, max(UNSEEN_WORDS * allowed, best))]

    def bounds(self) -> Bounds:
        """Bounds of the ratio, and both tests."""
        below, above = self.p_below(self.limit), self.p_above(self.limit)
        lower = beyond(self.p_above, self.ratio, 0.5, self.alpha)
        upper = beyond(self.p_below, self.ratio, 2.0, self.alpha)
        return Bounds(
            estimate=self.ratio,
            lower=max(lower, self.limit) if above <= self.alpha else min(lower, self.limit),
            upper=min(upper, self.limit) if below <= self.alpha else max(upper, self.limit),
            p_below=below,
            p_above=above,
            clusters=self.count,
        )

    def p_below(self, ratio: float, times: float = 1.0) -> float:
        """P-value of "the ratio is at least `ratio`", with `times` as many texts."""
        return max(self._p(-1.0, ratio, trials, end, times) for trials, end in self._worse)

    def p_above(self, ratio: float, times: float = 1.0) -> float:
        """P-value of "the ratio is at most `ratio`"."""
        return max(self._p(1.0, ratio, trials, end, times) for trials, end in self._better)

    def texts_needed(self) -> int | None:
        """Texts like these with which one of the tests would decide; None: too many."""
        p, times = self.p_below if self.ratio < self.limit else self.p_above, 1.0
        while p(self.limit, times) > self.alpha:
            times *= 2
            if times > MOST_TIMES:
                return None
        few = times / 2
        for _ in range(20):
            middle = (few + times) / 2
            few, times = (few, middle) if p(self.limit, middle) <= self.alpha else (middle, times)
        return ceil(self.count * times)

    def _p(self, side: float, ratio: float, trials: float, end: float, times: float) -> float:
        """Return the p-value of "the ratio is at least `ratio`" (side -1) or "at most" (side 1).

        side: -1 if undrawn texts may be worse, 1 if they may be better. trials: independent ones that may have missed
        them. end: by how much, in y / x. times: as many texts as there are. 1 for fewer than two.
        """
        truth = self._rate(ratio)
        end, clusters = max(end, -side * truth * (1 + 1e-9)), self._alike * times
        if self.count < 2 or clusters < 2:
            return 1.0
        with np.errstate(all="ignore"):
            spread = float(np.var(self._y - truth * self._x, ddof=1))
            error = sqrt(spread / self.count / times) / float(self._x.mean())
            p = float(p_at_most(side * self._estimate / end, error / end, clusters, trials * times, side * truth / end))
        return p if isfinite(p) else 1.0  # of numbers so large that their squares are none


def ratio_of(nats: float) -> float:
    """e to so many nats, capped at `MOST_NATS`."""
    return float(np.exp(min(nats, MOST_NATS)))


def least_texts(alpha: float) -> int:
    """Least texts of one length for any proof, even if the variant is the baseline itself."""
    return ceil(log(alpha) / log1p(-1 / UNSEEN_TEXTS))
