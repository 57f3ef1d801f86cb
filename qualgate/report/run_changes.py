"""Changes from one run of a store to another: arms, rules and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from qualgate.records import Comparison
from qualgate.report import screen
from qualgate.report.blocks import Cell, Lines, Note, Section, Table
from qualgate.report.comparison_text import value_text
from qualgate.report.since_last import NO_RULE, rule_pairs
from qualgate.report.terminal_blocks import print_sections
from qualgate.store import queries
from qualgate.store.database import Store, open_store
from qualgate.store.evidence import check_evidence
from qualgate.store.labels import CaseOfRun
from qualgate.store.queries import Changed, RunSummary
from qualgate.text.numbers import counted

NAMED = 10  # cases of each arm and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A variant's newest verdict in each run; None if it has none."""

    variant: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One rule's result on one slice in each run; None if the run has no such rule on the variant."""

    variant: str
    rule: str
    slice: str
    before: Comparison | None
    after: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipChanges:
    """A variant's answers that are worse than the baseline's (right → wrong by some score), in two runs."""

    variant: str
    new: tuple[str, ...]  # names of cases, only in the later run; both runs asked them alike
    gone: tuple[str, ...]  # only in the earlier one
    same: tuple[str, ...]
    asked_once: int  # of cases that only one run asked, or with another reference


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """Differences between two runs, in the order given, whichever is older."""

    before: str
    after: str
    differs: tuple[str, ...]  # differences in arms, evalsets, rules and alpha, one line each
    verdicts: tuple[Words, ...]
    rates: tuple[Rate, ...]  # only those that differ
    scores: tuple[Changed, ...]
    pairs: dict[tuple[str, str], int]  # (arm, metric) → scores that both runs have
    flips: tuple[FlipChanges, ...]


def run_changes(url: str, before: str, after: str, *, checked: bool = False) -> RunChanges:
    """Compare two stored runs. checked: their evidence was found whole a moment ago. Raises UsageError for an unknown
    run, IntegrityError for changed evidence."""
    with open_store(url, create=False) as store:
        run_before, run_after = queries.run_summary(store, before), queries.run_summary(store, after)
        for run_id in () if checked else (before, after):
            check_evidence(store, run_id)
        scores, pairs = queries.changed_scores(store, before, after)
        names = dict.fromkeys(stored.verdict.variant for run in (run_before, run_after) for stored in run.verdicts)
        common = queries.common_answers(store, before, after)
        flips = tuple(_flip_changes(store, before, after, name, common.get(name, frozenset())) for name in names)
    return RunChanges(
        flips=flips,
        before=before,
        after=after,
        differs=tuple(_differences(run_before, run_after)),
        verdicts=tuple(Words(variant=v, before=_word(run_before, v), after=_word(run_after, v)) for v in names),
        rates=tuple(rate for name in names for rate in _changed_rates(run_before, run_after, name)),
        scores=scores,
        pairs=pairs,
    )


def of_variant(changes: RunChanges, variant: str) -> RunChanges:
    """Return the changes of one variant."""
    return replace(
        changes,
        verdicts=tuple(words for words in changes.verdicts if words.variant == variant),
        rates=tuple(rate for rate in changes.rates if rate.variant == variant),
        pairs={key: count for key, count in changes.pairs.items() if key[0] == variant},
        flips=tuple(flip for flip in changes.flips if flip.variant == variant),
    )


def _word(run: RunSummary, variant: str) -> str | None:
    stored = run.verdict(variant)
    return stored.verdict.word if stored else None


def _differences(run_before: RunSummary, run_after: RunSummary) -> Iterator[str]:
    """Yield a line for each arm, evalset, rule, and alpha that is not the same in both runs; runs that
    decide nothing are named first."""
    for run in (run_before, run_after):
        if run.policy.decides_nothing:
            yield f"{run.run_id} is a {run.policy.decides_nothing}"
    arms_before, arms_after = ({arm.name: arm for arm in run.arms} for run in (run_before, run_after))
    for name in dict.fromkeys([*arms_before, *arms_after]):
        if name not in arms_before or name not in arms_after:
            yield f"arm {name}: only in {run_before.run_id if name in arms_before else run_after.run_id}"
            continue
        planned_before, planned_after = arms_before[name].planned, arms_after[name].planned
        fields = [
            field
            for field in planned_before.__dataclass_fields__
            if getattr(planned_before, field) != getattr(planned_after, field)
        ]
        if fields:
            yield f"arm {name}: {', '.join(fields)}"
        if (old := arms_before[name].spec.arithmetic) != (new := arms_after[name].spec.arithmetic):
            yield f"arm {name}: arithmetic ({old} → {new})"
        if (old := arms_before[name].kernels) != (new := arms_after[name].kernels):
            yield f"arm {name}: kernel ({', '.join(old) or '–'} → {', '.join(new) or '–'})"
    sets_before, sets_after = ({item.name: item for item in run.evalsets} for run in (run_before, run_after))
    for name in dict.fromkeys([*sets_before, *sets_after]):
        if name not in sets_before or name not in sets_after:
            yield f"evalset {name}: only in {run_before.run_id if name in sets_before else run_after.run_id}"
        elif (sets_before[name].content, sets_before[name].size) != (sets_after[name].content, sets_after[name].size):
            texts = (f"{item.version}, {item.size}" for item in (sets_before[name], sets_after[name]))
            yield f"evalset {name}: {' → '.join(texts)}"
    rules_before, rules_after = ([rule.id for rule in run.policy.rules] for run in (run_before, run_after))
    yield from (f"rule {rule}: only in {run_before.run_id}" for rule in rules_before if rule not in rules_after)
    yield from (f"rule {rule}: only in {run_after.run_id}" for rule in rules_after if rule not in rules_before)
    if run_before.policy.alpha != run_after.policy.alpha:
        yield f"alpha: {run_before.policy.alpha:g} → {run_after.policy.alpha:g}"
    policies = [{**asdict(run.policy), "rules": 0, "alpha": 0} for run in (run_before, run_after)]
    if fields := [field for field, value in policies[0].items() if value != policies[1][field]]:
        yield f"gate: {', '.join(fields)}"
    for run in (run_before, run_after):
        if any(stored.policy != run.policy for stored in run.verdicts):
            yield f"{run.run_id} was judged again, by another policy than its gate file's"


def _flip_changes(store: Store, before: str, after: str, variant: str, common: frozenset[CaseOfRun]) -> FlipChanges:
    then, now = (queries.flipped_answers(store, run_id, variant, "lost") for run_id in (before, after))

    def named(cases: frozenset[CaseOfRun]) -> tuple[str, ...]:
        return tuple(f"{evalset}/{case}" + (f"#{repeat}" if repeat else "") for evalset, case, repeat in sorted(cases))

    return FlipChanges(
        variant=variant,
        new=named(now & common - then),
        gone=named(then & common - now),
        same=named(then & now & common),
        asked_once=len((then | now) - common),
    )


def _changed_rates(run_before: RunSummary, run_after: RunSummary, variant: str) -> Iterator[Rate]:
    """Yield the comparisons whose shown numbers differ, or that one run lacks (then None)."""
    stored = (run_before.verdict(variant), run_after.verdict(variant))
    for pair in rule_pairs(*(one.verdict if one else None for one in stored)):
        before, after = pair.before, pair.after
        if before is None or after is None or _fields(before) != _fields(after):
            yield Rate(variant=variant, rule=pair.rule, slice=pair.slice, before=before, after=after)


def _fields(comparison: Comparison) -> tuple:
    """Return the fields of a comparison that make it count as changed."""
    return comparison.status, comparison.n, comparison.baseline, comparison.variant, comparison.lower, comparison.upper


def print_run_changes(changes: RunChanges) -> None:
    """Print the changes to stdout, with colours only on a terminal."""
    hint = Section("", (Note("", "--json names every case"),))
    print_sections(screen.console(), (*run_changes_sections(changes), hint))


def run_changes_sections(changes: RunChanges) -> tuple[Section, ...]:
    """Return what differs between the runs: what was judged, verdicts, rules, regressions, scores."""
    same = ("nothing: the same arms, evalsets and rules",)
    verdicts = tuple((words.variant, *map(_word_cell, (words.before, words.after))) for words in changes.verdicts)
    rules = tuple(
        (rate.rule, rate.variant, rate.slice, _numbers(rate.before), _numbers(rate.after)) for rate in changes.rates
    )
    answers = tuple(_answers(changes, *key) for key in changes.pairs) or ("no case was asked in both runs",)
    flips = tuple(
        (flip.variant, *(f"{count:,}" for count in (len(flip.new), len(flip.gone), len(flip.same), flip.asked_once)))
        for flip in changes.flips
    )
    regressions = Table(heads=("variant", "new", "gone", "same", "asked in one run"), rows=flips, numbers=(1, 2, 3, 4))
    named = tuple(line for flip in changes.flips for line in _flip_lines(flip))
    table = Table(heads=("rule", "variant", "slice", "before", "after"), rows=rules)
    return (
        Section("", (Note("", f"{changes.before} → {changes.after}"),)),
        Section("what was judged otherwise", (Lines(changes.differs or same),)),
        Section("verdicts", (Table(heads=("variant", "before", "after"), rows=verdicts),)),
        Section("regressions: right → wrong by some score", (regressions, Lines(named))),
        Section("rules", (table if rules else Lines(("every rule has the same numbers in both runs",)),)),
        Section("answers", (Lines(answers),)),
    )


def _flip_lines(flip: FlipChanges) -> Iterator[str]:
    """Yield a line with the first of the new regressions, and of those that are gone."""
    for word, cases in (("new", flip.new), ("gone", flip.gone)):
        more = [f"and {len(cases) - NAMED:,} more"] if len(cases) > NAMED else []
        if cases:
            yield f"{flip.variant} {word}: {', '.join([*cases[:NAMED], *more])}"


def _word_cell(word: str | None) -> Cell:
    return Cell(word or "no verdict", "status")


def _answers(changes: RunChanges, arm: str, metric: str) -> str:
    """Return how many answers of an arm are worse and better by a metric, and the first of them."""
    scores = [score for score in changes.scores if (score.arm, score.metric) == (arm, metric)]
    worse = sum(score.lost for score in scores)
    changed = f"{worse:,} worse, {len(scores) - worse:,} better" if scores else "the same"
    named = [f"{score.name} {'−' if score.lost else '+'}" for score in scores[:NAMED]]
    more = [f"and {len(scores) - NAMED:,} more"] if len(scores) > NAMED else []
    names = f": {', '.join([*named, *more])}" if scores else ""
    return f"{arm} {metric}: {changed}, of {counted(changes.pairs[arm, metric], 'score')} of both{names}"


def _numbers(comparison: Comparison | None) -> str:
    if comparison is None:
        return NO_RULE
    metric = comparison.metric
    rates = f"{value_text(metric, comparison.baseline)} → {value_text(metric, comparison.variant)}"
    return f"{comparison.status} (n {comparison.n:,}, baseline → variant {rates})"
