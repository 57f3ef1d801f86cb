"""Compare whole answers with the reference, both after the evalset's normalizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.scoring.outcome import actual, cannot_say, quote, right, too_long, wrong
from qualgate.scoring.references import any_of, faults_of_any
from qualgate.scoring.scorer import Scorer
from qualgate.scoring.text import NormalizerFault, normalize

EXACT = "exact_match/1"


def score_exact_match(body: Mapping[str, Any], text: str, normalizers: Iterable[str] = ()) -> dict[str, Score]:
    """The answer against the case's `answer`, both after the normalizers."""
    if refusal := too_long("exact_match", EXACT, text):
        return {"exact_match": refusal}
    names = tuple(normalizers)
    try:
        answer, reference = normalize(text, names), normalize(body["answer"], names)
    except NormalizerFault as fault:
        return {"exact_match": cannot_say("exact_match", EXACT, "normalizer", str(fault))}
    if answer == reference:
        return {"exact_match": right("exact_match", EXACT, answer)}
    error_type, reason = (
        "different",
        f"the answer differs from the reference at character {_parting(answer, reference)}",
    )
    if not text.strip():
        error_type, reason = "empty", "the answer is empty"
    return {"exact_match": wrong("exact_match", EXACT, error_type, reason, answer)}


def _parting(first: str, second: str) -> int:
    """Return the 1-based position of the first character that differs between two different texts."""
    for position, (a, b) in enumerate(zip(first, second, strict=False), start=1):
        if a != b:
            return position
    return min(len(first), len(second)) + 1


def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check that `answer` is a text with something in it."""
    answer = body.get("answer")
    if not isinstance(answer, str):
        yield f"exact_match needs `answer`, a text; {actual(body, 'answer')}"
    elif not normalize(answer, evalset.normalizers):
        after = " after the set's normalizers" if answer else ""
        yield f"`answer` {quote(answer)} is empty{after}, so an answer that says nothing would be right"


SCORERS = (
    Scorer(
        name="exact_match",
        version=EXACT,
        metrics=("exact_match",),
        function=any_of(lambda case, evalset, text: score_exact_match(case.body, text, evalset.normalizers)),
        faults=faults_of_any(faults),
        normalizes=True,
    ),
)
