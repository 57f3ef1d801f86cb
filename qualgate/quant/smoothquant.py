"""SmoothQuant: move the outliers of activations into the weights, where one scale a channel can hold them.

Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for LLMs" (2022). s = max|x|**alpha /
max|w|**(1 - alpha); x / s and W * s are both rounded to int8, activations with one scale a token as they come, weights
with one scale a row. Alpha is searched on calibration tokens, for weights rounded to nearest; no smoothing at all is
among the candidates. The weights it leaves are then rounded by GPTQ.

The paper divides what a norm makes. What v and up make is divided too: their rows have a scale each, so dividing a row
divides its scale and costs no precision, and the product that enters down has the largest outliers of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.quant.activations import PER_TOKEN, round_inputs
from qualgate.quant.rounding import fit_grid

ALPHAS = tuple(step / 20 for step in range(2, 20))


def search_smoothing(
    weights: Sequence[torch.Tensor], largest: torch.Tensor, sample: torch.Tensor, spread: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the best scale [channels] for layers `weights`, each [out, in].

    largest: max |x| of each input over the calibration; sample: some inputs, [tokens, in], on which the error is
    measured; spread: [in], the channel of each input (None: one each).
    """
    channel_of_input = torch.arange(len(largest), device=largest.device) if spread is None else spread

    def per_channel(values: torch.Tensor) -> torch.Tensor:
        return (
            values.new_zeros(int(channel_of_input.max()) + 1)
            .scatter_reduce(0, channel_of_input, values, "amax")
            .clamp(min=1e-5)
        )

    reach = per_channel(largest)
    peak = per_channel(torch.stack([weight.abs().amax(0) for weight in weights]).amax(0))
    best = torch.ones_like(reach)
    outputs = [sample @ weight.T for weight in weights]
    least = _error(weights, sample, outputs, best[channel_of_input])
    for alpha in ALPHAS:
        scale = (reach.pow(alpha) / peak.pow(1 - alpha)).clamp(min=1e-5)
        scale = scale / (scale.max() * scale.min()).sqrt()
        error = _error(weights, sample, outputs, scale[channel_of_input])
        if error < least:
            best, least = scale, error
    return best


def _error(
    weights: Sequence[torch.Tensor], sample: torch.Tensor, outputs: Sequence[torch.Tensor], scale: torch.Tensor
) -> float:
    """Return the sum of squares between `outputs` and those of both sides rounded after scaling."""
    rounded = round_inputs(sample / scale, PER_TOKEN["int8"])
    total = 0.0
    for weight, output in zip(weights, outputs, strict=True):
        scaled = weight * scale
        total += float((rounded @ fit_grid(scaled, 8).round(scaled).T - output).square().sum())
    return total
