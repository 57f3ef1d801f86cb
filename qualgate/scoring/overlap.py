"""Token F1 of an answer with a reference: SQuAD's, and DROP's as lm-evaluation-harness 0.4.13 has it.

SQuAD (Rajpurkar et al. 2016): lower case, ASCII punctuation and then the words a, an, the removed; tokens between white
space, counted. The best of several references counts; those without a token are left out where another has one, as
SQuAD 2.0 has it. Where a side has no token left, 1 if neither has, else 0.
DROP (Dua et al. 2019): tokens also part at hyphens, are sets, and numbers are compared as numbers (`3` and `3.0`); a
reference that holds a number gives nothing without one of its numbers; of a reference of several spans the answer,
being one span, meets the best, and the sum is divided by their count; rounded to two decimals.

Kept where it surprises: `non-stop` is `nonstop` in SQuAD; `1,000` is 1000; `5%` is 5; `nan` and `inf` are numbers in
DROP.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.scoring.outcome import actual, right, too_long, wrong
from qualgate.scoring.references import references_of
from qualgate.scoring.scorer import Scorer, by_body

SQUAD = "f1.squad/2"
DROP = "f1.drop/1"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def _squad_tokens(text: str) -> list[str]:
    return _ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def squad_f1(answer: str, reference: str) -> float:
    """SQuAD's F1 of word counts, 0..1; 1 where neither text has a word."""
    answer_tokens, reference_tokens = _squad_tokens(answer), _squad_tokens(reference)
    if not answer_tokens or not reference_tokens:
        return float(answer_tokens == reference_tokens)
    shared = (Counter(answer_tokens) & Counter(reference_tokens)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(answer_tokens), shared / len(reference_tokens)
    return 2 * precision * recall / (precision + recall)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def _drop_token(token: str) -> str:
    token = token.lower()
    token = token if _is_number(token) else token.translate(_NO_PUNCTUATION)
    token = str(float(token)) if _is_number(token) else token
    return " ".join(_ARTICLE.sub(" ", token).split())


def _drop_tokens(text: str) -> set[str]:
    return {word for token in set(re.split("[ -]", text)) for word in _drop_token(token).split()}


def drop_f1(answer: str, spans: tuple[str, ...]) -> float:
    """Return DROP's F1, 0..1, of an answer with one reference of one or more `spans`."""
    answer_tokens = _drop_tokens(answer)
    best = max(_drop_span_f1(answer_tokens, _drop_tokens(span)) for span in spans)
    return round(best / len(spans) * 100) / 100


def _drop_span_f1(answer_tokens: set[str], span_tokens: set[str]) -> float:
    """Return DROP's F1 of two bags of words, 0 to 1: 0 if the span has numbers and the answer has none of them."""
    numbers = {token for token in span_tokens if _is_number(token)}
    if numbers and not numbers & answer_tokens:
        return 0.0
    shared = len(answer_tokens & span_tokens)
    precision = shared / len(answer_tokens) if answer_tokens else 1.0
    recall = shared / len(span_tokens) if span_tokens else 1.0
    return 2 * precision * recall / (precision + recall) if precision or recall else 0.0


def score_f1(body: Mapping[str, Any], text: str, rules: str = "squad") -> dict[str, Score]:
    """The metric `f1` by SQuAD's rules or `f1.drop` by DROP's: the value is F1, the verdict whether it is 1.

    body `references` or `answer`: a reference or a list of them, of which the best counts; under `drop` each may be a
    list of spans.
    """
    metric, scorer = {"squad": ("f1", SQUAD), "drop": ("f1.drop", DROP)}[rules]
    if refusal := too_long(metric, scorer, text):
        return {metric: refusal}
    answers = references_of(body)
    if rules == "squad":
        spoken = [answer for answer in map(str, answers) if _squad_tokens(answer)] or [""]
        value = max(squad_f1(text, answer) for answer in spoken)
    else:
        spans = [tuple(map(str, each)) if isinstance(each, list) else (str(each),) for each in answers]
        value = max((drop_f1(text, each) for each in spans if each and each[0].strip()), default=0.0)
    if value == 1:
        return {metric: right(metric, scorer, text)}
    word, reason = ("empty", "the answer is empty") if not text.strip() else ("different", f"F1 is {value:.3f}")
    return {metric: replace(wrong(metric, scorer, word, reason, text), value=value)}


def references_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for f1: a text or a list of texts, one of them not empty."""
    answers = references_of(body)
    if not answers or not all(isinstance(each, str) and each.strip() for each in answers):
        yield f"f1 needs `answer`, a text or a list of texts, none of them empty; {actual(body, 'answer')}"


def spans_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for f1.drop: a text, a list of texts, or a list of lists (each the spans of one reference)."""
    references = [entry if isinstance(entry, list) else [entry] for entry in references_of(body)]
    if not references or not all(
        spans and all(isinstance(span, str) and span.strip() for span in spans) for spans in references
    ):
        expected_form = (
            'a reference or a list of them, each a text, or a list of texts for several spans, as ["3", ["A", "B"]]'
        )
        yield f"f1.drop needs `answer`, {expected_form}; {actual(body, 'answer')}"


SCORERS = (
    Scorer(
        name="f1",
        version=SQUAD,
        metrics=("f1",),
        function=by_body(score_f1),
        faults=references_faults,
    ),
    Scorer(
        name="f1.drop",
        version=DROP,
        metrics=("f1.drop",),
        function=by_body(partial(score_f1, rules="drop")),
        faults=spans_faults,
    ),
)
