"""Findings for a code host: rules that were broken or not shown to be kept, never a single sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from qualgate.escaping import visible_line
from qualgate.formatting import seen_text
from qualgate.identity import content_hash
from qualgate.records import Comparison, FourArm, Verdict
from qualgate.report.arms import interaction_text
from qualgate.report.summary import Report

Level = Literal["error", "warning", "note"]
VERDICT = "verdict"  # stands for a rule where no rule explains the verdict
FOUR_ARM = "four_arm"  # and for the choice among four arms
_ARMS = "four arms"
LONGEST = 1000  # characters of a message
_LEVELS: dict[tuple[str, str], Level] = {  # (tier, status)
    ("critical", "broken"): "error",
    ("critical", "undecided"): "warning",
    ("supporting", "broken"): "warning",
    ("supporting", "undecided"): "note",
    ("advisory", "broken"): "note",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a host shows beside a line of the gate file."""

    level: Level
    variant: str
    rule: str  # Rule.id or VERDICT
    slice: str
    message: str  # one line, what is invisible made visible
    line: int | None  # of the rule in the gate file; None: of the file as a whole

    @property
    def fingerprint(self) -> str:
        """The same for the same rule, slice and variant in every run, whatever the numbers."""
        return content_hash([self.variant, self.rule, self.slice])

    @property
    def title(self) -> str:
        """A few words for a list."""
        return f"{self.variant}: {self.rule}"


def findings(report: Report) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; within each by variant and rule as the policy has them."""
    found = [finding for verdict in report.verdicts for finding in _of(verdict, report)]
    if not report.verdicts:
        found = [_finding("error", "run", VERDICT, "", "the run is not complete: nothing is decided", None)]
    if report.settled_by_choice:  # what the other arms did not pass fails nothing
        found = [replace(one, level="note") for one in found]
    if report.four_arm is not None:
        found = [*_of_choice(report.four_arm, report.source.arms), *found]
    order = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def _of(verdict: Verdict, report: Report) -> Iterator[Finding]:
    rules = [found for one in verdict.comparisons if (found := _of_rule(verdict, one, report)) is not None]
    if verdict.exit and all(found.level == "note" for found in rules):
        level: Level = "error" if verdict.word in ("block", "invalid") else "warning"
        why = f"{verdict.word}: {verdict.reasons[0]}{seen_text(verdict.seen)}"
        yield _finding(level, verdict.variant, VERDICT, "", why, report.source.variant(verdict.variant))
    yield from rules


def _of_choice(answer: FourArm, line: int | None) -> Iterator[Finding]:
    """The choice, whichever it is, and each interaction that was found. line: where the gate file names the arms."""
    level: Level = "note" if answer.exit == 0 else "error" if answer.exit in (10, 13, 14) else "warning"
    yield _finding(level, _ARMS, FOUR_ARM, "", f"{answer.choice or 'not known yet'}: {answer.why}", line)
    level = "warning" if answer.exit else "note"
    for one in answer.interactions:
        if one.found:
            said = f"quantization and speculation are worse together than apart: {interaction_text(one)}"
            yield _finding(level, _ARMS, FOUR_ARM, f"{one.metric} {one.slice}", said, line)


def _of_rule(verdict: Verdict, one: Comparison, report: Report) -> Finding | None:
    level = _LEVELS.get((one.tier, one.status))
    if level is None:
        return None
    message = f"{one.status} ({one.tier}): {one.reason}{seen_text(verdict.seen)}"
    return _finding(level, verdict.variant, one.rule, one.slice, message, report.source.line(one.rule))


def _finding(level: Level, variant: str, rule: str, part: str, message: str, line: int | None) -> Finding:
    said = visible_line(f"{visible_line(variant)}: {message}")
    return Finding(
        level=level,
        variant=visible_line(variant),
        rule=visible_line(rule),
        slice=visible_line(part),
        message=said if len(said) <= LONGEST else said[:LONGEST] + " … (cut)",
        line=line,
    )
