"""Trends over nights: each arm's metrics since the approved run, and falls in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qualgate.stats.trend import Fall, Trend, trend
from qualgate.store import queries
from qualgate.store.database import Store
from qualgate.store.queries.nights import Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTrend:
    """One metric of one arm, and its trend."""

    watched: Watched
    trend: Trend

    @property
    def falls(self) -> tuple[Fall, ...]:
        """The falls since the approved run."""
        return self.trend.falls

    @property
    def tonight(self) -> bool:
        """Whether the newest night is the one that detected a fall."""
        return bool(self.falls) and self.falls[-1].detected == len(self.watched.run_ids) - 1


def trends(store: Store, run_id: str, alpha: float = 0.05) -> tuple[ArmTrend, ...]:
    """Return the trend of every arm and metric of the run. An arm's metrics share alpha, the chance of any false fall
    within a year."""
    return judge_nights(queries.watched(store, run_id), alpha)


def judge_nights(watched: Sequence[Watched], alpha: float = 0.05) -> tuple[ArmTrend, ...]:
    """Return the trends of nights that were already read, as `trends` does."""
    beside = Counter(series.arm for series in watched)
    return tuple(
        ArmTrend(
            watched=series,
            trend=trend(np.array(series.values), weight=series.weight, series=beside[series.arm], alpha=alpha),
        )
        for series in watched
    )
