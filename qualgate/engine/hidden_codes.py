"""Store a baseline's hidden states in 18 bits per number, with a bound on how far that moves their distribution.

Blocks of 64 numbers share a power of two; each number is a whole multiple of it below 2^17. With the head a matrix W
and e a position's rounding error, every logit moves by (W e)_v, so every log-prob by at most eta = max(W e) − min(W e):
the change of their log-sum lies between the two. eta is computed when a position is stored, by one product with the
head, and enters the bound of each KL (stats/kl_error_bound.py). A position with an eta over ETA is not rounded.

This takes 2.27 bytes per number; llama.cpp's logits take 2 bytes per token of the vocabulary. It is below 1/50 of that
if width < vocabulary / 57 (2,260 wide at 128,256 tokens, 2,680 at 151,936, 4,620 at 262,144). Fewer bits would make the
bound too wide; storing the likeliest tokens instead takes fewer bytes at any width, but bounds the KL only from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

BLOCK, BITS = 64, 18
LARGEST = 2 ** (BITS - 1) - 1
ETA = 1e-3  # nats: of a mean KL of 0.05, 4e-4 at worst; typical is a tenth of it
ROUNDED = 1.0001  # float32 sums of W e may be off by some 1e-6 of it
AT_ONCE = 2**22  # logits


@dataclass(frozen=True, slots=True)
class Kept:
    """Positions in codes: high [n, blocks * 64] int16, low [n, blocks * 16] uint8 (four to a byte), exponent [n,
    blocks] int8; width: numbers per position."""

    high: torch.Tensor
    low: torch.Tensor
    exponent: torch.Tensor
    width: int


def keep(states: torch.Tensor) -> Kept:
    """Return the codes of states, float32 [n, width]."""
    columns = zip(*map(_codes, _few(states)), strict=True)
    return Kept(*(torch.cat(column) for column in columns), width=states.shape[1])


def _codes(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    blocks = torch.nn.functional.pad(states, (0, -states.shape[1] % BLOCK)).double().unflatten(1, (-1, BLOCK))
    exponent = (torch.frexp(blocks.abs().amax(-1)).exponent - (BITS - 1)).clamp(-128, 127)
    codes = torch.ldexp(blocks, -exponent[..., None]).nan_to_num().round().clamp(-LARGEST, LARGEST).int().flatten(1)
    quarters = (codes & 3).unflatten(1, (-1, 4)) << torch.tensor([0, 2, 4, 6])
    return (codes >> 2).short(), quarters.sum(-1).to(torch.uint8), exponent.to(torch.int8)


def read(coded: Kept) -> torch.Tensor:
    """Return the states as float32 [n, width]; ValueError for columns that do not fit each other."""
    count, padded = coded.high.shape
    fits = padded % BLOCK == 0 and 0 <= padded - coded.width < BLOCK
    if not fits or coded.low.shape != (count, padded // 4) or coded.exponent.shape != (count, padded // BLOCK):
        raise ValueError("columns that do not fit each other")
    states = torch.empty(count, coded.width, device=coded.high.device)
    shifts = torch.tensor([0, 2, 4, 6], device=coded.high.device)
    for into, high, low, exponent in zip(*map(_few, (states, coded.high, coded.low, coded.exponent)), strict=True):
        codes = high.int() * 4 + ((low[..., None] >> shifts) & 3).flatten(1)
        blocks = torch.ldexp(codes.double().unflatten(1, (-1, BLOCK)), exponent.int()[..., None])
        into.copy_(blocks.flatten(1)[:, : coded.width])
    return states


def _few(positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return positions.split(256)  # so that what is wide for a while is not wide for all


def moved(states: torch.Tensor, coded: Kept, weight: torch.Tensor) -> torch.Tensor:
    """Return eta of each position, float32 [n], rounded up. weight: float32 [vocabulary, width]."""
    lost = states - read(coded).to(states.device)
    parts = []
    for chunk in lost.split(max(1, AT_ONCE // len(weight))):
        logits = torch.nn.functional.linear(chunk.to(weight.device), weight)
        parts.append((logits.amax(-1) - logits.amin(-1)) * ROUNDED)
    return torch.cat(parts).cpu()
