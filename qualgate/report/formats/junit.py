"""JUnit XML: a suite for each variant, a case for its verdict and for each rule and slice, none for single samples.

A suite is green exactly when the verdict is approve. Failure: proven broken. Error: undecided. A rule that could not
change the verdict is skipped with its reason. Once one of four arms is chosen the choice decides, so failures of the
other arms are skipped too. The output is valid by both schemas in use: Ant's (JUnit.xsd), which requires every
attribute below and allows none in the root, and Jenkins' (junit-10.xsd).
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from qualgate.errors import Exit
from qualgate.records import Comparison, FourArm, Verdict
from qualgate.report.comparison_text import interaction_text, seen_text
from qualgate.report.four_arms import choice_line
from qualgate.report.limits import fitting
from qualgate.report.summary import Report
from qualgate.text.escaping import visible, visible_line
from qualgate.text.numbers import counted

LARGEST = 1_000_000  # bytes of the whole file
NEVER = "1970-01-01T00:00:00"  # timestamp for score files, which no run made
ARMS = "four arms"  # the suite of their choice
LONGEST = 2000  # characters of a message
_HEAD = 800  # bytes of a suite without its cases and its name, and of the file's frame
_OUTCOMES = {  # (tier, status) → element
    ("critical", "broken"): "failure",
    ("critical", "undecided"): "error",
    ("supporting", "broken"): "failure",
    ("supporting", "undecided"): "skipped",
    ("advisory", "broken"): "skipped",
    ("advisory", "undecided"): "skipped",
}
_WORST_FIRST = ("error", "failure", "skipped", "")


def report_as_junit(report: Report) -> str:
    """Render JUnit XML: a suite for each variant, a case for each rule."""
    root = ElementTree.Element("testsuites")
    suites = [(verdict.variant, _cases(verdict, report)) for verdict in report.verdicts]
    if report.four_arm is not None:
        suites.insert(0, (ARMS, _choice_cases(report.four_arm)))
    if not suites:
        undecided = _case("run", "verdict", "error", "nothing is decided", "the run is not complete")
        suites = [("run", [undecided])]
    outputs = {v.variant: seen_text(v.seen).strip(" ()") for v in report.verdicts if v.seen is not None}
    if report.four_arm is not None:
        first = f"try first: {report.four_arm.first} ({report.four_arm.first_why})"
        outputs[ARMS] = f"{choice_line(report.four_arm)}; {visible_line(first)}"
    remaining = LARGEST - _HEAD
    for variant, cases in suites:
        name = visible_line(variant)[:LONGEST]
        # Each suite may take an equal part of the remaining bytes, so that none is crowded out.
        room = remaining // (len(suites) - len(root)) - _HEAD - len(name.encode("utf-8"))
        suite = _suite(name, cases, room)
        suite.set("id", str(len(root)))
        suite.set("timestamp", report.run.created_at[:19] or NEVER)
        ElementTree.SubElement(suite, "system-out").text = _cut(outputs.get(variant, ""))
        ElementTree.SubElement(suite, "system-err")
        ElementTree.indent(suite, level=1)
        root.append(suite)
        remaining -= len(_bytes(suite))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _bytes(root).decode("utf-8") + "\n"


def _suite(name: str, cases: Sequence[ElementTree.Element], room: int) -> ElementTree.Element:
    """Build a suite: the verdict, then the rules. If they do not fit into `room` bytes, the worst stay and a case
    counts the rest."""
    pieces = [
        "".join(("    ", _bytes(case).decode("utf-8"), " " * 20)) for case in cases
    ]  # with the indent that is added later
    if fitting(pieces, room) < len(pieces):
        order = sorted(range(1, len(cases)), key=lambda index: (_WORST_FIRST.index(_outcome(cases[index])), index))
        fits = fitting([pieces[0], *(pieces[index] for index in order)], room - _HEAD)
        left_out = len(cases) - fits
        cases = [cases[0], *(cases[index] for index in sorted(order[: max(0, fits - 1)]))]
        count = counted(left_out, "rule is", "rules are")
        message = f"{count} not shown here, the worst are: see the HTML or JSON report"
        cases.append(_case(name[:100], "left out", "skipped", message, ""))
    counts = {kind: sum(_outcome(case) == kind for case in cases) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        package=name,
        hostname="localhost",  # a report says nothing of the machine, and the schema asks for a name
        time="0",
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    ElementTree.SubElement(suite, "properties")
    suite.extend(cases)
    return suite


def _cases(verdict: Verdict, report: Report) -> list[ElementTree.Element]:
    """Return the cases of a variant's suite: its verdict first, then each rule on each slice. If the choice among four
    arms decides instead, failures are skipped."""
    outcome = "" if verdict.exit == 0 else "failure" if verdict.word == "block" else "error"
    forgiven = report.settled_by_choice
    outcome = "skipped" if outcome and forgiven else outcome
    verdict_case = _case(
        verdict.variant, "verdict", outcome, f"{verdict.word}: {verdict.reasons[0]}", "\n".join(verdict.reasons)
    )
    multi_slice_rules = {
        comparison.rule for comparison in verdict.comparisons if comparison.slice not in comparison.rule
    }
    return [
        verdict_case,
        *(_rule_case(verdict, c, named=c.rule in multi_slice_rules, forgiven=forgiven) for c in verdict.comparisons),
    ]


def _choice_cases(answer: FourArm) -> list[ElementTree.Element]:
    """Return the case of the choice, which decides the suite, and cases for steps and interactions to read."""
    name = ARMS
    outcome = "" if answer.exit == 0 else "failure" if answer.exit == Exit.BLOCK else "error"
    cases = [_case(name, "choice", outcome, choice_line(answer), "")]
    for step in answer.steps:
        message = f"{step.status}: {step.reason}"
        # A passing case shows its name alone, so a declaration goes into the name.
        what = f"{step.step}: {step.reason}" if step.step == "drafting" else step.step
        cases.append(_case(name, f"{step.arm}: {what}", "" if step.status == "proven" else "skipped", message, ""))
    for interaction in answer.interactions:
        title = f"interaction: {interaction.metric} ({interaction.slice})"
        outcome = "skipped" if interaction.found else ""
        cases.append(_case(name, title, outcome, interaction_text(interaction), ""))
    return cases


def _rule_case(verdict: Verdict, comparison: Comparison, *, named: bool, forgiven: bool) -> ElementTree.Element:
    outcome = _OUTCOMES.get((comparison.tier, comparison.status), "")
    outcome = "skipped" if outcome and forgiven else outcome
    name = f"{comparison.rule} ({comparison.slice})" if named else comparison.rule
    return _case(verdict.variant, name, outcome, f"{comparison.status} ({comparison.tier}): {comparison.reason}", "")


def _case(suite: str, name: str, outcome: str, message: str, detail: str) -> ElementTree.Element:
    """Return a test case. outcome: the element inside that marks it, such as `failure`; "" if it passes."""
    names = {"classname": visible_line(suite)[:LONGEST], "name": visible_line(name)[:LONGEST]}
    case = ElementTree.Element("testcase", {**names, "time": "0"})
    if outcome:
        inner = ElementTree.SubElement(case, outcome, message=_cut(visible_line(message)))
        if outcome != "skipped":
            inner.set("type", outcome)
        if detail and outcome != "skipped":
            inner.text = _cut(visible(detail))
    return case


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + " … (cut)"


def _outcome(case: ElementTree.Element) -> str:
    return case[0].tag if len(case) else ""


def _bytes(element: ElementTree.Element) -> bytes:
    return ElementTree.tostring(element, encoding="utf-8")
