"""Scores from text: pure functions of a case and an answer. No torch, no store, no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qualgate.metrics import METRICS
from qualgate.records import Case, Evalset, Score
from qualgate.scoring import damage, match, structure
from qualgate.scoring.outcome import wrong
from qualgate.scoring.tools import strict

__all__ = ["MAX_ANSWER", "score", "scorer_versions"]

MAX_ANSWER = 2**20  # characters; a longer answer is wrong for every scorer

Scorer = Callable[[Case, Evalset, str], dict[str, Score]]
# By the metric's family, the part before the dot: one reading of an answer serves all its metrics.
_SCORERS: dict[str, tuple[Scorer, str]] = {
    "exact_match": (match.exact_match, match.EXACT),
    "numeric": (match.numeric, match.NUMERIC),
    "json": (structure.score_json, structure.SCORER),
    "tool_call": (strict.score_tool_call, strict.SCORER),
}


def scorer_versions() -> dict[str, str]:
    """Metric → name and version of its scorer. Scores of different versions are never compared."""
    versions = {family: version for family, (_, version) in _SCORERS.items()} | {"format": damage.SCORER}
    return {name: versions[family] for name in METRICS if (family := name.partition(".")[0]) in versions}


def score(
    case: Case, evalset: Evalset, completion_text: str, finish_reason: str, also: tuple[str, ...] = ()
) -> tuple[Score, ...]:
    """One Score for each metric the evalset declares, in its order, then for those of `also` that it does not.

    Never raises, whatever the text. An empty or cut answer is an answer and is scored as it stands; that it was cut is
    added to the reason.
    """
    scores: dict[str, Score] = {}
    metrics = tuple(dict.fromkeys((*evalset.metrics, *also)))
    for family in dict.fromkeys(metric.partition(".")[0] for metric in metrics):
        if family == "format":
            scores |= damage.score_format(case, completion_text, finish_reason)
            continue
        scorer, version = _SCORERS[family]
        if len(completion_text) > MAX_ANSWER:
            reason = f"the answer has {len(completion_text):,} characters, {MAX_ANSWER:,} are read"
            scores |= {m: wrong(m, version, "too_long", reason) for m in metrics if m.startswith(family)}
        else:
            scores |= scorer(case, evalset, completion_text)
    if finish_reason == "length":
        scores = {name: _cut(score) for name, score in scores.items()}
    return tuple(scores[metric] for metric in metrics)


def _cut(score: Score) -> Score:
    return score if score.verdict else replace(score, reason=f"{score.reason} (cut at max_new_tokens)")
