"""Read users' feedback on answers, a file of JSON lines with one event each, and match it to the units of a run.

`{"arm": "int4", "evalset": "support", "case_id": "c-17", "answer_sha256": "…", "corrected": true}`: an answer is named
by its unit and by the sha256 of its text (UTF-8), by the `run` that gave it, or by both. `repeat` is 0 by default;
other keys (a time, the kind of correction) are ignored. Answers without feedback stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.jsonl import read_objects
from qualgate.records import RunEvidence, UnitKey


@dataclass(frozen=True, slots=True)
class Event:
    """One user's feedback on one answer. `answer`, `run`: "" if the file omits it; never both."""

    key: UnitKey
    answer: str
    run: str
    corrected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A file of events."""

    sha256: str  # of the file's bytes
    events: tuple[Event, ...]


def read_feedback(path: Path) -> Feedback:
    """Read the events of `path` in order. UsageError names file and line of an invalid event."""
    events = tuple(_event(f"{path}:{line}", body) for line, body in read_objects(path))
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return Feedback(sha256=digest.hexdigest(), events=events)


def corrections(feedback: Feedback, evidence: RunEvidence) -> dict[UnitKey, bool]:
    """Unit → whether its answer was corrected, for units with an event; one correction among several events counts.

    An event of another run or of another answer to the same case says nothing about this one.
    """
    answers: Mapping[UnitKey, str] = {
        unit.key: unit.text_sha256 for arm in (evidence.baseline, *evidence.variants) for unit in arm.units
    }
    corrected: dict[UnitKey, bool] = {}
    for event in feedback.events:
        text = answers.get(event.key)
        if text is None or (event.run and event.run != evidence.run_id) or (event.answer and event.answer != text):
            continue
        corrected[event.key] = corrected.get(event.key, False) or event.corrected
    return corrected


def with_corrections(evidence: RunEvidence, feedback: Feedback | None) -> RunEvidence:
    """Add users' corrections to the evidence; None: no feedback was collected."""
    return evidence if feedback is None else replace(evidence, corrected=corrections(feedback, evidence))


def _event(where: str, body: dict[str, Any]) -> Event:
    """Read one feedback event. where: file and line, for the UsageError of an invalid one."""

    def text(key: str, *, needed: bool = True) -> str:
        value = body.get(key, "" if not needed else None)
        if not isinstance(value, str) or (needed and not value):
            raise UsageError(f"{where}: `{key}` must be a text{' that is not empty' if needed else ''}, "
                             f"found {value!r:.60}")  # fmt: skip
        return value

    repeat, corrected = body.get("repeat", 0), body.get("corrected")
    if type(repeat) is not int or repeat < 0:
        raise UsageError(f"{where}: `repeat` must be a whole number from 0, found {repeat!r:.60}")
    if type(corrected) is not bool:
        raise UsageError(f"{where}: `corrected` must be true or false, found {corrected!r:.60}")
    answer, run = text("answer_sha256", needed=False), text("run", needed=False)
    if answer and not re.fullmatch("[0-9a-f]{64}", answer):
        raise UsageError(f"{where}: `answer_sha256` must be 64 hexadecimal digits, found {answer!r:.60}")
    if not answer and not run:
        raise UsageError(f"{where}: the row names no answer; give its `answer_sha256`, or the `run` that gave it")
    return Event(UnitKey(text("arm"), text("evalset"), text("case_id"), repeat), answer, run, corrected)
