"""The sections of a report, in the order in which every format and the dashboard show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qualgate.records import Comparison
from qualgate.report import plots
from qualgate.report.arms import arm_notes, arms_table
from qualgate.report.blocks import Block, Cell, Figure, Lines, Note, Section, Table, Terms
from qualgate.report.comparison_text import difference_and_bounds, drift_terms, flips_text, value_text
from qualgate.report.four_arms import service_sections
from qualgate.report.readings import reading_sections
from qualgate.report.served import served_sections
from qualgate.report.speculation import speculation_sections
from qualgate.report.summary import Report
from qualgate.report.trajectories import trajectory_sections
from qualgate.report.weights_and_cache import weights_and_cache_sections
from qualgate.store.queries import StoredVerdict
from qualgate.text.numbers import counted, stop_texts, version_text

BOUNDS = "difference [bounds]"  # a column's head
FAILURES = 5  # that a terminal shows


def variant_sections(report: Report, stored: StoredVerdict) -> list[Section]:
    """Return what was measured of a variant. Of invalid evidence only the rules and the costs are shown."""
    subjects = SUBJECTS[:2] if stored.verdict.word == "invalid" else SUBJECTS
    return [section for subject in subjects for section in subject(report, stored)]


def rules_table(comparisons: Iterable[Comparison]) -> Table:
    """Return each rule's result on each slice."""
    heads = ("rule", "slice", "tier", "n", "baseline", "variant", BOUNDS, "lost / gained", "result")
    rows = tuple(
        (
            comparison.rule,
            comparison.slice,
            comparison.tier,
            str(comparison.n),
            value_text(comparison.metric, comparison.baseline),
            value_text(comparison.metric, comparison.variant),
            difference_and_bounds(comparison),
            flips_text(comparison),
            Cell(comparison.status, "status"),
        )
        for comparison in comparisons
    )
    return Table(heads=heads, rows=rows, numbers=range(3, 8))


def _rules(report: Report, stored: StoredVerdict) -> list[Section]:
    comparisons = stored.verdict.comparisons
    pictures = plots.margins(comparisons, stored.policy)
    figures = (Figure(picture=picture, caption=caption) for caption, picture in pictures)
    return [Section("Rules", (*figures, rules_table(comparisons)))] if comparisons else []


def _changed(report: Report, stored: StoredVerdict) -> list[Section]:
    picture = plots.flips(report.flip_counts.get(stored.verdict.variant, ()))
    caption = "By set: right → wrong and wrong → right"
    return [Section("Answers that changed", (Figure(picture=picture, caption=caption),))] if picture else []


def _drift(report: Report, stored: StoredVerdict) -> list[Section]:
    verdict = stored.verdict
    picture = plots.drift(report.drift.get(verdict.variant, ()))
    blocks: list[Block] = [Figure(picture=picture, caption=plots.DRIFT_CAPTION)] if picture else []
    blocks += [Terms(rows=tuple(drift_terms(verdict.drift)), brief=True)] if verdict.drift else []
    return [Section("Drift (ranks and warns)", tuple(blocks))] if blocks else []


def _ends(report: Report, stored: StoredVerdict) -> list[Section]:
    ends = "; ".join(stop_texts(stored.verdict.stop_reasons))
    return [Section("", (Note(f"Answers ended by: {ends}", kind="quiet"),))] if ends else []


# To add a subject: a function in its own file, and a line here.
SUBJECTS: tuple[Callable[[Report, StoredVerdict], list[Section]], ...] = (
    _rules,
    lambda report, stored: service_sections(stored.verdict),
    lambda report, stored: weights_and_cache_sections(stored.verdict),
    lambda report, stored: speculation_sections(stored.verdict),
    lambda report, stored: trajectory_sections(report.trajectories.get(stored.verdict.variant, ())),
    lambda report, stored: reading_sections(report.readings.get(stored.verdict.variant, ())),
    _changed,
    _drift,
    _ends,
)


def setting_sections(report: Report) -> list[Section]:
    """Return what was judged: evalsets, policy, arms and how they were served, and what could not be run."""
    run, policy = report.run, report.policy
    sets = ", ".join(f"{item.name} {version_text(item.version)} ({item.size})" for item in run.evalsets)
    early = "; generation stops early" if policy.stop else ""
    rules = f"{counted(len(policy.rules), 'rule')}, alpha {policy.alpha:g}, one-sided; review {policy.review}{early}"
    blocks = (
        Note(f"Evalsets: {sets}."),
        Note(f"Policy: {rules}."),
        arms_table(run.arms),
        Lines(tuple(arm_notes(run.arms, run.judging))),
    )
    failures = [Section("What could not be run", (Lines(run.failures, most=FAILURES),))] if run.failures else []
    return [Section("What was judged", blocks), *served_sections(run.arms), *failures]
