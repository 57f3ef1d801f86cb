"""Does a sampler draw at all? By the log-probabilities that it tells of what it said, whatever that was.

Where the likeliest token beats the next by a log-odds of m, it is drawn with a probability of 1 / (1 + exp(-m)) at the
most, however the rest of the distribution lies and whatever cut leaves both in. So each token that is not the likeliest
one has a probability of at least q = 1 / (1 + exp(m)), and

    product of exp(-l X) / (1 - (1 - exp(-l)) q),    X = 1 for a token that is not the likeliest one

is a test supermartingale for each l: it exceeds 1 / a with a probability of a at most, over any number of answers,
looked at however often (Ville 1939). A sampler that is silently greedy has X = 0 throughout, and it grows. A large l
gives the most where that holds without exception; smaller ones allow for near ties that fall the other way.

Of a token that is neither the likeliest nor the next only its own distance is told, which is larger: q is then smaller
than it could be, and the product too. So nothing is claimed that is not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import ArrayLike

RATES = (8.0, 3.0, 1.0)  # l
SURE = 0.7  # likelier than this beside the next, a server's own default cut might leave the next out: nothing is learnt


def log_e_values(margins: ArrayLike, share: float = SURE) -> tuple[float, ...]:
    """The logarithm of the product above, for each of RATES; sums over answers are those of all of them.

    margins: of each drawn token, its log-odds against the likeliest other one, after the temperature: below 0 where it
    was not the likeliest. share: tokens likelier than this beside the next are left out.
    """
    told = np.asarray(margins, float)
    other = told < 0
    q = 1 / (1 + np.exp(np.minimum(np.abs(told), 700.0)))
    q = np.where((1 - q < min(share, SURE)) & (told != 0), q, 0.0)
    return tuple(float(np.sum(-rate * other - np.log1p(-(1 - exp(-rate)) * q))) for rate in RATES)


def log_e_value(sums: Sequence[float]) -> float:
    """The logarithm of the mean of what `log_e_values` gives: above log(1 / a), chance shows it with probability a."""
    most = max(sums)
    return most + log(sum(exp(one - most) for one in sums) / len(sums))
