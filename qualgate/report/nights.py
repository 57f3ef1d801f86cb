"""The numbers of `qualgate trend` for the dashboard, as pictures and lines."""

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
    """One metric of one arm. Stored text in the lines is made visible, but not escaped."""

    arm: str
    metric: str
    first: float  # mean of the reference night
    last: float
    falls: tuple[str, ...]  # a line each
    against: str
    picture: plots.Picture | None  # None of a single night


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNights:
    """The trends and flaky cases of the nights up to a run."""

    trends: tuple[ShownTrend, ...]  # those that fell first
    flaky: tuple[tuple[str, str], ...]  # a line on the case, and its line for `gate.quarantine`
    pruned: str = ""  # "pruned on DATE" if the run's scores were removed


def shown_nights(store: Store, run_id: str) -> ShownNights:
    """Return the trends of a run's nights, with falls told from noise exactly as in `qualgate trend`."""
    shown = sorted(map(_shown, trends(store, run_id)), key=lambda trend: (not trend.falls, trend.arm, trend.metric))
    flaky = queries.flaky(store, run_id)
    with store.read() as connection:
        pruning = pruned(connection, run_id)
    return ShownNights(trends=tuple(shown), flaky=tuple((flaky_line(case), quarantine_line(case)) for case in flaky),
                       pruned=str(pruning or ""))  # fmt: skip


def _shown(trend: ArmTrend) -> ShownTrend:
    """Return what a page shows of one arm's trend by one metric: first and last mean, falls, and the picture."""
    watched = trend.watched
    dates = [began[:10] for began in watched.began]
    return ShownTrend(
        arm=watched.arm,
        metric=watched.metric,
        first=watched.means[0],
        last=watched.means[-1],
        falls=tuple(map(fall_line, falls(trend))),
        against=held_against(trend),
        picture=plots.nights(watched.means, dates, [fall.began for fall in trend.falls]),
    )
