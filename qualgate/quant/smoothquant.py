"""SmoothQuant: move the outliers of activations into the weights, where one scale a channel can hold them.

Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for LLMs" (2022). s = max|x|**alpha /
max|w|**(1 - alpha); x / s and W * s are both rounded to int8, activations with one scale a token as they come, weights
with one scale a row. Alpha is searched on calibration tokens; no smoothing at all is among the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.quant.activations import PER_TOKEN, round_inputs
from qualgate.quant.rounding import fit_grid

ALPHAS = tuple(step / 20 for step in range(2, 20))


def search_smoothing(weights: Sequence[torch.Tensor], largest: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """The best scale [in_features] for layers `weights`, each [out, in].

    largest: max |x| of each input over the calibration; sample: some inputs, [tokens, in], the error is measured on.
    """
    peak = torch.stack([weight.abs().amax(0) for weight in weights]).amax(0).clamp(min=1e-5)
    best = torch.ones_like(largest)
    least = _error(weights, sample, best)
    for alpha in ALPHAS:
        scale = (largest.clamp(min=1e-5).pow(alpha) / peak.pow(1 - alpha)).clamp(min=1e-5)
        scale = scale / (scale.max() * scale.min()).sqrt()
        error = _error(weights, sample, scale)
        if error < least:
            best, least = scale, error
    return best


def _error(weights: Sequence[torch.Tensor], sample: torch.Tensor, scale: torch.Tensor) -> float:
    rounded = round_inputs(sample / scale, PER_TOKEN["int8"])
    total = 0.0
    for weight in weights:
        scaled = weight * scale
        total += float((rounded @ fit_grid(scaled, 8).round(scaled).T - sample @ weight.T).square().sum())
    return total
