"""Does a calibration set K cover the traffic T that a variant will be judged by? Five numbers, and no leak.

1. range: how often T's activations stay within what K showed; 2. outlier channels; 3. n-grams of tokens; 4. strata;
5. centroid distance. Each with the suggested bound as a flag that is reported and decides nothing. What reads no
calibration data (round-to-nearest, MXFP4) is `not_applicable`: that is shown, and is no pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, isnan, nan
from typing import Any, Literal

from torch import nn

from qualgate.quant.activation_coverage import ActivationCoverage, SiteCoverage, activation_coverage
from qualgate.quant.text_coverage import (
    Leakage,
    NgramCoverage,
    Reading,
    StrataCoverage,
    leakage,
    ngram_coverage,
    strata_coverage,
)

LEAST_CASES = 32  # of each set that are run through the model
SITE_TOKENS = 128  # fewer calibration tokens at a layer's input, such as an expert's, say little about it

FORMULA = "coverage/2"  # raised when a number's meaning changes

NOT_APPLICABLE: dict[str, Any] = {
    "status": "not_applicable",
    "reason": "a direct cast: no calibration data were read, so there is nothing that could cover the traffic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A suggested bound. met: None when there is no value."""

    name: str
    value: float | None
    bound: str
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How far a calibration set covers traffic: at each site of the model, and in its texts."""

    calibration: dict[str, Any]  # name, version, sha256, cases, tokens; activation_…: of these, run through the model
    traffic: dict[str, Any]  # evalsets, then the same counts
    sites: tuple[SiteCoverage, ...]
    range_p1: float | None  # over the channels of all sites
    ngrams: NgramCoverage
    strata: StrataCoverage
    leakage: Leakage

    @property
    def range(self) -> float | None:
        """The worst site's share of traffic within what calibration saw, 0..1."""
        return _smallest(site.range for site in self.sites)

    @property
    def clipped_energy(self) -> float | None:
        """The worst site's share of energy beyond it, 0..1."""
        return _largest(site.clipped_energy for site in self.sites)

    @property
    def outliers(self) -> float | None:
        """The worst site's share of the traffic's outlier channels that calibration has, 0..1."""
        return _smallest(site.outliers for site in self.sites)

    @property
    def centroid_distance(self) -> float | None:
        """The worst site's distance of mean inputs."""
        return _largest(site.centroid_distance for site in self.sites)

    @property
    def fewest_tokens(self) -> int | None:
        """Calibration tokens at the site that received fewest."""
        return min((site.calibration_tokens for site in self.sites), default=None)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Compare each number with the bound that is suggested for it."""
        return (
            _flag("range", self.range, least=0.999),
            _flag("clipped_energy", self.clipped_energy, most=1e-4),
            _flag("outlier_channels", self.outliers, least=0.95),
            _flag("unigrams", self.ngrams.share[0], least=0.99),
            _flag("smallest_stratum_ratio", self.strata.min_ratio, least=0.25),
            _flag("fewest_calibration_tokens_at_a_site", self.fewest_tokens, least=SITE_TOKENS),
            _flag("leaked_13_grams", self.leakage.grams + self.leakage.same, most=0),
        )

    @property
    def facts(self) -> dict[str, float]:
        """The numbers that a rule may name, by the metric's name; those that have a value, and one that is a number."""
        measures = {
            "coverage.range": self.range,
            "coverage.outliers": self.outliers,
            "coverage.clipped_energy": self.clipped_energy,
            "coverage.unigrams": self.ngrams.share[0],
            "coverage.strata": self.strata.min_ratio,
        }
        return {name: float(value) for name, value in measures.items() if value is not None and isfinite(value)}

    def as_json(self) -> dict[str, Any]:
        """Plain JSON: the five numbers, the flags, then every site."""
        return {
            "status": "measured",
            "formula": FORMULA,
            "calibration": self.calibration,
            "traffic": self.traffic,
            "range": {"min": self.range, "p1_over_channels": self.range_p1, "clipped_energy_max": self.clipped_energy},
            "outlier_channels": {"min": self.outliers},
            "ngrams": {
                str(n + 1): {"share": share, "good_turing_unseen": unseen}
                for n, (share, unseen) in enumerate(zip(self.ngrams.share, self.ngrams.unseen, strict=True))
            },
            "strata": asdict(self.strata),
            "centroid_distance": {"max": self.centroid_distance},
            "leakage": {**asdict(self.leakage), "cases": list(self.leakage.cases)},
            "flags": [asdict(flag) for flag in self.flags],
            "sites": [asdict(site) for site in self.sites],
        }


def measure_coverage(
    model: nn.Module,
    sites: Sequence[str],
    calibration: Sequence[Reading],
    evalsets: Sequence[Sequence[Reading]],
    *,
    activation_tokens: int,
    about_calibration: dict[str, Any],
    about_traffic: dict[str, Any],
) -> Coverage:
    """Coverage of the traffic, `evalsets`, by `calibration` for the baseline `model`, float, in eval mode.

    sites: names of the modules that are quantized. Texts are counted whole; through the model goes of each set a
    sample of cases, evenly spaced, so that each side has at least `activation_tokens`.
    """
    traffic = [case for cases in evalsets for case in cases]
    learned = sample(calibration, activation_tokens)
    met = [case for cases in evalsets for case in sample(cases, -(-activation_tokens // len(evalsets)))]
    activations: ActivationCoverage = activation_coverage(
        model, sites, [case.token_ids for case in learned], [case.token_ids for case in met]
    )
    return Coverage(
        calibration={**about_calibration, **_counts(calibration, learned)},
        traffic={**about_traffic, **_counts(traffic, met)},
        sites=activations.sites,
        range_p1=activations.range_p1,
        ngrams=ngram_coverage(calibration, traffic),
        strata=strata_coverage(calibration, traffic),
        leakage=leakage(calibration, traffic),
    )


def sample(cases: Sequence[Reading], tokens: int) -> list[Reading]:
    """Return evenly spaced `cases`, LEAST_CASES or more, that hold at least `tokens` in all; all if they hold fewer."""
    count = max(LEAST_CASES, -(-tokens * len(cases) // max(1, _tokens(cases))))
    while count < len(cases):
        chosen = [cases[index * len(cases) // count] for index in range(count)]
        if _tokens(chosen) >= tokens:
            return chosen
        count += -(-count // 8)
    return list(cases)


def _counts(cases: Sequence[Reading], sampled: Sequence[Reading]) -> dict[str, int]:
    return {
        "cases": len(cases),
        "tokens": _tokens(cases),
        "activation_cases": len(sampled),
        "activation_tokens": _tokens(sampled),
    }


def _tokens(cases: Sequence[Reading]) -> int:
    return sum(len(case.token_ids) for case in cases)


def _flag(name: str, value: float | None, *, least: float | None = None, most: float | None = None) -> Flag:
    """Compare a number with one bound, `least` or `most`; a missing number is neither met nor missed."""
    sign: Literal[">=", "<="] = ">=" if least is not None else "<="
    bound = least if least is not None else most
    assert bound is not None
    met = None if value is None else value >= bound if sign == ">=" else value <= bound
    return Flag(name=name, value=value, bound=f"{sign} {bound:g}", met=met)


def _smallest(values: Iterable[float | None]) -> float | None:
    """Return the smallest number, None without any, NaN if any is: `min` would depend on the order then."""
    known = [value for value in values if value is not None]
    return nan if any(map(isnan, known)) else min(known, default=None)


def _largest(values: Iterable[float | None]) -> float | None:
    least = _smallest(None if value is None else -value for value in values)
    return None if least is None else -least
