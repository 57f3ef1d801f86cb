"""Trends over nights: each arm's numbers since the approved run, and falls in them."""

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
    """One metric of one arm, and what was told from its noise."""

    watched: Watched
    told: Trend

    @property
    def falls(self) -> tuple[Fall, ...]:
        """Since the approved run."""
        return self.told.falls

    @property
    def tonight(self) -> bool:
        """Whether the newest night is the one on which a fall was told."""
        return bool(self.falls) and self.falls[-1].detected == len(self.watched.run_ids) - 1


def trends(store: Store, run_id: str, alpha: float = 0.05) -> tuple[ArmTrend, ...]:
    """Of every arm and metric of the run. An arm's metrics share alpha: it is the chance that any of them is told to
    have fallen, within a year in which none did."""
    return judge_nights(queries.watched(store, run_id), alpha)


def judge_nights(watched: Sequence[Watched], alpha: float = 0.05) -> tuple[ArmTrend, ...]:
    """As `trends`, of nights that were read before."""
    beside = Counter(one.arm for one in watched)
    return tuple(
        ArmTrend(
            watched=one,
            told=trend(np.array(one.values), weight=one.weight, series=beside[one.arm], alpha=alpha),
        )
        for one in watched
    )
