"""Sums over the inputs of a linear layer, for calibration: not the inputs themselves."""

from __future__ import annotations

import torch

SAMPLE_ROWS = 512  # tokens kept as they are, spread over the whole calibration
_BLOCK = 128  # columns of the Gram matrix in one product: of 64 to 768 the fastest for 576 and 1,536 (EPYC, 2026-11-30)


class Inputs:
    """Statistics of every token's input x [in_features] seen so far, in float32 on the device of x.

    The error that a changed weight makes in the layer's output needs no more than `gram`: with D = changed - original,
    the mean of |D x|**2 is the trace of D gram D^T.
    """

    def __init__(self) -> None:
        self.tokens = self.calls = 0
        self._gram = self._sum = self.largest = torch.empty(0)
        self._rows: list[torch.Tensor] = []
        self._stride = 1

    def see(self, x: torch.Tensor) -> None:
        """Add x [..., in_features]."""
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        magnitude = rows.abs()
        if not self.tokens:
            width = rows.shape[1]
            self._gram = torch.zeros(width, width, device=rows.device)
            self._sum, self.largest = torch.zeros(width, device=rows.device), torch.zeros(width, device=rows.device)
        for start in range(0, rows.shape[1], _BLOCK):  # the upper blocks alone: it is symmetric
            block = slice(start, start + _BLOCK)
            self._gram[block, start:].addmm_(rows[:, block].T, rows[:, start:])
        self._sum += magnitude.sum(0)
        self.largest = torch.maximum(self.largest, magnitude.amax(0))
        start = -self.tokens % self._stride
        self._rows.append(rows[start :: self._stride].clone())
        self.tokens += len(rows)
        self.calls += 1
        if sum(map(len, self._rows)) > 2 * SAMPLE_ROWS:  # every second row goes: those left are still evenly spread
            self._rows = [torch.cat(self._rows)[::2].clone()]
            self._stride *= 2

    @property
    def gram(self) -> torch.Tensor:
        """Mean of x x^T, [in_features, in_features]."""
        upper = self._gram.triu() / self.tokens
        return upper + upper.triu(1).T

    @property
    def mean_magnitude(self) -> torch.Tensor:
        """Mean of |x|, [in_features]."""
        return self._sum / self.tokens

    @property
    def mean_square(self) -> torch.Tensor:
        """Mean of x**2, [in_features]."""
        return self._gram.diagonal() / self.tokens

    @property
    def sample(self) -> torch.Tensor:
        """Some of the inputs, [rows, in_features], evenly spread over the calibration."""
        return torch.cat(self._rows)


def output_error(change: torch.Tensor, gram: torch.Tensor) -> float:
    """Mean of |change x|**2 over the inputs that `gram` is of."""
    return float(((change @ gram) * change).sum())
