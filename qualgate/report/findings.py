"""Findings for a code host: broken and undecided rules, never single samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from qualgate.records import Comparison, FourArm, Verdict
from qualgate.records.identity import content_hash
from qualgate.report.comparison_text import interaction_text, seen_text
from qualgate.report.summary import Report
from qualgate.text.escaping import visible_line

Level = Literal["error", "warning", "note"]
VERDICT = "verdict"  # in place of a rule's id if no rule explains the verdict
FOUR_ARM = "four_arm"  # in place of a rule's id for the choice among four arms
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
    """A message that a host shows beside a line of the gate file."""

    level: Level
    variant: str
    rule: str  # Rule.id or VERDICT
    slice: str
    message: str  # one line, invisible characters made visible
    line: int | None  # of the rule in the gate file; None: the file as a whole

    @property
    def fingerprint(self) -> str:
        """Hash of variant, rule and slice: the same in every run, whatever the numbers."""
        return content_hash([self.variant, self.rule, self.slice])

    @property
    def title(self) -> str:
        """A few words for a list."""
        return f"{self.variant}: {self.rule}"


def findings(report: Report) -> tuple[Finding, ...]:
    """Return errors, then warnings, then notes; within each by variant and rule, in the policy's order."""
    listed = [finding for verdict in report.verdicts for finding in _variant_findings(verdict, report)]
    if not report.verdicts:
        listed = [_finding("error", "run", VERDICT, "", "the run is not complete: nothing is decided", None)]
    if report.settled_by_choice:  # what the other arms did not pass fails nothing
        listed = [replace(finding, level="note") for finding in listed]
    if report.four_arm is not None:
        listed = [*_choice_findings(report.four_arm, report.source.arms), *listed]
    order = ("error", "warning", "note")
    return tuple(sorted(listed, key=lambda finding: order.index(finding.level)))


def _variant_findings(verdict: Verdict, report: Report) -> Iterator[Finding]:
    """Yield the verdict on a variant, unless a finding on one of its rules says as much, then the findings on its
    rules."""
    rules = [finding for rule in verdict.comparisons if (finding := _rule_finding(verdict, rule, report)) is not None]
    if verdict.exit and all(finding.level == "note" for finding in rules):
        level: Level = "error" if verdict.word in ("block", "invalid") else "warning"
        why = f"{verdict.word}: {verdict.reasons[0]}{seen_text(verdict.seen)}"
        yield _finding(level, verdict.variant, VERDICT, "", why, report.source.variant(verdict.variant))
    yield from rules


def _choice_findings(answer: FourArm, line: int | None) -> Iterator[Finding]:
    """Yield the choice, and each proven interaction. line: where the gate file names the arms."""
    level: Level = "note" if answer.exit == 0 else "error" if answer.exit in (10, 13, 14) else "warning"
    yield _finding(level, _ARMS, FOUR_ARM, "", f"{answer.choice or 'not known yet'}: {answer.why}", line)
    level = "warning" if answer.exit else "note"
    for interaction in answer.interactions:
        if interaction.found:
            message = f"quantization and speculation are worse together than apart: {interaction_text(interaction)}"
            yield _finding(level, _ARMS, FOUR_ARM, f"{interaction.metric} {interaction.slice}", message, line)


def _rule_finding(verdict: Verdict, comparison: Comparison, report: Report) -> Finding | None:
    """Return the finding on one rule and slice; None for an outcome that is not worth one, as a proven rule."""
    level = _LEVELS.get((comparison.tier, comparison.status))
    if level is None:
        return None
    message = f"{comparison.status} ({comparison.tier}): {comparison.reason}{seen_text(verdict.seen)}"
    line = report.source.line(comparison.rule)
    return _finding(level, verdict.variant, comparison.rule, comparison.slice, message, line)


def _finding(level: Level, variant: str, rule: str, slice_: str, message: str, line: int | None) -> Finding:
    """Build a finding: stored text made visible, the message cut to LONGEST characters. line: in the gate file; None if
    unknown."""
    text = visible_line(f"{visible_line(variant)}: {message}")
    return Finding(
        level=level,
        variant=visible_line(variant),
        rule=visible_line(rule),
        slice=visible_line(slice_),
        message=text if len(text) <= LONGEST else text[:LONGEST] + " … (cut)",
        line=line,
    )
