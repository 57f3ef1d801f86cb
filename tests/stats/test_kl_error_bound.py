"""The bound of a KL from a rounded baseline, against distributions that try to break it."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.stats.kl_error_bound import kl_error


def kl(p, q):
    return max(0.0, float((np.exp(p) * (p - q)).sum()))


def normal(logits):
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


@pytest.mark.parametrize("eta", [1e-4, 0.01, 0.5])
@pytest.mark.parametrize("size", [2, 7, 500])
def test_no_distribution_leaves_the_bound(eta, size):
    random = np.random.default_rng(size)
    worst = 0.0
    for _ in range(300):
        kept = normal(random.normal(0, random.choice([0.1, 3, 10]), size))
        q = normal(kept + random.normal(0, random.choice([0.001, 0.3, 5]), size))
        if random.random() < 0.5:  # all of the move where it hurts: up where q is unlikelier, down elsewhere
            moves = np.where(kept - q > random.normal(0, 0.1), 1.0, -1.0)
        else:
            moves = random.uniform(-1, 1, size)
        p = normal(kept + eta / 2 * moves)
        assert np.abs(p - kept).max() <= eta * (1 + 1e-9)
        error = kl_error(kl(kept, q), eta)
        worst = max(worst, abs(kl(p, q) - kl(kept, q)) / error)
        assert abs(kl(p, q) - kl(kept, q)) <= error * (1 + 1e-9) + 1e-13
    assert worst > 0.05  # the bound is no giant


def test_an_exact_baseline_has_no_error():
    assert kl_error([0.0, 0.3, 20.0], 0.0).tolist() == [0.0, 0.0, 0.0]
