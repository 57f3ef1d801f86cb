"""Every scorer there is: the shipped ones, one line each, and those that other packages add.

A package adds one by an entry point in the group `qualgate.scorers`, named as the scorer is and leading to a `Scorer`
(tests/scoring/plugin_template is such a package, whole).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from qualgate import plugins
from qualgate.errors import UsageError, close_names
from qualgate.metrics import BY_LIKELIHOOD, STATE, TURNS
from qualgate.records import Case, Evalset, Score
from qualgate.sandbox import Sandbox, killable
from qualgate.scoring import (
    code,
    contains,
    filters,
    ifeval,
    lm_eval_match,
    match,
    mathematics,
    multiple_choice,
    needs,
    overlap,
    reasoning,
    refusal,
    strict_json,
    structure,
    thought,
)
from qualgate.scoring.answer_format import METRICS as OF_ANY_ANSWER
from qualgate.scoring.outcome import cannot_say, quote, wrong
from qualgate.scoring.references import any_of, faults_of_any
from qualgate.scoring.scorer import Mode, Scorer
from qualgate.scoring.tools import judge, served, state, strict, turns
from qualgate.scoring.tools.dialects import registry as dialects

GROUP = "qualgate.scorers"
MAX_ANSWER = 2**20  # characters; a longer answer is wrong for every scorer


def _lm_eval(name: str) -> Callable[[Case, Evalset, str], dict[str, Score]]:
    """Return the scorer exact_match behind the filter `name`."""
    options = lm_eval_match.options_of(name)
    return lambda case, evalset, text: lm_eval_match.score_exact_match(case.body, text, "none", options)


@cache
def _sandbox() -> Sandbox | None:
    """Return the sandbox, probed when the first program runs."""
    return Sandbox.best()


def _code(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    return code.score_code(case.body, text, sandbox=_sandbox(), lenient=evalset.lenient)


def _multiple_choice(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    return multiple_choice.score_multiple_choice(case.body, text, lenient="trailing_text" in evalset.lenient)


def _state(case: Case, evalset: Evalset, answer: Any, dialect: str | None = None) -> dict[str, Score]:
    return state.score_state(case, evalset, answer, _sandbox(), dialect)


def _transcript(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    return state.score_transcript(case, evalset, calls, _sandbox())


def _in(score: Callable[[Case, Evalset, str, str], dict[str, Score]]) -> Any:
    """`score`, given the dialect first."""
    return lambda dialect: lambda case, evalset, text: score(case, evalset, text, dialect)


SHIPPED = (
    Scorer(
        name="exact_match",
        version=match.EXACT,
        metrics=("exact_match",),
        function=any_of(match.exact_match),
        faults=faults_of_any(needs.reference_faults),
        normalizes=True,
    ),
    Scorer(
        name="contains",
        version=contains.CONTAINS,
        metrics=("contains",),
        function=contains.contains,
        faults=contains.contains_faults,
    ),
    Scorer(
        name="pattern",
        version=contains.PATTERN,
        metrics=("pattern",),
        function=lambda case, evalset, text: contains.score_pattern(case.body, text),
        needs=("pattern",),
        faults=contains.pattern_faults,
    ),
    Scorer(
        name="numeric",
        version=match.NUMERIC,
        metrics=("numeric",),
        function=any_of(match.numeric),
        faults=faults_of_any(needs.number_faults),
    ),
    Scorer(
        name="math",
        version=mathematics.SCORER,
        metrics=(mathematics.METRIC,),
        function=any_of(lambda case, evalset, text: mathematics.score_math(case.body, text)),
        faults=faults_of_any(lambda body, evalset: mathematics.faults(body)),
    ),
    Scorer(
        name="json",
        version=structure.SCORER,
        metrics=("json.valid", "json.schema"),
        function=structure.score_json,
        faults=needs.schema_faults,
        lenient=strict_json.LENIENT,
    ),
    Scorer(
        name="tool_call",
        version=strict.SCORER,
        metrics=strict.FLAGS,
        function=strict.score_tool_call,
        faults=needs.tool_faults,
        decoded=strict.score_decoded,
        written_in=_in(strict.score_tool_call),
    ),
    Scorer(
        name="turns",
        version=turns.SCORER,
        metrics=(TURNS,),
        function=turns.score_turn,
        faults=turns.turn_faults,
        decoded=turns.score_turn_decoded,
        written_in=_in(turns.score_turn),
    ),
    Scorer(
        name="state",
        version=state.SCORER,
        metrics=(STATE,),
        function=_state,
        faults=state.state_faults,
        decoded=_state,
        written_in=_in(_state),
    ),
    Scorer(
        name="code",
        version=code.SCORER,
        metrics=(code.METRIC,),
        function=_code,
        faults=needs.code_faults,
        lenient=("code_fence",),
    ),
    Scorer(
        name="multiple_choice",
        version=multiple_choice.TEXT,
        metrics=("multiple_choice",),
        function=_multiple_choice,
        needs=("choices", "answer"),
        faults=needs.choice_faults,
        lenient=("trailing_text",),
    ),
    Scorer(
        name="multiple_choice.likelihood",
        version=multiple_choice.LIKELIHOOD,
        metrics=BY_LIKELIHOOD,
        function=lambda case, evalset, text: multiple_choice.score_weighed(case.body, text),
        needs=("choices", "answer"),
        faults=needs.weighed_faults,
    ),
    Scorer(
        name="f1",
        version=overlap.SQUAD,
        metrics=("f1",),
        function=lambda case, evalset, text: overlap.score_f1(case.body, text),
        faults=needs.references_faults,
    ),
    Scorer(
        name="f1.drop",
        version=overlap.DROP,
        metrics=("f1.drop",),
        function=lambda case, evalset, text: overlap.score_f1(case.body, text, "drop"),
        faults=needs.spans_faults,
    ),
    Scorer(
        name="refusal",
        version=refusal.SCORER,
        metrics=("refusal",),
        function=lambda case, evalset, text: refusal.score_refusal(case.body["refuse"], text),
        needs=("refuse",),
        faults=needs.refuse_faults,
    ),
    Scorer(
        name="ifeval",
        version=ifeval.SCORER,
        metrics=tuple(sorted(ifeval.METRICS.values())),
        function=lambda case, evalset, text: ifeval.score_ifeval(case.body, text),
        faults=lambda body, evalset: ifeval.faults(body),
    ),
    Scorer(
        name="reasoning",
        version=thought.SCORER,
        metrics=thought.METRICS,
        function=lambda case, evalset, text: thought.score_thought(case.body, text),
        faults=thought.faults,
        whole=True,
    ),
    Scorer(
        name="exact_match",
        mode="compat",
        version=lm_eval_match.SCORER,
        metrics=("exact_match",),
        function=_lm_eval("none"),
        after=_lm_eval,
        faults=needs.compared_faults,
    ),
    Scorer(
        name="tool_call",
        mode="compat",
        version=judge.COMPAT,
        metrics=judge.COMPAT_FLAGS,
        function=judge.score_compat,
        faults=judge.compat_faults,
        decoded=judge.score_compat_decoded,
    ),
    Scorer(
        name="state",
        mode="compat",
        version=state.COMPAT,
        metrics=(STATE,),
        function=_transcript,
        faults=state.transcript_faults,
        decoded=_transcript,
        transcripts=True,
    ),
    Scorer(
        name="tool_call",
        mode="served",
        version=served.SERVED,
        metrics=(served.METRIC,),
        function=served.score_served,
        faults=needs.tool_faults,
        decoded=served.score_by_itself,
        written_in=_in(served.score_served),
    ),
)
_NAMES = tuple(dict.fromkeys(scorer.name for scorer in SHIPPED))
# Of a metric that two modes have, strict's. BFCL's verdict has a metric of its own, so that a rule can name it.
_BY_METRIC = {metric: scorer for scorer in SHIPPED if scorer.mode != "compat" for metric in scorer.metrics} | {
    judge.COMPAT_METRIC: replace(
        next(scorer for scorer in SHIPPED if scorer.version == judge.COMPAT),
        metrics=(judge.COMPAT_METRIC,),
        function=judge.score_compat_alone,
        decoded=None,
    )
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


_NO_TEXT = ("regex_pos", "take_first_k", "map")  # gives a list; needs a k; needs a mapping


def filtered(scorer: Scorer, name: str) -> Scorer:
    """`scorer`, judging what lm-eval's filter `name` finds in an answer. UsageError for a filter that is unknown, or
    by its name alone never gives one text."""
    if name not in (usable := [key for key in (*filters.PIPELINES, *filters.STEPS) if key not in _NO_TEXT]):
        why = " that gives one text" if name in _NO_TEXT else ""
        raise UsageError(unknown("filter", name, usable, why))
    try:
        pipeline = filters.build(name)
    except filters.FilterFault as error:
        raise UsageError(f"{error}.") from None
    version, function = f"{scorer.version} {name}", scorer.after(name) if scorer.after else scorer.function

    def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
        yield from scorer.faults(body, evalset)
        if name in ("multi_choice_regex", "choice-extract"):
            yield from needs.lettered_faults(body)

    def score(case: Case, evalset: Evalset, answer: str) -> dict[str, Score]:
        try:
            extracted = pipeline([answer], case.body)
            if not isinstance(extracted, str):
                raise filters.FilterFault(f"the filter gave {quote(extracted)}, not one text")
        except killable.Killed as failure:
            scores = _all(scorer, cannot_say, "stopped", f"a pattern was stopped: {failure}")
        except filters.FilterFault as failure:
            scores = _all(scorer, cannot_say, "filter", str(failure))
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
    if name not in (known := (strict.AUTO, *dialects.names())):
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
