"""Test whether a sampler draws at all, from the log-probabilities of its own tokens.

If the likeliest token beats the next by a log-odds of m, it is drawn with probability at most 1 / (1 + exp(-m)),
whatever the rest of the distribution and any cut that keeps both. So another token than the likeliest has a probability
of at least q = 1 / (1 + exp(m)), and

    product of exp(-l X) / (1 - (1 - exp(-l)) q),    X = 1 for a token that is not the likeliest one

is a test supermartingale for each l: it exceeds 1 / a with probability at most a, over any number of answers and looks
(Ville 1939). A silently greedy sampler has X = 0 throughout, and the product grows. A large l grows fastest if that has
no exception; smaller ones allow for near ties that fall the other way.

For a token that is neither the likeliest nor the next only its own distance is known, which is larger: q and the
product are then smaller than they could be, which is conservative.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import ArrayLike

RATES = (8.0, 3.0, 1.0)  # l
SURE = 0.7  # above this, a server's default cut might drop the next token, so the token proves nothing


def log_e_values(margins: ArrayLike, share: float = SURE) -> tuple[float, ...]:
    """Logarithm of the product above, for each of RATES; those of several answers add up.

    margins: log-odds of each drawn token against the likeliest other one, after the temperature: below 0 if it was not
    the likeliest. share: tokens likelier than this against the next are left out.
    """
    odds = np.asarray(margins, float)
    other = odds < 0
    q = 1 / (1 + np.exp(np.minimum(np.abs(odds), 700.0)))
    q = np.where((1 - q < min(share, SURE)) & (odds != 0), q, 0.0)
    return tuple(float(np.sum(-rate * other - np.log1p(-(1 - exp(-rate)) * q))) for rate in RATES)


def log_e_value(sums: Sequence[float]) -> float:
    """Logarithm of the mean e-value: it exceeds log(1 / a) with probability at most a by chance."""
    largest = max(sums)
    return largest + log(sum(exp(log_value - largest) for log_value in sums) / len(sums))
