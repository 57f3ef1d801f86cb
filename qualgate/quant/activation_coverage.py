"""How far calibration activations K cover traffic activations T, at the inputs of the layers that are quantized.

Streaming: for each site a few numbers a channel are kept, never the activations. Every text is read by itself,
without padding, so that no padding is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from qualgate.errors import UsageError

REACHED = 0.9  # rho: a channel's traffic peak counts as covered when calibration reached this much of it
ROUNDING = 1e-5  # the same token in another batch differs by this much: it is not outside the range


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCoverage:
    """One quantized layer's input. m[c] = largest |a| of channel c in K. None: there is nothing to divide by."""

    site: str
    calibration_tokens: int  # that reached it: an expert of a mixture may have seen few
    traffic_tokens: int
    range: float | None  # Pr_T(|a[c]| <= m[c]) over tokens and channels
    range_p1: float | None  # 1st percentile over its channels
    clipped_energy: float | None  # sum of max(0, |a| - m)^2 over sum of a^2, both over T
    outliers: float | None  # covered share of how far channels' peaks in T exceed their median
    centroid_distance: float | None  # |mean K - mean T|, in root-mean-square distances of T's tokens from their mean


class SeenInputs:
    """Inputs of one site: tokens, each channel's largest magnitude, sums [in_features] in float64."""

    def __init__(self) -> None:
        self.tokens = 0
        self.peak = self.sum = torch.empty(0)

    def see(self, rows: torch.Tensor) -> None:
        """Count more inputs, [tokens, in_features]."""
        if not self.tokens:
            self.peak = torch.zeros(rows.shape[1], device=rows.device)
            self.sum = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
        self.tokens += len(rows)
        self.peak = torch.maximum(self.peak, rows.abs().amax(0))
        self.sum += rows.double().sum(0)


class ComparedInputs(SeenInputs):
    """Traffic at one site, held against what calibration saw there: nothing, where it never came."""

    def __init__(self, calibration: SeenInputs) -> None:
        super().__init__()
        self.clip = calibration.peak  # m, [in_features]
        self.within = self.clipped = self.square = torch.empty(0)  # tokens with |a| <= m; sums in float64

    def see(self, rows: torch.Tensor) -> None:
        """Count what the evalsets send into the layer: rows [tokens, in_features]."""
        if not self.tokens:
            self.clip = self.clip if len(self.clip) else torch.zeros_like(rows[0])
            self.within = torch.zeros_like(self.clip, dtype=torch.long)
            self.clipped = torch.zeros_like(self.clip, dtype=torch.float64)
            self.square = torch.zeros_like(self.clip, dtype=torch.float64)
        super().see(rows)
        magnitude = rows.abs()
        within = torch.le(magnitude, self.clip * (1 + ROUNDING), out=torch.empty_like(magnitude))
        self.within += within.sum(0).long()
        self.clipped += (magnitude - self.clip).clamp_(min=0).double().square_().sum(0)
        self.square += rows.double().square_().sum(0)


@dataclass(frozen=True, slots=True)
class ActivationCoverage:
    """What traffic meets at every site, against what calibration saw there."""

    sites: tuple[SiteCoverage, ...]
    range_p1: float | None  # 1st percentile of Pr_T(|a[c]| <= m[c]) over the channels of all sites


def activation_coverage(
    model: nn.Module, sites: Sequence[str], calibration: Sequence[Sequence[int]], traffic: Sequence[Sequence[int]]
) -> ActivationCoverage:
    """Run both sides' token ids through the baseline `model` and compare what enters the modules named `sites`.

    Raises UsageError where an activation is NaN or infinite.
    """
    calibration_inputs = {site: SeenInputs() for site in sites}
    read(model, calibration_inputs, calibration)
    compared = {site: ComparedInputs(inputs) for site, inputs in calibration_inputs.items()}
    read(model, compared, traffic)
    shares = [
        compared_inputs.within / compared_inputs.tokens
        for compared_inputs in compared.values()
        if compared_inputs.tokens
    ]
    return ActivationCoverage(
        tuple(site_coverage(site, inputs, compared[site]) for site, inputs in calibration_inputs.items()),
        _first_percentile(torch.cat(shares)) if shares else None,
    )


def site_coverage(site: str, calibration: SeenInputs, traffic: ComparedInputs) -> SiteCoverage:
    """Return the numbers of one site: None where the traffic never reached it; 0 where calibration never did."""
    tokens = traffic.tokens
    if not tokens:
        return SiteCoverage(
            site=site, calibration_tokens=calibration.tokens, traffic_tokens=tokens, range=None, range_p1=None,
            clipped_energy=None, outliers=None, centroid_distance=None,
        )  # fmt: skip
    share = traffic.within / tokens
    energy = traffic.square.sum().item()
    return SiteCoverage(
        site=site,
        calibration_tokens=calibration.tokens,
        traffic_tokens=tokens,
        range=share.double().mean().item(),
        range_p1=_first_percentile(share),
        clipped_energy=traffic.clipped.sum().item() / energy if energy else None,
        outliers=_outliers(calibration.peak if calibration.tokens else traffic.clip, traffic.peak),
        centroid_distance=_centroid_distance(calibration, traffic) if calibration.tokens else None,
    )


def _outliers(reached: torch.Tensor, peak: torch.Tensor) -> float | None:
    """Return the weighted share of channels whose traffic peak calibration reached; None without outliers.

    The weight of channel c is how far its peak exceeds the median of all channels' peaks. reached: each channel's
    peak in calibration; peak: that in the traffic.
    """
    weight = (peak.double() - peak.double().quantile(0.5)).clamp_(min=0)
    total = weight.sum().item()
    return weight[reached >= REACHED * peak].sum().item() / total if total else None


def _centroid_distance(calibration: SeenInputs, traffic: ComparedInputs) -> float | None:
    """Return the distance of the two mean inputs, in units of the traffic's spread; None for different points without
    spread."""
    centre = traffic.sum / traffic.tokens
    distance = (calibration.sum / calibration.tokens - centre).norm().item()
    spread = max(0.0, (traffic.square / traffic.tokens - centre.square()).sum().item()) ** 0.5
    if spread:
        return distance / spread
    return None if distance else 0.0


def _first_percentile(share: torch.Tensor) -> float:
    """Return the first percentile, linear between order statistics.

    It is computed from sorted numbers, since torch.quantile refuses more than 2**24.
    """
    ordered = share.double().sort().values
    position = 0.01 * (len(ordered) - 1)
    low = ordered[int(position)].item()
    high = ordered[min(int(position) + 1, len(ordered) - 1)].item()
    return low + (high - low) * (position - int(position))


# ------------------------------------------------------------------------------------------------- reading


@torch.no_grad()
def read(model: nn.Module, sites: dict[str, Any], texts: Sequence[Sequence[int]]) -> None:
    """Run each of `texts` (token ids) through `model`; every site's `see` gets its inputs, [tokens, in_features].

    The output head is no site, and is not run. Raises UsageError for inputs that are NaN or infinite.
    """
    decoder: Any = getattr(model, "base_model", model)
    device = next(chain(model.parameters(), model.buffers())).device  # laid out, a weight is no parameter
    with watched_inputs(model, {site: collector.see for site, collector in sites.items()}):
        for token_ids in texts:
            if token_ids:
                decoder(input_ids=torch.tensor([list(token_ids)], device=device), use_cache=False)
    for site, collector in sites.items():
        if not collector.peak.isfinite().all():
            raise UsageError(
                f"The input of {site} is NaN or infinite: the model is damaged or overflows on this text. Look at "
                "the layers before it with: qualgate inspect MODEL"
            )


@contextmanager
def watched_inputs(model: nn.Module, sites: dict[str, Callable[[torch.Tensor], None]]) -> Iterator[None]:
    """Inside the block each site's function gets what enters that module, float32 [tokens, in_features]."""

    def hook(see: Callable[[torch.Tensor], None]) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).float()
            if len(rows):  # an expert that no token was sent to
                see(rows)

        return note

    handles = [model.get_submodule(site).register_forward_pre_hook(hook(see)) for site, see in sites.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
