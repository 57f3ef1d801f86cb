"""Detect, night by night, a fall of an arm's quality since its approved run, and tell it from noise.

**p-values.** Each case (or cluster of cases) has a value every night. Where nothing changed its values are
exchangeable: no order of the nights is likelier than another. So the newest of a case's values up to night t is a draw
from all of them, night 0 of the approved run included. p_t is the chance that a sum of such draws, one per case and
independent between cases, is as low as tonight's: exact, by its characteristic function. Difficulty cancels, since a
case is compared with itself. So does the luck of the approved run, which a comparison with that run alone would take
for a fall on every later night. Such p-values of an online compression model are independent and uniform, or larger
(Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, ch. 8).

**Evidence.** exp(δ z − δ²/2) with z = Φ⁻¹(1 − p) is then a likelihood ratio of mean 1, for each of a few fixed δ. It
enters a Shiryaev–Roberts sum R_t = (1 + R_{t−1}) · e_t, an e-detector (Shin, Ramdas and Rinaldo, Annals of Statistics
52, 2024; Vovk, Statistical Science 36, 2021): R_t − t is a supermartingale, so by Doob's inequality R reaches
HORIZON / alpha within HORIZON nights with a chance of at most alpha, and on average not before so many nights.

**Cases.** A deterministic engine repeats its answers exactly until something changes, and then some change for good.
Whether more were lost than gained may still be chance, and no repetition of the same night settles that. So a fall also
needs the cases to show it: an exact sign test on what each case lost between the nights before and those since. Equal
nights make its numbers no larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

METHOD_TREND = "exchangeable_nights/1"
HORIZON = 365  # nights in which a false fall is reported with a chance of at most alpha
SHIFTS = (1.0, 2.0, 4.0)  # δ: falls of a night's mean in its standard deviations; a third of the evidence each
_LEAST_P = 1e-12  # the transform's own error is some 1e-14
_PARTS = 64  # a case's mean loss is rounded to so many parts of a step for the test of signs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A detected fall of the mean value. Nights count from the approved run, which is night 0."""

    detected: int  # the night on which it was detected
    began: int  # the likeliest first night of it
    size: float  # of the mean value per unit of weight: mean of the nights before − mean of those since
    p_cases: float  # of the exact test of signs over cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Every night's evidence, and the falls. p and log_evidence: one entry per night after night 0."""

    p: tuple[float, ...]
    log_evidence: tuple[float, ...]  # log R_t, anew from 0 after each fall
    threshold: float  # log of what R must reach
    falls: tuple[Fall, ...]
    method: str = METHOD_TREND


def trend(values: ArrayLike, *, weight: float = 1.0, series: int = 1, alpha: float = 0.05) -> Trend:
    """Detect falls. values: [nights, clusters] whole numbers from night 0, the steps that a cluster's cases reached.

    weight: steps in a mean value of 1, over all clusters (cases × steps per case). series: number of metrics of the
    same model that are watched together and share alpha. ValueError for values that are no whole numbers
    of [nights, clusters], alpha outside (0, 0.5), series or weight below 1.
    """
    x = np.asarray(values)
    if x.ndim != 2 or not x.size or not np.issubdtype(x.dtype, np.integer):
        raise ValueError("values are whole numbers, [nights, clusters], at least one of each")
    if not 0 < alpha < 0.5 or series < 1 or weight <= 0:
        raise ValueError(f"alpha {alpha}, series {series} or weight {weight} is out of range")
    threshold = float(np.log(HORIZON * series / alpha))
    shifts, first = np.array(SHIFTS), 0
    detectors, sums, starts = _fresh_detectors(1)
    low, highest = int(x.min()), int(x.max())
    counts = level_counts(x[:1] - low, highest - low)
    p, evidence, falls = [], [], []
    for night in range(1, len(x)):
        counts += level_counts(x[night : night + 1] - low, highest - low)
        p.append(lower_tail(counts, x[night] - low))
        step = -ndtri(p[-1]) * shifts - shifts**2 / 2
        detectors = np.logaddexp(0.0, detectors) + step
        starts = np.where(sums <= 0, night, starts)
        sums = np.maximum(sums, 0.0) + step  # CUSUM: where the evidence of each shift is likeliest to begin
        evidence.append(float(np.logaddexp.reduce(detectors) - np.log(len(SHIFTS))))
        if evidence[-1] < threshold:
            continue
        began = int(starts[np.argmax(sums)])
        before, since = x[first:began].mean(axis=0), x[began : night + 1].mean(axis=0)
        p_cases = sign_test(before - since)
        if p_cases <= alpha / series:
            size = float((before - since).sum() / weight)
            falls.append(Fall(detected=night, began=began, size=size, p_cases=p_cases))
            first = began  # from here on a further fall is measured from the lower level
            counts = level_counts(x[first : night + 1] - low, highest - low)
            detectors, sums, starts = _fresh_detectors(night + 1)
    return Trend(p=tuple(p), log_evidence=tuple(evidence), threshold=threshold, falls=tuple(falls))


def _fresh_detectors(night: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return detectors without evidence, sums of 0 and this night as start, one of each for every shift."""
    none = np.full(len(SHIFTS), -np.inf)
    return none, np.zeros(len(SHIFTS)), np.full(len(SHIFTS), night)


def level_counts(values: NDArray, highest: int) -> NDArray:
    """How often each cluster had each value: [0..highest, clusters]. values: [nights, clusters], 0..highest."""
    return np.stack([(values == level).sum(axis=0) for level in range(highest + 1)])


def lower_tail(counts: NDArray, newest: NDArray) -> float:
    """P(sum of one draw a cluster ≤ the newest night's sum), where a draw is uniform over the cluster's values so far.

    counts: [levels, clusters] how often each value was had, the newest night among them; newest: [clusters]. In (0, 1],
    never below 1e-12.
    """
    moving = (counts > 0).sum(axis=0) > 1
    if not moving.any():
        return 1.0
    counts, levels = counts[:, moving], np.arange(len(counts))
    size = 1 + int((levels[:, None] * (counts > 0)).max(axis=0).sum())
    shares = counts.T / counts[:, 0].sum()
    return _tail(shares, levels, size, int(newest[moving].sum()))


def sign_test(losses: NDArray) -> float:
    """P(Σ ± |loss| ≥ Σ loss) with fair signs: small where more was lost than gained. losses: [clusters], in steps.

    Exact for losses rounded to 64ths, which keeps their signs fair.
    """
    parts = np.rint(np.asarray(losses, float) * _PARTS).astype(int)
    sizes, numbers = np.unique(np.abs(parts[parts != 0]), return_counts=True)
    if not len(sizes):
        return 1.0
    total = int((sizes * numbers).sum())
    # A loss of `size` is 0 where it is lost and 2 · size where it is gained: so a small sum is a large loss.
    levels = np.array([0, *(2 * sizes)])
    shares = np.zeros((len(sizes), len(levels)))
    shares[:, 0], shares[np.arange(len(sizes)), 1 + np.arange(len(sizes))] = 0.5, 0.5
    return _tail(shares, levels, 2 * total + 1, total - int(parts.sum()), numbers)


def _tail(shares: NDArray, levels: NDArray, size: int, observed: int, draws: NDArray | None = None) -> float:
    """P(sum ≤ observed) of independent draws. shares: [draws, levels] chances of each level; draws: how many there are
    of each row, 1 by default. The sum is below `size`."""
    size = 1 << (size - 1).bit_length()
    waves = np.exp(-2j * np.pi / size * (np.outer(levels, np.arange(size // 2 + 1)) % size))
    transform = shares @ waves
    transform = np.multiply.reduce(transform if draws is None else transform ** draws[:, None], axis=0)
    return float(np.clip(np.fft.irfft(transform, size)[: observed + 1].sum(), _LEAST_P, 1.0))
