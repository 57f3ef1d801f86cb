"""Scores from text: pure functions of a case and an answer. No torch, no store, no clock."""

from __future__ import annotations

from dataclasses import replace

from qualgate.records import Calls, Case, Evalset, Score
from qualgate.records.metrics import LM_EVAL, METRICS
from qualgate.scoring import answer_format, contains, multiple_choice, reasoning
from qualgate.scoring.outcome import MAX_ANSWER
from qualgate.scoring.registry import apply, scorers_of
from qualgate.scoring.tools import served

__all__ = ["MAX_ANSWER", "score", "scorer_versions"]


def scorer_versions() -> dict[str, str]:
    """Metric → name and version of its scorer. Scores of different versions are never compared."""
    of_quality = [name for name, metric in METRICS.items() if metric.kind == "quality" and not name.startswith(LM_EVAL)]
    return {
        name: answer_format.SCORER if name in answer_format.METRICS else scorers_of((name,))[0].version
        for name in of_quality
    }


def score(
    case: Case,
    evalset: Evalset,
    completion_text: str,
    finish_reason: str,
    also: tuple[str, ...] = (),
    calls: Calls | None = None,
) -> tuple[Score, ...]:
    """One Score for each metric the evalset declares, in its order, then for those of `also` that it does not.

    Never raises, whatever the text. Where the case declares how thoughts are written, scorers see what stands behind
    one (`reasoning`). calls: those that the server gave in its reply, which decide what it executes. An empty or cut
    answer is an answer and is scored as it stands; that it was cut is added to the reason.
    """
    scores: dict[str, Score] = {}
    metrics = tuple(dict.fromkeys((*evalset.metrics, *also)))
    if any(metric in answer_format.METRICS for metric in metrics):
        scores |= _format(case, completion_text, finish_reason)
    for scorer in scorers_of(tuple(metric for metric in metrics if metric not in answer_format.METRICS)):
        if calls is not None and scorer.mode == "served":
            scores |= served.score_by_itself(case, evalset, served.as_given(calls))
        else:
            scores |= apply(scorer, case, evalset, completion_text)
    if finish_reason == "length":
        scores = {name: _cut(score) for name, score in scores.items()}
    return tuple(scores[metric] for metric in metrics)


def _format(case: Case, text: str, finish_reason: str) -> dict[str, Score]:
    """Score the format of the answer alone, or of the whole text where the case declares no way to write thoughts."""
    way = case.body.get("reasoning", reasoning.NONE)
    if way in (reasoning.NONE, reasoning.AUTO):
        return answer_format.score_format(case, text, finish_reason)
    scores = answer_format.score_format(case, reasoning.apart(case.body, text).answer, finish_reason)
    return {metric: replace(scored, scorer=reasoning.behind(scored.scorer, way)) for metric, scored in scores.items()}


def _cut(score: Score) -> Score:
    score = multiple_choice.cut(contains.cut(score))
    return score if score.verdict else replace(score, reason=f"{score.reason} (cut at max_new_tokens)")
