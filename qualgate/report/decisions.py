"""People's decisions on a variant, for the whole report. They never change a verdict."""

from __future__ import annotations

from qualgate.report.blocks import Lines, Section
from qualgate.store.decisions import Decision
from qualgate.store.queries import StoredVerdict
from qualgate.text.numbers import counted


def decision_sections(stored: StoredVerdict) -> list[Section]:
    """Return a line for each decision, oldest first; [] without any."""
    lines = tuple(_line(decision, stored) for decision in stored.decisions)
    return [Section("Decisions", (Lines(lines),))] if lines else []


def _line(decision: Decision, stored: StoredVerdict) -> str:
    """Return who decided what when, and why. Whether an approval expired depends on the reader's clock: its end is
    given instead."""
    notes = [f"{decision.action} by {decision.by} on {decision.created_at[:10]}"]
    if decision.verdict_sha256 != stored.sha256:
        notes.append("about an earlier verdict")
    if decision.needed:
        notes.append(f"{counted(decision.needed, 'more approval')} needed, by somebody else")
    if decision.overrules:
        notes.append(f"overrules {decision.overrules}")
    if decision.expires_at is not None:
        notes.append(f"holds until {decision.expires_at[:10]}")
    return f"{', '.join(notes)}: {decision.reason}"
