"""Sum up what people preferred: wins, their rate, agreement between reviewers, and a taste for the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qualgate.records import JudgedArm, Vote
from qualgate.records.judged import PairKey
from qualgate.stats.intervals import binomial_lower, binomial_upper, clustered_share
from qualgate.stats.preferences import leaning
from qualgate.stats.reviewers import Agreement, agreement
from qualgate.text.numbers import counted

SIDE = 0.025  # error of each bound: the intervals are 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share with a 95 % interval, and the p-value of a half."""

    share: float
    lower: float
    upper: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What people preferred of one variant. A case is one observation, whoever compared it and however often."""

    preferences: int
    reviewers: tuple[str, ...]
    wins: int  # cases
    losses: int
    ties: int
    rate: Share | None  # of the cases that the variant wins, a tie as half; None without any
    first: Share | None  # of the preferences for an answer, those for the one shown first; None without any
    agreement: Agreement | None  # None: no two reviewers of one case, or nobody ever differed

    @property
    def leans(self) -> str:
        """The place that the reviewers prefer, whatever stands there; "" where the interval holds a half."""
        if self.first is None or self.first.lower <= 0.5 <= self.first.upper:
            return ""
        return "first" if self.first.share > 0.5 else "second"


def majority(votes: Sequence[Vote]) -> float:
    """Return what most of these people prefer: 1 the variant's answer, 0 the baseline's, 0.5 neither."""
    net = sum(vote.win - 0.5 for vote in votes)
    return 0.5 if net == 0 else float(net > 0)


def summary(votes: Mapping[PairKey, Sequence[Vote]]) -> Summary:
    """Sum up the votes on one variant's pairs.

    A case goes to the side that most votes on it prefer, its repeats together, else it is a tie. p of `rate`: the exact
    two-sided sign test of won against lost cases, ties left out. Its interval: Clopper and Pearson's with a tie as half
    a win, which is never too narrow, since a tie spreads less than a win or a loss. `first`: the same test and interval
    of single preferences. Their sides were drawn each by itself, so without a taste for a place each is a fair coin,
    however much the preferences for an arm depend on each other.
    """
    by_case: dict[tuple[str, str], list[Vote]] = {}
    for (evalset, case_id, _), some in votes.items():
        by_case.setdefault((evalset, case_id), []).extend(some)
    cases = [some for some in by_case.values() if some]
    results = [majority(some) for some in cases]
    every = [vote for some in cases for vote in some]
    won, lost = results.count(1.0), results.count(0.0)
    first, second = (sum(vote.place == place for vote in every) for place in ("first", "second"))
    return Summary(
        preferences=len(every),
        reviewers=tuple(sorted({vote.reviewer for vote in every})),
        wins=won,
        losses=lost,
        ties=len(results) - won - lost,
        rate=_rate(results, leaning(won, lost)),
        first=_coin(first, second),
        agreement=agreement([[vote.win for vote in some] for some in votes.values()]),
    )


def _rate(results: Sequence[float], p: float) -> Share | None:
    if not results:
        return None
    n, won = len(results), float(sum(results))
    if n == 1:
        return Share(share=won, lower=0.0, upper=1.0, p=p)
    bounds = clustered_share(np.array(results), np.ones(n), np.arange(n), 0.5, SIDE)
    return Share(share=bounds.estimate, lower=bounds.lower, upper=bounds.upper, p=p)


def _coin(heads: int, tails: int) -> Share | None:
    n = heads + tails
    if not n:
        return None
    lower, upper = binomial_lower(heads, n, SIDE), binomial_upper(heads, n, SIDE)
    return Share(share=heads / n, lower=lower, upper=upper, p=leaning(heads, tails))


def people_notes(arm: JudgedArm | None) -> tuple[str, ...]:
    """Tell which preferences a verdict read, how far the reviewers agree, and where they prefer a place."""
    if arm is None or not any(arm.votes.values()):
        return ()
    found = summary(arm.votes)
    given = f"{counted(found.preferences, 'preference')} of {counted(len(found.reviewers), 'reviewer')}"
    first = f"people: {given} ({arm.read[:16]}){agreement_text(found)}"
    return (first, *(f"people: {line}" for line in side_lines(found)))


def agreement_text(found: Summary) -> str:
    """Return "; Krippendorff's alpha 0.71 (0.52 to 0.86)", "" without one."""
    alpha = found.agreement
    if alpha is None:
        return ""
    return f"; Krippendorff's alpha {alpha.alpha:.2f} ({alpha.lower:.2f} to {alpha.upper:.2f})"


def side_lines(found: Summary) -> tuple[str, ...]:
    """Name a taste for a place."""
    if not found.leans or (first := found.first) is None:
        return ()
    return (
        f"they prefer the answer shown {found.leans}, whichever it is: {first.share:.0%} first ({first.lower:.0%} to "
        f"{first.upper:.0%}, p = {first.p:.2g}). Sides were drawn, so this favours no arm, but it hides a difference",
    )
