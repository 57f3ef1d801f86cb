"""pass^k: the chance that k answers to one question are all right, from n answers, n >= k.

Unbiased: the share of all sets of k of the n answers in which all k are right; with c right answers that is
C(c, k) / C(n, k) (Yao et al., tau-bench, 2024). For values between 0 and 1 it is the mean of each set's smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


def all_of(k: int, values: Sequence[float]) -> float:
    """pass^k of one question's answers, 0..1 each. ValueError unless 1 <= k <= n."""
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"pass^k needs 1 <= k <= n, found k={k}, n={n}")
    # In ascending order a value is the smallest of those sets whose other k - 1 members come after it.
    smallest = sum(value * comb(n - rank, k - 1) for rank, value in enumerate(sorted(values), start=1) if value)
    return smallest / comb(n, k)
