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
from qualgate.report.terminal import STYLE
from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.evidence import check_evidence
from qualgate.store.queries import Changed, RunSummary

NAMED = 10  # cases of each arm and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A variant's newest verdict in either run; None where it has none there."""

    variant: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One rule on one slice, in either run; None where that run has no such rule on the variant."""

    variant: str
    rule: str
    slice: str
    before: Comparison | None
    after: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """Of two runs, the older one given first or not."""

    before: str
    after: str
    differs: tuple[str, ...]  # what was judged or asked otherwise, one line each
    verdicts: tuple[Words, ...]
    rates: tuple[Rate, ...]  # only those that differ
    scores: tuple[Changed, ...]
    pairs: dict[tuple[str, str], int]  # (arm, metric) → scores that both runs have


def run_changes(url: str, before: str, after: str) -> RunChanges:
    """UsageError for a run that is not there, IntegrityError for one that was changed."""
    with open_store(url, create=False) as store:
        one, other = queries.run_summary(store, before), queries.run_summary(store, after)
        for run_id in (before, after):
            check_evidence(store, run_id)
        scores, pairs = queries.changed_scores(store, before, after)
    names = dict.fromkeys(found.verdict.variant for run in (one, other) for found in run.verdicts)
    return RunChanges(
        before=before,
        after=after,
        differs=tuple(_differs(one, other)),
        verdicts=tuple(Words(variant=name, before=_word(one, name), after=_word(other, name)) for name in names),
        rates=tuple(rate for name in names for rate in _rates(one, other, name)),
        scores=scores,
        pairs=pairs,
    )


def _word(run: RunSummary, variant: str) -> str | None:
    found = run.verdict(variant)
    return found.verdict.word if found else None


def _differs(one: RunSummary, other: RunSummary) -> Iterator[str]:
    for run in (one, other):
        if run.policy.trial:
            yield f"{run.run_id} is a {run.policy.trial.said}"
    arms, later = ({arm.name: arm for arm in run.arms} for run in (one, other))
    for name in dict.fromkeys([*arms, *later]):
        if name not in arms or name not in later:
            yield f"arm {name}: only in {one.run_id if name in arms else other.run_id}"
            continue
        then, now = arms[name].planned, later[name].planned
        fields = [field for field in then.__dataclass_fields__ if getattr(then, field) != getattr(now, field)]
        if fields:
            yield f"arm {name}: {', '.join(fields)}"
        if (was := arms[name].spec.arithmetic) != (is_ := later[name].spec.arithmetic):
            yield f"arm {name}: arithmetic ({was} → {is_})"
        if (was := arms[name].kernels) != (is_ := later[name].kernels):
            yield f"arm {name}: kernel ({', '.join(was) or '–'} → {', '.join(is_) or '–'})"
    sets, others = ({item.name: item for item in run.evalsets} for run in (one, other))
    for name in dict.fromkeys([*sets, *others]):
        if name not in sets or name not in others:
            yield f"evalset {name}: only in {one.run_id if name in sets else other.run_id}"
        elif (sets[name].content, sets[name].size) != (others[name].content, others[name].size):
            texts = (f"{item.version}, {item.size}" for item in (sets[name], others[name]))
            yield f"evalset {name}: {' → '.join(texts)}"
    rules, newer = ([rule.id for rule in run.policy.rules] for run in (one, other))
    yield from (f"rule {rule}: only in {one.run_id}" for rule in rules if rule not in newer)
    yield from (f"rule {rule}: only in {other.run_id}" for rule in newer if rule not in rules)
    if one.policy.alpha != other.policy.alpha:
        yield f"alpha: {one.policy.alpha:g} → {other.policy.alpha:g}"


def _rates(one: RunSummary, other: RunSummary, variant: str) -> Iterator[Rate]:
    then, now = (
        {(c.rule, c.slice): c for c in found.verdict.comparisons} if (found := run.verdict(variant)) else {}
        for run in (one, other)
    )
    for rule, part in dict.fromkeys([*then, *now]):
        before, after = then.get((rule, part)), now.get((rule, part))
        if before is None or after is None or _shown(before) != _shown(after):
            yield Rate(variant=variant, rule=rule, slice=part, before=before, after=after)


def _shown(one: Comparison) -> tuple:
    return one.status, one.n, one.baseline, one.variant, one.lower, one.upper


def print_run_changes(found: RunChanges) -> None:
    """To stdout; colours only on a terminal."""
    console = screen.console()
    console.print(Text(f"{visible_line(found.before)} → {visible_line(found.after)}", style="bold"))
    console.print(Text("\nwhat was judged otherwise", style="bold"))
    for line in found.differs or ("nothing: the same arms, evalsets and rules",):
        console.print(Text(fit(f"  {visible_line(line)}")))
    console.print(Text("\nverdicts", style="bold"))
    for words in found.verdicts:
        told = (
            _styled(word) for word in ((words.before,) if words.before == words.after else (words.before, words.after))
        )
        console.print(Text.assemble(f"  {visible_line(words.variant)}  ", Text(" → ").join(told)))
    if found.rates:
        console.print(Text("\nrules", style="bold"))
    for rate in found.rates:
        console.print(indented(f"{visible_line(rate.variant)}  {visible_line(rate.rule)} ({visible_line(rate.slice)})"))
        console.print(indented(Text(f"{_numbers(rate.before)} → {_numbers(rate.after)}", style="dim"), 6))
    console.print(Text("\nanswers", style="bold"))
    for (arm, metric), pairs in found.pairs.items():
        mine = [one for one in found.scores if (one.arm, one.metric) == (arm, metric)]
        worse = sum(one.lost for one in mine)
        told = f"{worse:,} worse, {len(mine) - worse:,} better" if mine else "the same"
        console.print(
            indented(f"{visible_line(arm)}  {visible_line(metric)}: {told}, of {counted(pairs, 'score')} of both")
        )
        named = [f"{visible_line(one.name)} {'−' if one.lost else '+'}" for one in mine[:NAMED]]
        more = [f"and {len(mine) - NAMED:,} more (--json)"] if len(mine) > NAMED else []
        if mine:
            console.print(indented(Text(", ".join([*named, *more]), style="dim"), 6))
    if not found.pairs:
        console.print(Text("  no case was asked in both runs"))


def _styled(word: str | None) -> Text:
    return Text(visible_line(word or "no verdict").upper(), style=STYLE.get(word or "", "dim"))


def _numbers(one: Comparison | None) -> str:
    if one is None:
        return "no such rule"
    rates = f"{value_text(one.metric, one.baseline)} → {value_text(one.metric, one.variant)}"
    return f"{visible_line(one.status)} (n {one.n:,}, baseline → variant {rates})"
