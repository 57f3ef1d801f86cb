"""Every scorer: the shipped ones, from the files that `metrics.SCORER_FILES` names, and those of other packages.

A package adds one by an entry point in the group `qualgate.scorers`, named as the scorer is and leading to a `Scorer`
(tests/scoring/plugin_template is such a package, whole).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, get_args

from qualgate import plugins
from qualgate.errors import UsageError, close_names
from qualgate.records import Case, Evalset, Score
from qualgate.records.metrics import SCORER_FILES
from qualgate.sandbox import killable
from qualgate.scoring import filters, reasoning, regexes
from qualgate.scoring.answer_format import METRICS as OF_ANY_ANSWER
from qualgate.scoring.outcome import MAX_ANSWER, cannot_say, quote, wrong
from qualgate.scoring.scorer import Mode, Scorer
from qualgate.scoring.tools.dialects import registry as dialects
from qualgate.scoring.tools.judge import BESIDE_STRICT

GROUP = "qualgate.scorers"

# By mode, and within a mode in the order of their metrics.
SHIPPED: tuple[Scorer, ...] = tuple(
    sorted(
        (scorer for file in SCORER_FILES for scorer in import_module(f"qualgate.scoring.{file}").SCORERS),
        key=lambda scorer: get_args(Mode).index(scorer.mode),
    )
)
_NAMES = tuple(dict.fromkeys(scorer.name for scorer in SHIPPED))
_BY_METRIC = {  # of a metric that two modes have, strict's
    metric: scorer
    for scorer in (*(scorer for scorer in SHIPPED if scorer.mode != "compat"), BESIDE_STRICT)
    for metric in scorer.metrics
}


def names() -> tuple[str, ...]:
    """Every scorer's name: the shipped ones, then those of other packages."""
    return (*_NAMES, *sorted(plugins.offered(GROUP, _NAMES)))


def find(name: str, mode: Mode = "strict") -> Scorer:
    """The scorer of this name and mode, shipped or not. UsageError without one, and for a package that is broken."""
    offered = plugins.offered(GROUP, _NAMES)
    known = SHIPPED if name not in offered else (_checked(plugins.load(offered[name], Scorer)),)
    modes = {scorer.mode: scorer for scorer in known if scorer.name == name}
    if not modes:
        raise UsageError(unknown("scorer", name, (*_NAMES, *sorted(offered))))
    if mode not in modes:
        having = ", ".join(scorer.name for scorer in SHIPPED if scorer.mode == mode)
        raise UsageError(f"the scorer {name} has no {mode} mode, only: {', '.join(modes)}. With one: {having}.")
    return modes[mode]


def unknown(what: str, name: str, known: Sequence[str], why: str = "") -> str:
    """Return the message that `name` is unknown, with the nearest known name."""
    close = close_names(name, known, cutoff=0.5)
    meant = f" Did you mean {close[0]}?" if close and not why else ""
    return f"no {what} {quote(name)}{why}; there are: {', '.join(known)}.{meant}"


def filtered(scorer: Scorer, name: str) -> Scorer:
    """`scorer`, judging what lm-eval's filter `name` finds in an answer. UsageError for a filter that is unknown, or
    by its name alone never gives one text."""
    if name not in filters.FILTERS:
        why = " that gives one text" if name in filters.NO_TEXT else ""
        raise UsageError(unknown("filter", name, [*filters.FILTERS], why))
    extract = filters.FILTERS[name]
    version, function = f"{scorer.version} {name}", scorer.after(name) if scorer.after else scorer.function

    def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
        yield from scorer.faults(body, evalset)
        if name in filters.BY_LETTER:
            yield from filters.lettered_faults(body)

    def score(case: Case, evalset: Evalset, answer: str) -> dict[str, Score]:
        try:
            extracted = extract(answer, case.body)
        except killable.Killed as failure:
            scores = _all(scorer, cannot_say, "stopped", f"a pattern was stopped: {failure}")
        except regexes.BadPattern as failure:  # of choices whose texts are too long for one
            scores = _all(scorer, cannot_say, "filter", f"the pipeline cannot be applied: BadPattern: {failure}")
        else:
            if extracted == filters.INVALID and scorer.mode == "strict":  # lm-eval would compare that word
                scores = _all(scorer, wrong, "invalid", f"the filter {name} found no answer")
            else:
                scores = function(case, evalset, extracted)
        return {metric: replace(scored, scorer=version) for metric, scored in scores.items()}

    return replace(scorer, version=version, function=score, decoded=None, faults=faults)  # a filter reads text


def in_dialect(scorer: Scorer, name: str) -> Scorer:
    """`scorer`, reading the answers of cases without a `dialect` in `name`; "auto": in whichever reads calls."""
    if scorer.written_in is None:
        raise UsageError(
            _without_effect(scorer, f"--dialect {name}", "dialect", lambda candidate: candidate.written_in is not None)
        )
    if name not in (known := (dialects.AUTO, *dialects.names())):
        raise UsageError(unknown("dialect", name, known))
    function = scorer.written_in(name)

    def score(case: Case, evalset: Evalset, answer: str) -> dict[str, Score]:
        scores = function(case, evalset, answer)
        return {metric: replace(scored, scorer=f"{scored.scorer} {name}") for metric, scored in scores.items()}

    return replace(scorer, version=f"{scorer.version} {name}", function=score, dialect=name)


def refuse_without_effect(scorer: Scorer, normalizers: Sequence[str], lenient: Sequence[str]) -> None:
    """UsageError for a normalizer or a lenient mode that changes no score: given twice, or never read by `scorer`."""
    for option, names in (("--normalizer", normalizers), ("--lenient", lenient)):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{option} {twice} is given twice; once is what it takes. Leave one of them out.")
    if normalizers and not scorer.normalizes:
        argument = f"--normalizer {normalizers[0]}"
        raise UsageError(_without_effect(scorer, argument, "normalizer", lambda candidate: candidate.normalizes))
    if (unread := next((mode for mode in lenient if mode not in scorer.lenient), None)) is not None:
        argument, what = f"--lenient {unread}", f"lenient mode {unread}"
        raise UsageError(_without_effect(scorer, argument, what, lambda candidate: unread in candidate.lenient))


def _without_effect(scorer: Scorer, option: str, feature: str, reads: Callable[[Scorer], bool]) -> str:
    readers = ", ".join(f"{candidate.name} ({candidate.mode})" for candidate in SHIPPED if reads(candidate))
    return f"{option}: the scorer {scorer.name} ({scorer.mode}) reads no {feature}" + (
        f"; of {readers} it is an option. Leave it out, or choose such a scorer." if readers else ". Leave it out."
    )


def _all(scorer: Scorer, say: Callable[[str, str, str, str], Score], error_type: str, reason: str) -> dict[str, Score]:
    return {metric: say(metric, scorer.version, error_type, reason) for metric in scorer.metrics}


@cache
def scorers_of(metrics: tuple[str, ...]) -> tuple[Scorer, ...]:
    """The shipped scorers whose metrics these are, in their order; `format.*` needs none. KeyError for another kind."""
    return tuple(
        {(scorer := _BY_METRIC[metric]).version: scorer for metric in metrics if metric not in OF_ANY_ANSWER}.values()
    )


def metrics_that(reads: Callable[[Scorer], bool]) -> tuple[str, ...]:
    """Return the metrics whose scorers satisfy `reads`."""
    return tuple(metric for metric, scorer in _BY_METRIC.items() if reads(scorer))


def apply(scorer: Scorer, case: Case, evalset: Evalset, answer: str) -> dict[str, Score]:
    """The scores of one answer by metric, its thought taken off where the case declares how it is written.

    An answer that is longer than any scorer reads is wrong, with its thought.
    """
    way = case.body.get("reasoning", reasoning.NONE)
    if len(answer) > MAX_ANSWER:
        reason = f"the answer has {len(answer):,} characters, {MAX_ANSWER:,} are read"
        named = scorer.function(case, evalset, "")  # as any answer to this case: with a server, or packages
        versions = {metric: named[metric].scorer if metric in named else scorer.version for metric in scorer.metrics}
        scores = {metric: wrong(metric, version, "too_long", reason) for metric, version in versions.items()}
    elif way == reasoning.AUTO:
        return _all(scorer, cannot_say, "reasoning_auto", reasoning.UNTOLD)
    elif way == reasoning.NONE or scorer.whole:
        scores = scorer.function(case, evalset, answer)
    else:
        scores = scorer.function(case, evalset, reasoning.apart(case.body, answer).answer)
    if way == reasoning.NONE:
        return scores
    return {metric: replace(scored, scorer=reasoning.behind(scored.scorer, way)) for metric, scored in scores.items()}


def _checked(scorer: Scorer) -> Scorer:
    """Wrap another package's scorer so that it keeps our promises.

    It never raises, and scores each of its metrics in 0..1 under its own version. UsageError without metrics or
    version.
    """
    if not scorer.metrics or not scorer.version:
        raise UsageError(
            f"the scorer {quote(scorer.name)} ({GROUP}) has the version {quote(scorer.version)} and the metrics "
            f"{quote(scorer.metrics)}; it must have one of each."
        )

    def written_in(dialect: str) -> Any:
        assert scorer.written_in is not None
        return _guarded(scorer, scorer.written_in(dialect))

    return replace(
        scorer,
        function=_guarded(scorer, scorer.function),
        decoded=scorer.decoded and _guarded(scorer, scorer.decoded),
        written_in=scorer.written_in and written_in,
    )


def _guarded(scorer: Scorer, function: Callable[[Case, Evalset, Any], dict[str, Score]]) -> Any:
    """Wrap a scoring function of another package: any failure becomes "cannot say" for each of the scorer's metrics."""

    def score(case: Case, evalset: Evalset, answer: Any) -> dict[str, Score]:
        try:
            scores = function(case, evalset, answer)
            return {name: replace(_sound(scores[name]), metric=name, scorer=scorer.version) for name in scorer.metrics}
        except Exception as error:  # theirs, so anything
            reason = f"the scorer failed: {type(error).__name__}: {quote(str(error), 200)}"
            return _all(scorer, cannot_say, "scorer_failed", reason)

    return score


def _sound(score: Score) -> Score:
    if (score.value is None) != (score.verdict is None) or not (score.value is None or 0 <= score.value <= 1):
        raise ValueError(f"the value {score.value} with the verdict {score.verdict}")
    return score
