"""Changes from one run of a store to another: arms, rules and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted, value_text
from qualgate.records import Comparison
from qualgate.report import screen
from qualgate.report.screen import fit, indented
from qualgate.report.terminal_blocks import STYLE
from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.evidence import check_evidence
from qualgate.store.queries import Changed, RunSummary

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
class RunChanges:
    """Differences between two runs, in the order given, whichever is older."""

    before: str
    after: str
    differs: tuple[str, ...]  # differences in arms, evalsets, rules and alpha, one line each
    verdicts: tuple[Words, ...]
    rates: tuple[Rate, ...]  # only those that differ
    scores: tuple[Changed, ...]
    pairs: dict[tuple[str, str], int]  # (arm, metric) → scores that both runs have


def run_changes(url: str, before: str, after: str) -> RunChanges:
    """Compare two stored runs. Raises UsageError for an unknown run, IntegrityError for changed evidence."""
    with open_store(url, create=False) as store:
        run_before, run_after = queries.run_summary(store, before), queries.run_summary(store, after)
        for run_id in (before, after):
            check_evidence(store, run_id)
        scores, pairs = queries.changed_scores(store, before, after)
    names = dict.fromkeys(stored.verdict.variant for run in (run_before, run_after) for stored in run.verdicts)
    return RunChanges(
        before=before,
        after=after,
        differs=tuple(_differences(run_before, run_after)),
        verdicts=tuple(Words(variant=v, before=_word(run_before, v), after=_word(run_after, v)) for v in names),
        rates=tuple(rate for name in names for rate in _changed_rates(run_before, run_after, name)),
        scores=scores,
        pairs=pairs,
    )


def _word(run: RunSummary, variant: str) -> str | None:
    stored = run.verdict(variant)
    return stored.verdict.word if stored else None


def _differences(run_before: RunSummary, run_after: RunSummary) -> Iterator[str]:
    """Yield a line for each arm, evalset, rule, and alpha that is not the same in both runs; trials are named first."""
    for run in (run_before, run_after):
        if run.policy.trial:
            yield f"{run.run_id} is a {run.policy.trial.said}"
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


def _changed_rates(run_before: RunSummary, run_after: RunSummary, variant: str) -> Iterator[Rate]:
    """Yield the comparisons whose shown numbers differ, or that one run lacks (then None)."""
    comparisons_before, comparisons_after = _comparisons(run_before, variant), _comparisons(run_after, variant)
    for rule, slice_ in dict.fromkeys([*comparisons_before, *comparisons_after]):
        before, after = comparisons_before.get((rule, slice_)), comparisons_after.get((rule, slice_))
        if before is None or after is None or _fields(before) != _fields(after):
            yield Rate(variant=variant, rule=rule, slice=slice_, before=before, after=after)


def _comparisons(run: RunSummary, variant: str) -> dict[tuple[str, str], Comparison]:
    """Return a variant's comparisons by rule and slice; {} if it has no verdict."""
    stored = run.verdict(variant)
    return {(c.rule, c.slice): c for c in stored.verdict.comparisons} if stored else {}


def _fields(comparison: Comparison) -> tuple:
    """Return the fields of a comparison that make it count as changed."""
    return comparison.status, comparison.n, comparison.baseline, comparison.variant, comparison.lower, comparison.upper


def print_run_changes(changes: RunChanges) -> None:
    """Print the changes to stdout, with colours only on a terminal."""
    console = screen.console()
    console.print(Text(f"{visible_line(changes.before)} → {visible_line(changes.after)}", style="bold"))
    console.print(Text("\nwhat was judged otherwise", style="bold"))
    for line in changes.differs or ("nothing: the same arms, evalsets and rules",):
        console.print(Text(fit(f"  {visible_line(line)}")))
    console.print(Text("\nverdicts", style="bold"))
    for words in changes.verdicts:
        verdict_texts = (
            _styled(word) for word in ((words.before,) if words.before == words.after else (words.before, words.after))
        )
        console.print(Text.assemble(f"  {visible_line(words.variant)}  ", Text(" → ").join(verdict_texts)))
    if changes.rates:
        console.print(Text("\nrules", style="bold"))
    for rate in changes.rates:
        console.print(indented(f"{visible_line(rate.variant)}  {visible_line(rate.rule)} ({visible_line(rate.slice)})"))
        console.print(indented(Text(f"{_numbers(rate.before)} → {_numbers(rate.after)}", style="dim"), 6))
    console.print(Text("\nanswers", style="bold"))
    for (arm, metric), pairs in changes.pairs.items():
        scores = [score for score in changes.scores if (score.arm, score.metric) == (arm, metric)]
        worse = sum(score.lost for score in scores)
        changed = f"{worse:,} worse, {len(scores) - worse:,} better" if scores else "the same"
        console.print(
            indented(f"{visible_line(arm)}  {visible_line(metric)}: {changed}, of {counted(pairs, 'score')} of both")
        )
        named = [f"{visible_line(score.name)} {'−' if score.lost else '+'}" for score in scores[:NAMED]]
        more = [f"and {len(scores) - NAMED:,} more (--json)"] if len(scores) > NAMED else []
        if scores:
            console.print(indented(Text(", ".join([*named, *more]), style="dim"), 6))
    if not changes.pairs:
        console.print(Text("  no case was asked in both runs"))


def _styled(word: str | None) -> Text:
    return Text(visible_line(word or "no verdict").upper(), style=STYLE.get(word or "", "dim"))


def _numbers(comparison: Comparison | None) -> str:
    if comparison is None:
        return "no such rule"
    metric = comparison.metric
    rates = f"{value_text(metric, comparison.baseline)} → {value_text(metric, comparison.variant)}"
    return f"{visible_line(comparison.status)} (n {comparison.n:,}, baseline → variant {rates})"
