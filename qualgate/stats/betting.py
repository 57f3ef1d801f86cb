"""Test after every case whether the loss is within a margin or beyond it, at no cost for repeated looks.

**Evidence as a bet.** A case's loss x is baseline − variant, in −1..1. If the mean loss is at least the margin m,
betting on "less was lost" gains nothing in the long run: the capital Π (1 + λ (m − x)), with any stakes λ ≥ 0 chosen
before the case is seen, is a non-negative supermartingale, whatever the discordance. It ever reaches 1/alpha with a
chance of at most alpha (Ville, 1939), so a rule may be tested after each case and generation stopped at any of them.
The mirror image bets on "more was lost". For x in {−1, 0, 1} no other bet grows faster against every discordance at
once: Π (1 + λ (m − x)) is the likelihood ratio of the assumed truth to the null's nearest member (Grünwald, de Heide
and Koolen, JRSS B 86, 2024).

**Stakes.** For a truth with second moment d and mean gain δ the best stakes are r / (1 − r m), r the root in (0, 1) of

    m (1 − d) r² + (d + δ m) r − (δ + m) = 0.

d is estimated from the cases before, starting from the value that fits the length of the list (`presume`). Where the
planned truth is a loss of twice the margin, gains and excess losses estimate the same noise, by maximum likelihood.
49/50 of the capital bet on the planned truth: nothing lost (within), or twice the margin (beyond). The rest bets on the
mean seen so far, so that a loss in between is settled too, later.

**Clusters** are bet on whole: x is then the cluster's loss and m the margin times its size, both over the size of the
largest, known from the closed list. Cases, or clusters, must come in an order independent of their outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, nextafter

import numpy as np
from numpy.typing import ArrayLike, NDArray

METHOD_SEQUENTIAL = "paired_betting/4"
ASSUMED_DISAGREEMENT = 0.05  # of an identical variant: share of answers that change from right to wrong or back
PLANNED_SHARE = 0.98  # of the capital that bets on the planned truth
LIST_IN_MEANS = (
    3.0  # length of a fitting list, in cases that an identical variant takes on average: 2.4 for a list made
)
# for it, 5 for one that also settles twice the margin. Chosen on other cells than the benchmark's.
_LISTED_WEIGHT = 2.0
_LISTED = (0.01, 0.25)  # disagreements that a list can suggest; a longer list was made for something else
_MOST = 0.99  # of the stakes at which one case could lose the whole capital


@dataclass(frozen=True, slots=True, kw_only=True)
class Presumed:
    """Assumed disagreement before the first case; a wrong one costs cases, never validity."""

    disagreement: float = ASSUMED_DISAGREEMENT
    weight: float = 1.0  # in changed answers


UNTOLD = Presumed()


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialResult:
    """Variant − baseline over the cases seen so far, against a loss of `margin`. Field names as in `PairedResult`."""

    n: int
    lost: int  # units in which more was lost than gained
    gained: int
    difference: float
    lower: float  # one-sided bounds of the difference, confidence 1 − alpha each, valid at any stopping time
    upper: float
    p_within: float  # 1 / the largest capital so far, at most 1: small = the loss is proven smaller than the margin
    p_beyond: float
    method: str


def compare_in_sequence(
    loss: ArrayLike,
    margin: float,
    alpha: float = 0.05,
    *,
    size: ArrayLike | None = None,
    largest: int = 1,
    typical: float | None = None,
    presumed: Presumed = UNTOLD,
) -> SequentialResult:
    """Both anytime-valid tests after the units seen so far, in their seeded order, and the bounds that agree with them.

    loss: [units] baseline − variant, summed over the cases of each unit (a case, or a cluster). size: cases of each
    unit, 1 by default; largest, typical: cases of the largest unit of the whole list, and on average. The stakes rest
    on typical, so at every look it must be the same (None: of the units given, right for one look and for units of one
    size). presumed: of the whole list, by `presume`, at every look the same.
    ValueError outside 0 < margin < 1, 0 < alpha < 0.5, |loss| ≤ size ≤ largest.
    """
    x = np.asarray(loss, float)
    sizes = np.ones(len(x)) if size is None else np.asarray(size, float)
    if not 0 < margin < 1 or not 0 < alpha < 0.5 or not 0 < presumed.disagreement < 1:
        raise ValueError(f"margin {margin}, disagreement {presumed.disagreement} or alpha {alpha} is out of range")
    if len(x) != len(sizes) or not len(x) or np.any(np.abs(x) > sizes) or sizes.max() > largest or sizes.min() <= 0:
        raise ValueError("units must come with |loss| ≤ size ≤ largest, at least one")
    n = int(sizes.sum())
    options = {"sizes": sizes, "largest": largest, "typical": typical, "presumed": presumed}
    log_within, log_beyond = (capital(x, margin, beyond=side, **options).max() for side in (False, True))
    p_within, p_beyond = (float(min(1.0, np.exp(-log_capital))) for log_capital in (log_within, log_beyond))

    def excluded(limit: float, *, beyond: bool) -> bool:
        """Return whether the bets reject a loss of `limit`. Bounds stake nothing on the planned truth."""
        return bool(capital(x, limit, beyond=beyond, planned=0.0, **options).max() >= -log(alpha))

    mean = float(x.sum()) / n
    largest_loss = _bound(lambda limit: excluded(limit, beyond=False), mean, 1.0)
    smallest_loss = _bound(lambda limit: excluded(limit, beyond=True), mean, -1.0)
    largest_loss = min(largest_loss, margin) if p_within <= alpha else max(largest_loss, nextafter(margin, 2))
    smallest_loss = max(smallest_loss, margin) if p_beyond <= alpha else min(smallest_loss, nextafter(margin, -2))
    return SequentialResult(
        n=n,
        lost=int(np.count_nonzero(x > 0)),
        gained=int(np.count_nonzero(x < 0)),
        difference=-mean,
        lower=-largest_loss,
        upper=-smallest_loss,
        p_within=p_within,
        p_beyond=p_beyond,
        method=METHOD_SEQUENTIAL,
    )


def presume(margin: float, units: int, alpha: float = 0.05, typical: float = 1.0) -> Presumed:
    """The disagreement of an identical variant that fits a list of so many units, known before the first case.

    With a larger one the list would not settle the question, so stakes for it would be wasted; with a smaller one it is
    settled early anyway. A much longer list suggests nothing. The true disagreement from an earlier run would save
    about a point more of a fixed test's cases (benchmark `decisions`), so none is required. typical: mean cases of a
    unit over those of the largest.
    """
    aim = -LIST_IN_MEANS * log(alpha) / units
    low, high = _LISTED
    if _growth(margin * typical, high * typical) > aim:
        return UNTOLD
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _growth(margin * typical, middle * typical) > aim else (low, middle)
    return Presumed(disagreement=low, weight=_LISTED_WEIGHT)


def _growth(m: float, moment: float) -> float:
    """Growth of the log capital per unit of an identical variant, at the best stakes."""
    stakes = float(_stakes(m, np.array(moment), np.array(0.0)))
    still = 1 + stakes * m
    return moment / 2 * log(still * still - stakes * stakes) + (1 - moment) * log(still)


def capital(
    loss: ArrayLike,
    margin: float,
    *,
    beyond: bool = False,
    sizes: ArrayLike = 1.0,
    largest: float = 1.0,
    typical: float | None = None,
    presumed: Presumed = UNTOLD,
    planned: float = PLANNED_SHARE,
) -> NDArray:
    """Log capital after each unit, [..., units], from 0. beyond: the bet that more than the margin is lost.

    loss: [..., units], any number of sequences side by side. planned: share that bets on the planned truth; the rest
    follows the mean so far. margin: −1..1, in (0, 1) with a planned share.
    """
    x, share = np.asarray(loss, float) / largest, np.asarray(sizes, float) / largest
    share = np.broadcast_to(share, x.shape)
    sign = -1.0 if beyond else 1.0
    typical = float(share.mean()) if typical is None else typical / largest
    m = sign * margin * typical  # in the mirror image a gain is what was a loss
    gain = sign * (margin * share - x)  # of one unit at stakes 1
    edge = _MOST / (1 - sign * margin)  # stakes at which the worst case takes all but a hundredth

    truth = 2 * margin if beyond else 0.0
    disagreement = presumed.disagreement
    assumed = (disagreement + truth) * typical
    before_any = presumed.weight / (disagreement * typical)  # weight of the assumption, in cases
    before = np.arange(x.shape[-1]) + before_any
    if beyond:  # planned: a loss of twice the margin, plus noise that loses as much as it gains
        noise, planned_loss = before_any * disagreement * typical / 2, max(truth, 0.0) * typical
        gains = (_before(np.where(x < 0, x * x, 0.0)) + noise) / before
        losses = (_before(np.where(x > 0, x * x, 0.0)) + noise + before_any * planned_loss) / before
        moment = planned_loss + 2 * _noise(losses, gains, planned_loss)
    else:
        moment = (_before(x * x) + before_any * assumed) / before
    capitals = []
    for portion, drift in (
        (planned, np.full_like(x, -sign * truth * typical)),
        (1 - planned, -sign * (_before(x) + before_any * truth * typical) / before),
    ):
        if portion > 0:
            stakes = np.clip(_stakes(m, moment, drift), 0.0, edge)
            capitals.append(np.log(portion) + np.cumsum(np.log1p(stakes * gain), axis=-1))
    return np.logaddexp(*capitals) if len(capitals) == 2 else capitals[0]


def _before(values: NDArray) -> NDArray:
    """Sums over the entries before each: stakes must not depend on their own case."""
    sums = np.cumsum(values, axis=-1)
    return np.concatenate([np.zeros_like(sums[..., :1]), sums[..., :-1]], axis=-1)


def _noise(losses: NDArray, gains: NDArray, truth: float) -> NDArray:
    """Maximum likelihood rate g of gains, with a rate truth + g of losses: losses / (truth + g) + gains / g = 2."""
    half = (losses + gains - 2 * truth) / 4
    return half + np.sqrt(half * half + truth * gains / 2)


def _stakes(m: float, moment: NDArray, gain: NDArray) -> NDArray:
    """λ that grows fastest against a mean loss of m when gains have this mean and second moment; 0 when none does."""
    gain = np.maximum(gain, -m)
    moment = np.clip(np.maximum(moment, np.abs(gain)), 1e-9, 1.0)
    a, b, c = m * (1 - moment), moment + gain * m, gain + m
    # c over half of b and the root of the discriminant: no cancellation, and right for a = 0.
    r = 2 * c / (b + np.sqrt(np.maximum(b * b + 4 * a * c, 0)) + 1e-12)
    r = np.clip(r, 0.0, _MOST)
    return r / (1 - r * m)


def _bound(excluded, mean: float, end: float) -> float:
    """The limit between the mean and the end of the range at which exclusion begins; the end when it never does."""
    if abs(mean) >= 1 or not excluded(end * 0.999):
        return end
    inside, outside = mean, end * 0.999
    for _ in range(14):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if excluded(middle) else (middle, outside)
    return outside
