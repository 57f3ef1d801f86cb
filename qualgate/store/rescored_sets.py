"""Evalsets as a later scoring read them: other metrics, other references, the same questions.

A scoring stores every set that differs from the recorded one, and of its cases only the keys that differ. The recorded
sets and cases stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qualgate.records import Case, Evalset, ScoredAgain

Changes = Mapping[str, Any]  # key of a case's body → its new value; None: the key was taken out


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredSet:
    """An evalset as a later scoring read it, in place of the recorded one."""

    version: str
    sha256: str
    metrics: tuple[str, ...]
    lenient: tuple[str, ...]
    normalizers: tuple[str, ...]
    forgiving: bool = False  # whether `lenient` or `normalizers` differ from the recorded ones
    cases: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # id → Changes

    def references(self, case_id: str) -> dict[str, Any]:
        """Return the changed keys of a case except tags, which are no reference."""
        return {key: value for key, value in self.cases.get(case_id, {}).items() if key != "tags"}

    @property
    def corrected(self) -> list[str]:
        """Ids of cases with other references."""
        return sorted(case for case in self.cases if self.references(case))

    @property
    def retagged(self) -> bool:
        """Whether a case has other tags."""
        return any("tags" in changes for changes in self.cases.values())


def rescored_sets(recorded: Sequence[Evalset], today: Sequence[Evalset]) -> dict[str, RescoredSet]:
    """Return the sets that differ. today: the same sets with the same case ids."""
    recorded_sets = {item.name: item for item in recorded}
    return {
        item.name: _rescored(recorded_sets[item.name], item)
        for item in today
        if differs(recorded_sets[item.name], item)
    }


def differs(before: Evalset, after: Evalset) -> bool:
    """Whether two readings of one set differ for a scorer."""
    return before.content != after.content or before.cases != after.cases


def _rescored(recorded: Evalset, today: Evalset) -> RescoredSet:
    """Return how today's reading of a set differs from the recorded one, case by case."""
    bodies = {case.id: case.body for case in recorded.cases}
    changes = {case.id: _changes(bodies[case.id], case.body) for case in today.cases}
    return RescoredSet(
        version=today.version,
        sha256=today.sha256,
        metrics=today.metrics,
        lenient=today.lenient,
        normalizers=today.normalizers,
        forgiving=(recorded.lenient, recorded.normalizers) != (today.lenient, today.normalizers),
        cases={case_id: changed for case_id, changed in changes.items() if changed},
    )


def _changes(before: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed and new keys of a case's body with their values; None for a removed key."""
    removed = dict.fromkeys(before.keys() - today.keys())
    return removed | {key: value for key, value in today.items() if key not in before or before[key] != value}


def as_rescored(item: Evalset, sets: Mapping[str, RescoredSet]) -> Evalset:
    """Return the recorded set as the scoring read it."""
    if (new := sets.get(item.name)) is None:
        return item
    cases = tuple(Case(evalset=item.name, body=corrected(case.body, item.name, sets)) for case in item.cases)
    return replace(
        item, version=new.version, sha256=new.sha256, metrics=new.metrics, lenient=new.lenient,
        normalizers=new.normalizers, cases=cases,
    )  # fmt: skip


def corrected(body: dict[str, Any], evalset: str, sets: Mapping[str, RescoredSet]) -> dict[str, Any]:
    """Return a recorded case's body with the references that the scoring read."""
    changes = sets[evalset].cases.get(body["id"], {}) if evalset in sets else {}
    gone = {key for key, value in changes.items() if value is None}
    return {key: value for key, value in {**body, **changes}.items() if key not in gone}


def scored_again(
    at: str, before: Mapping[str, Collection[str]], now: Mapping[str, Collection[str]], sets: Mapping[str, RescoredSet]
) -> ScoredAgain | None:
    """Return how a scoring differs from the recorded one apart from scorer versions; None if it does not.

    before, now: evalset → metrics that its answers have scores for.
    """
    metrics = {
        name: (tuple(sorted(before.get(name, ()))), tuple(sorted(now[name])))
        for name in sorted(now)
        if set(before.get(name, ())) != set(now[name])
    }
    cases = tuple((name, case) for name in sorted(sets) for case in sets[name].corrected)
    forgiving = tuple(name for name in sorted(sets) if sets[name].forgiving)
    retagged = tuple(name for name in sorted(sets) if sets[name].retagged)
    if not (metrics or cases or forgiving or retagged):
        return None
    return ScoredAgain(at=at, metrics=metrics, corrected=cases, forgiving=forgiving, retagged=retagged)
