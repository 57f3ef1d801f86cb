"""Types of a peer's rule: its input and its answer.

A third party writes one function `(Outcomes) -> PeerVerdict` and declares a `PeerRule` as an entry point, see
`registry`. Scores are rates 0..1, higher is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

Says = Literal["pass", "fail", "cannot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Size, mean and deviation of one number per case; repeats are averaged before."""

    n: int
    mean: float  # 0 when n is 0
    sd: float  # with n − 1 below; 0 when n < 2

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Sample:
        """Summarise values (case → number)."""
        numbers = np.fromiter(values.values(), float, len(values))
        n = len(numbers)
        return cls(n=n, mean=float(numbers.mean()) if n else 0.0, sd=float(numbers.std(ddof=1)) if n > 1 else 0.0)

    @property
    def stderr(self) -> float:
        """Standard error of the mean; 0 when n is 0."""
        return self.sd / sqrt(self.n) if self.n else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """One metric of one evalset on both arms, for unpaired and for paired rules."""

    evalset: str
    metric: str
    baseline: Sample
    variant: Sample
    difference: Sample  # variant − baseline, over the cases that both arms answered
    paired_level: float  # mean of the baseline over those
    lost: int  # of those, the variant scored lower
    gained: int
    differences: tuple[float, ...] = ()  # of those, one a case
    scores: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # of all cases of the baseline, and of the variant

    @classmethod
    def of(cls, evalset: str, metric: str, baseline: Mapping[str, float], variant: Mapping[str, float]) -> Outcomes:
        """Summarise both arms. baseline, variant: case → its score, averaged over repeats."""
        differences = {case: variant[case] - baseline[case] for case in sorted(baseline.keys() & variant.keys())}
        return cls(
            evalset=evalset,
            metric=metric,
            baseline=Sample.of(baseline),
            variant=Sample.of(variant),
            difference=Sample.of(differences),
            paired_level=Sample.of({case: baseline[case] for case in differences}).mean,
            lost=sum(value < 0 for value in differences.values()),
            gained=sum(value > 0 for value in differences.values()),
            differences=tuple(differences.values()),
            scores=(tuple(baseline.values()), tuple(variant.values())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerVerdict:
    """Answer of a peer's rule. `cannot`: it has none for these outcomes."""

    name: str
    says: Says
    statistic: float | None  # None where it cannot be computed
    threshold: float | None
    why: str
    source: str  # where the rule stands


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRule:
    """A rule by which a peer would decide, as a distribution declares it."""

    name: str
    source: str
    judge: Callable[[Outcomes], PeerVerdict]  # pure, at the peer's own settings


def unanswered(outcomes: Outcomes) -> str:
    """Say why no rule can answer: an arm without a score. "" when both have some."""
    empty = [name for name in ("baseline", "variant") if not getattr(outcomes, name).n]
    return f"the {' and the '.join(empty)} left no score" if empty else ""


def cannot(name: str, source: str, why: str) -> PeerVerdict:
    """The answer of a rule that has none for these outcomes."""
    return PeerVerdict(name=name, says="cannot", statistic=None, threshold=None, why=why, source=source)
