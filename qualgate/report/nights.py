"""The trend of a run's nights for the dashboard."""

from __future__ import annotations

from dataclasses import dataclass

from qualgate.pipeline.nights.digest import word
from qualgate.pipeline.nights.trends import trends
from qualgate.report.blocks import Section
from qualgate.report.trend import trend_sections
from qualgate.store import queries
from qualgate.store.database import Store
from qualgate.store.prunings import pruned

__all__ = ["ShownNights", "shown_nights", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNights:
    """The trends and flaky cases of the nights up to a run."""

    sections: tuple[Section, ...]
    compared: bool  # False if no earlier complete run asked the same cases
    pruned: str = ""  # "pruned on DATE" if the run's scores were removed


def shown_nights(store: Store, run_id: str, variant: str | None = None) -> ShownNights:
    """Return the trends of a run's nights as in `qualgate trend`, those that fell first; of all arms, or of one."""
    shown = sorted(trends(store, run_id), key=lambda trend: (not trend.falls, trend.watched.arm, trend.watched.metric))
    shown = [trend for trend in shown if variant in (None, trend.watched.arm)]
    flaky = [case for case in queries.flaky(store, run_id) if variant in (None, case.arm)]
    sections = trend_sections(shown, flaky)
    with store.read() as connection:
        pruning = pruned(connection, run_id)
    return ShownNights(sections=tuple(sections), compared=bool(shown), pruned=str(pruning or ""))
