"""Gumbel noise that needs no memory: a pure function of (seed, case, position, token).

Two models that add the same noise to their logits draw the same token wherever their distributions allow it, in
whatever order or batch they are asked. Philox4x32-10 (Salmon et al. 2011) with the counter (token, position, case's
low and high half) and the seed as its key; the first of its four words is the noise.
"""

from __future__ import annotations

import torch

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MOST = 22.9  # no noise is higher: 32 bits cannot say it


def gumbel(seed: int, tokens: torch.Tensor, positions: torch.Tensor, cases: torch.Tensor) -> torch.Tensor:
    """Noise of broadcast counters (int64), float64; from -2.8 to 22.9."""
    word = philox_torch(seed, tokens, positions, cases)
    # Rounded to float32 as the kernels do; the lower half-step keeps it above 0, the limit below 1.
    uniform = ((word.float() + 0.5) * 2**-32).clamp_(max=1 - 2**-24).double()
    return -torch.log(-torch.log1p(-uniform))


def philox_torch(seed: int, tokens: torch.Tensor, positions: torch.Tensor, cases: torch.Tensor) -> torch.Tensor:
    """Return the first word of Philox4x32-10, int64 holding 32 bits, of broadcast counters."""
    c0, c1, c2, c3 = torch.broadcast_tensors(tokens & LOW, positions & LOW, cases & LOW, (cases >> 32) & LOW)
    k0, k1 = seed & LOW, seed >> 32
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # modulo 2**64: all 64 bits are right
        c0, c1 = ((second >> 32) & LOW) ^ c1 ^ k0, second & LOW
        c2, c3 = ((first >> 32) & LOW) ^ c3 ^ k1, first & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0
