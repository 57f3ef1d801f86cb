"""Error bound of a KL against a baseline stored in few bits.

Theorem. Let p be the baseline's distribution, p' the stored one, with |log p − log p'| <= eta at every token, and
q any other. Then |KL(p || q) − KL(p' || q)| <= eta²/2 + (e^eta − 1) (K + √(2 K)), with K = KL(p' || q).
Proof. With b = log p' − log q, KL(p || q) = KL(p || p') + Σ p b and K = Σ p' b. The first lies between 0 and eta²/2
(given the bounds of p / p', and that its mean under p' is 1, it is largest where p / p' takes their two ends alone:
eta tanh(eta / 2)). The sums differ by Σ (p − p') b, at most (e^eta − 1) Σ p' |b|. And Σ p' |b| = K + 2 Σ p' b⁻, where
Σ p' b⁻ <= Σ (q − p')⁺ = TV(p', q) <= √(K / 2): log x <= x − 1, and Pinsker's inequality.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def kl_error(kl: ArrayLike, eta: ArrayLike) -> NDArray[np.float64]:
    """Error bound in nats at each `kl`; 0 where `eta` is 0. Rounding of float32 logits adds some 1e-6."""
    values, eta = np.asarray(kl, np.float64), np.asarray(eta, np.float64)
    return eta**2 / 2 + np.expm1(eta) * (values + np.sqrt(2 * values))
