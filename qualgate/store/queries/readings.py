"""Tool calls by each reading that scored them: how many of each arm are right, and how many of these were forgiven."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qualgate.store.database import Store
from qualgate.store.queries.flipped import scored_pairs
from qualgate.store.queries.trajectories import ScoredPair

READINGS = {"tool_call.correct": "strict", "tool_call.served": "served", "tool_call.compat": "compat"}  # by metric
_SERVER = re.compile(r"/\d+ (\S+ \d\S*)")  # in a scorer's version: the parser and its version


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingLine:
    """One reading of an evalset's answers; each repeat counts."""

    reading: str  # with the name of the server that reads
    asked: int
    baseline: int  # right
    variant: int
    baseline_forgiven: int  # right by this reading and wrong strictly
    variant_forgiven: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of one evalset that has two or more."""

    evalset: str
    lines: tuple[ReadingLine, ...]


def readings(store: Store, run_id: str, variant: str) -> tuple[Readings, ...]:
    """Return the readings of each evalset that two or more readings scored."""
    return read_by({metric: scored_pairs(store, run_id, variant, metric) for metric in READINGS})


def read_by(scored: Mapping[str, Iterable[ScoredPair]]) -> tuple[Readings, ...]:
    """Return the readings of each evalset that two or more readings scored. scored: metric → both arms' scores, in
    any order."""
    by_set: dict[str, dict[str, dict[tuple[str, int], tuple[float | None, float | None]]]] = {}
    servers: dict[tuple[str, str], set[str]] = {}
    for metric, rows in scored.items():
        for evalset, case_id, repeat, was, now, _, scorer in rows:
            by_set.setdefault(evalset, {}).setdefault(metric, {})[case_id, repeat] = was, now
            servers.setdefault((evalset, metric), set()).update(_SERVER.findall(scorer))
    return tuple(
        Readings(
            evalset=name,
            lines=tuple(_line(metric, by_metric, servers[name, metric]) for metric in READINGS if metric in by_metric),
        )
        for name, by_metric in sorted(by_set.items())
        if len(by_metric) > 1
    )


def _line(
    metric: str, by_metric: Mapping[str, Mapping[tuple[str, int], tuple[float | None, float | None]]], servers: set[str]
) -> ReadingLine:
    """Return one reading's counts of right answers, and of those that the strict reading counts as wrong. by_metric:
    metric → (case, repeat) → baseline's and variant's score; servers: the parsers that read."""
    strictly = by_metric.get("tool_call.correct", {})
    right, forgiven = [0, 0], [0, 0]
    for answer, values in by_metric[metric].items():
        for side, value in enumerate(values):
            right[side] += value == 1
            forgiven[side] += value == 1 and strictly.get(answer, (None, None))[side] == 0
    return ReadingLine(
        reading=" by ".join((READINGS[metric], *([" and ".join(sorted(servers))] if servers else []))),
        asked=len(by_metric[metric]),
        baseline=right[0],
        variant=right[1],
        baseline_forgiven=forgiven[0],
        variant_forgiven=forgiven[1],
    )
