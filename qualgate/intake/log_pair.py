"""Put two logs beside each other: what must be alike, what each side's answers are, the policy without a gate file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.intake.copies import refuse_copies, refuse_one_file_twice
from qualgate.intake.harnesses.log import Choice, Counts, Log
from qualgate.intake.harnesses.recognise import read_log
from qualgate.intake.row_evidence import BASELINE
from qualgate.intake.score_rows import Scores
from qualgate.records import Policy, Rule
from qualgate.records.metrics import HARNESS, METRICS

NOT_SAID = "not said"
CHOOSE = "Name the metric to judge (--metric NAME, or rules in a gate file), or log it as 1 − its value"
LESS_IS_BETTER = re.compile(
    r"toxic|hallucinat|(^|[^a-z])(wer|cer|asr|errors?|loss|distance|brier|perplexity|violations?|latency|cost|fail(ed|s|ures?)?"
    r"|issues?|wrong|incorrect|invalid|mistakes?|faults?|defects?|bugs?|refus(als?|ed)|miss(es|ed)|penalty|bias|harm(ful)?"
    r"|unsafe)($|[^a-z])",
    re.IGNORECASE,
)
TWO_MODELS = (
    "If two models truly gave equal answers, the results must name both: with lm-eval keep its results file beside the "
    "samples."
)
TWO_IN_ONE = ", or two models of the one that holds both: --baseline-model NAME --variant-model NAME"
MUCH_ALIKE = 0.2  # share of one text among a side's answers that is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPair:
    """Both sides of a comparison."""

    baseline: Log
    variant: Log
    differing: tuple[str, ...]  # settings that are not alike, and faults of either log: nothing can be decided
    notes: tuple[str, ...]  # for the verdict


def read_pair(
    baseline: Path,
    variant: Path,
    *,
    format: str = "",
    choices: tuple[Choice, Choice] = (Choice(), Choice()),
    error_texts: Iterable[str] | None = None,
) -> LogPair:
    """Read both sides. UsageError for one file twice (two models of one file are no such), for two formats, and for
    two tasks."""
    if not (choices[0].model and choices[1].model and choices[0].model != choices[1].model):
        refuse_one_file_twice({BASELINE: baseline, "variant": variant}, TWO_IN_ONE)
    before, after = (
        read_log(path, format, choice, error_texts) for path, choice in zip((baseline, variant), choices, strict=True)
    )
    if before.format != after.format:
        raise UsageError(
            f"{baseline} was written by {before.format}, {variant} by {after.format}: two harnesses ask and score "
            "differently. Give two results of one."
        )
    if before.task and after.task and before.task != after.task:
        raise UsageError(
            f"{baseline} holds the task {before.task!r:.80}, {variant} {after.task!r:.80}; name one: --task"
        )
    after = replace(after, task=before.task or after.task)
    refuse_copies({BASELINE: before.scores, "variant": after.scores}, TWO_MODELS)
    _refuse_other_lengths(before.scores, after.scores)
    return LogPair(
        baseline=before,
        variant=after,
        differing=(*before.faults, *after.faults, *_differing(before, after)),
        notes=(*_looked_at(before, after), *before.notes, *after.notes),
    )


def _refuse_other_lengths(baseline: Scores, variant: Scores) -> None:
    """Raise UsageError if a text has two lengths: the two logs would divide by different numbers."""
    lengths = {(row.id, row.metric): row for row in baseline.rows if row.weight is not None}
    for row in variant.rows:
        other = lengths.get((row.id, row.metric))
        if other and other.case_hash == row.case_hash and row.weight not in (None, other.weight):
            raise UsageError(
                f"{variant.source}:{row.line}: {row.metric} of document {row.id} is divided by {row.weight:g}, and by "
                f"{other.weight:g} in {baseline.source}:{other.line}. Log both with one version of the task."
            )


def _differing(before: Log, after: Log) -> Iterator[str]:
    """A line for each setting that the sides do not share."""
    if bool(before.settings) != bool(after.settings):
        silent = before if after.settings else after
        yield f"{silent.scores.source} does not say how it was asked, as the other does: settings cannot be compared"
        return
    if bool(before.counts.texts) != bool(after.counts.texts):
        silent = before if after.counts.texts else after
        yield f"{silent.scores.source} holds no answer's text, as the other does: its answers cannot be looked at"
    for name in sorted({*before.settings, *after.settings}):
        first, second = before.settings.get(name, NOT_SAID), after.settings.get(name, NOT_SAID)
        if first != second:
            yield f"not asked alike: {name} is {first:.120} for the baseline and {second:.120} for the variant"


def unjudged(pair: LogPair) -> Iterator[str]:
    """A line for each metric that one margin for all cannot judge: it leaves the range, or less of it is better."""
    for log in (pair.baseline, pair.variant):
        for name in log.counts.outside:
            yield f"{log.scores.source}: a value of {name:.60} lies outside 0 to 1. {CHOOSE}"
    for name in dict.fromkeys(row.metric for row in pair.baseline.scores.rows):
        if name.startswith(HARNESS) and LESS_IS_BETTER.search(name):
            yield f"of {name:.60} less is better, by its name. {CHOOSE}"


def _looked_at(before: Log, after: Log) -> Iterator[str]:
    """A line for each side whose answers are not all sound, and one where a side repeats one text."""
    for side, log in ((BASELINE, before), ("variant", after)):
        if found := list(_unsound(log.counts)):
            yield f"{side}: of {log.counts.answers:,} answers {', '.join(found)}"


def _unsound(counts: Counts) -> Iterator[str]:
    for number, what in (
        (counts.errors, "failed"),
        (counts.empty, "are empty"),
        (counts.cut, "were cut at their limit"),
        (counts.unfiltered, "are right and not found by the filter"),
        (counts.refused, "refuse"),
    ):
        if number:
            yield f"{number:,} {what}"
    if counts.alike > 1 and counts.alike > MUCH_ALIKE * counts.texts:
        yield f"{counts.alike:,} are one and the same text"


def default_policy(log: Log, max_drop: float | None = None, max_ratio: float | None = None) -> Policy:
    """The policy without a gate file: a rule on every metric of the log, with one margin for scores and one for
    perplexities; by default 2 points and 2 %."""
    max_drop, max_ratio = 0.02 if max_drop is None else max_drop, 1.02 if max_ratio is None else max_ratio
    return Policy(
        rules=tuple(
            Rule(metric=name, scope="pooled", max_ratio=max_ratio)
            if METRICS[name].kind == "likelihood"
            else Rule(metric=name, scope="pooled", max_drop=max_drop)
            for name in dict.fromkeys(row.metric for row in log.scores.rows)
        )
    )
