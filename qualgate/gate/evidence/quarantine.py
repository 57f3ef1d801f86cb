"""Apply quarantines of cases, and refuse evidence that is too old.

A quarantine has an owner, a reason and a day on which it expires. It may hold few cases; they still run, and every
verdict names them. `today` is an input: the same evidence on the same day gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from qualgate.records import Policy, Quarantine, RunEvidence, UnitKey
from qualgate.text.numbers import counted

MOST_QUARANTINED = 0.02  # of the run's cases: beyond, the quarantine decides and not the cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The effect of the policy's quarantine on one run today."""

    cases: frozenset[tuple[str, str]] = frozenset()  # (evalset, id) that do not count
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # why nothing may be decided

    def of(self, evalset: str) -> frozenset[str]:
        """Ids of the evalset's cases that do not count."""
        return frozenset(case for name, case in self.cases if name == evalset)


def hold(policy: Policy, expected: Sequence[UnitKey], today: str) -> Held:
    """Apply the policy's quarantine to the run's cases.

    today: YYYY-MM-DD, UTC; "" = unknown: every entry counts as expired. Entries that match no case are listed and do
    nothing.
    """
    if not policy.quarantine:
        return Held()
    run_cases = {(key.evalset, key.case_id) for key in expected}
    live = [entry for entry in policy.quarantine if today and today < entry.expires]
    ended = [entry for entry in policy.quarantine if entry not in live]
    sets: dict[str, list[str]] = {}
    for evalset, case in sorted(run_cases):
        sets.setdefault(case, []).append(evalset)
    cases_by_entry = {
        entry: [(name, entry.case) for name in sets.get(entry.case, ()) if entry.evalset in (None, name)]
        for entry in live
    }
    quarantined = frozenset(case for cases in cases_by_entry.values() for case in cases)
    notes = [_note(entry, cases) for entry, cases in cases_by_entry.items() if cases]
    notes += [f"{_name(entry)}: its quarantine ended on {entry.expires}, it counts ({entry.owner})" for entry in ended]
    notes += [
        f"{_name(entry)}: quarantined, and no case of this run" for entry, cases in cases_by_entry.items() if not cases
    ]
    count = len(quarantined)
    faults = ()
    if count > MOST_QUARANTINED * len(run_cases):
        faults = (
            f"{count} of {counted(len(run_cases), 'case')} are quarantined, over {MOST_QUARANTINED:.0%}: "
            f"mend or drop some ({', '.join(case for _, case in sorted(quarantined)[:3])}{', …' if count > 3 else ''})",
        )
    return Held(cases=quarantined, notes=tuple(notes), faults=faults)


def _name(entry: Quarantine) -> str:
    return entry.case if entry.evalset is None else f"{entry.evalset}/{entry.case}"


def _note(entry: Quarantine, cases: Sequence[tuple[str, str]]) -> str:
    """cases: what it holds, one at least."""
    also = f"; it is a case of {', '.join(name for name, _ in cases)}: `evalset` holds it in one" * (len(cases) > 1)
    return f"{_name(entry)} does not count until {entry.expires}: {entry.reason} ({entry.owner}){also}"


def too_old(evidence: RunEvidence, policy: Policy, now: str) -> tuple[str, ...]:
    """Say why evidence is too old to decide: beyond the policy's `max_age`, from the future, or of unknown age.

    now: UTC, ISO 8601; "" = unknown, which with a `max_age` decides nothing either.
    """
    if policy.max_age is None:
        return ()
    made_at, moment = _moment(evidence.made_at), _moment(now)
    if made_at is None or moment is None:
        return ("how old this evidence is is not known, and the policy sets `max_age`: run again",)
    age = (moment - made_at).total_seconds()
    if age < -MAX_SKEW:
        return (f"this evidence is from the future ({evidence.made_at}): set the clock",)
    if age > policy.max_age:
        return (f"this evidence is {age / 3600:.1f} h old, over the policy's {policy.max_age / 3600:g} h: run again",)
    return ()


MAX_SKEW = 300  # s by which two machines' clocks may differ


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
