"""A run's nights on the dashboard: the numbers of `qualgate trend`, as pictures and lines."""

from __future__ import annotations

from dataclasses import dataclass

from qualgate.pipeline.nights.digest import fall_line, falls, word
from qualgate.pipeline.nights.trends import ArmTrend, trends
from qualgate.report import plots
from qualgate.report.trend import flaky_line, held_against, quarantine_line
from qualgate.store import queries
from qualgate.store.database import Store
from qualgate.store.prunings import pruned

__all__ = ["ShownNights", "ShownTrend", "shown_nights", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrend:
    """One metric of one arm. Lines hold stored text that is visible, and not escaped."""

    arm: str
    metric: str
    first: float  # mean of the night that the others are held against
    last: float
    falls: tuple[str, ...]  # a line each
    against: str
    picture: plots.Picture | None  # None of a single night


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNights:
    """Of the nights up to a run."""

    trends: tuple[ShownTrend, ...]  # those that fell first
    flaky: tuple[tuple[str, str], ...]  # what is said of a case, and its line for `gate.quarantine`
    pruned: str = ""  # "pruned on DATE" where the run itself has no scores any more


def shown_nights(store: Store, run_id: str) -> ShownNights:
    """Told from noise exactly as `qualgate trend` does."""
    found = sorted(map(_shown, trends(store, run_id)), key=lambda one: (not one.falls, one.arm, one.metric))
    flaky = queries.flaky(store, run_id)
    with store.read() as connection:
        pruning = pruned(connection, run_id)
    return ShownNights(trends=tuple(found), flaky=tuple((flaky_line(case), quarantine_line(case)) for case in flaky),
                       pruned=str(pruning or ""))  # fmt: skip


def _shown(one: ArmTrend) -> ShownTrend:
    seen = one.watched
    dates = [began[:10] for began in seen.began]
    return ShownTrend(
        arm=seen.arm,
        metric=seen.metric,
        first=seen.means[0],
        last=seen.means[-1],
        falls=tuple(map(fall_line, falls(one))),
        against=held_against(one),
        picture=plots.nights(seen.means, dates, [fall.began for fall in one.falls]),
    )
