"""Cases that do not count for a while, and evidence that no longer does.

A quarantine has an owner, a reason and a day on which it ends by itself; it may hold few cases, they still run, and
every verdict names them. `today` is an input: the same evidence on the same day gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from qualgate.formatting import counted
from qualgate.records import Policy, Quarantine, RunEvidence, UnitKey

MOST_QUARANTINED = 0.02  # of the run's cases: beyond, the quarantine decides and not the cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a quarantine does to one run today."""

    cases: frozenset[tuple[str, str]] = frozenset()  # (evalset, id) that do not count
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # why nothing may be decided

    def of(self, evalset: str) -> frozenset[str]:
        """Ids of the evalset's cases that do not count."""
        return frozenset(case for name, case in self.cases if name == evalset)


def hold(policy: Policy, expected: Sequence[UnitKey], today: str) -> Held:
    """today: YYYY-MM-DD, UTC; "" = not told, and then no entry is in force, as if all had expired.

    Entries of no case of the run are named and do nothing.
    """
    if not policy.quarantine:
        return Held()
    asked = {(key.evalset, key.case_id) for key in expected}
    live = [entry for entry in policy.quarantine if today and today < entry.expires]
    ended = [entry for entry in policy.quarantine if entry not in live]
    sets: dict[str, list[str]] = {}
    for evalset, case in sorted(asked):
        sets.setdefault(case, []).append(evalset)
    found = {
        entry: [(name, entry.case) for name in sets.get(entry.case, ()) if entry.evalset in (None, name)]
        for entry in live
    }
    held = frozenset(one for cases in found.values() for one in cases)
    notes = [_said(entry, cases) for entry, cases in found.items() if cases]
    notes += [f"{_name(entry)}: its quarantine ended on {entry.expires}, it counts ({entry.owner})" for entry in ended]
    notes += [f"{_name(entry)}: quarantined, and no case of this run" for entry, cases in found.items() if not cases]
    count = len(held)
    faults = ()
    if count > MOST_QUARANTINED * len(asked):
        faults = (
            f"{count} of {counted(len(asked), 'case')} are quarantined, over {MOST_QUARANTINED:.0%}: "
            f"mend or drop some ({', '.join(case for _, case in sorted(held)[:3])}{', …' if len(held) > 3 else ''})",
        )
    return Held(cases=held, notes=tuple(notes), faults=faults)


def _name(entry: Quarantine) -> str:
    return entry.case if entry.evalset is None else f"{entry.evalset}/{entry.case}"


def _said(entry: Quarantine, cases: Sequence[tuple[str, str]]) -> str:
    """cases: what it holds, one at least."""
    also = f"; it is a case of {', '.join(name for name, _ in cases)}: `evalset` holds it in one" * (len(cases) > 1)
    return f"{_name(entry)} does not count until {entry.expires}: {entry.reason} ({entry.owner}){also}"


def too_old(evidence: RunEvidence, policy: Policy, now: str) -> tuple[str, ...]:
    """Why evidence is too old to decide: beyond the policy's `max_age`, from the future, or of unknown age.

    now: UTC, ISO 8601; "" = not told, which with a `max_age` decides nothing either.
    """
    if policy.max_age is None:
        return ()
    made, at = _moment(evidence.made_at), _moment(now)
    if made is None or at is None:
        return ("how old this evidence is is not known, and the policy sets `max_age`: run again",)
    age = (at - made).total_seconds()
    if age < -MAX_SKEW:
        return (f"this evidence is from the future ({evidence.made_at}): set the clock",)
    if age > policy.max_age:
        return (f"this evidence is {age / 3600:.1f} h old, over the policy's {policy.max_age / 3600:g} h: run again",)
    return ()


MAX_SKEW = 300  # s by which two machines' clocks may differ


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
