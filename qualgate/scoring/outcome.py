"""Build a scorer's result: right, wrong, or undecided, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from qualgate.records import Score

MAX_ANSWER = 2**20  # characters; a longer answer is wrong for every scorer
SHOWN = 4096  # characters of an extracted answer kept with its score
REASON = 1000  # characters of a reason, which may quote an answer


def right(metric: str, scorer: str, extracted: str | None = None) -> Score:
    """Return a score of value 1."""
    return Score(metric=metric, value=1.0, verdict=True, extracted=_storable(extracted), scorer=scorer)


def all_right(metrics: tuple[str, ...], scorer: str, extracted: str | None) -> dict[str, Score]:
    """Return `right` for each metric. Slots are filled one by one: the frozen record's constructor takes twice as long,
    and six of them longer than the calls take to judge."""
    stored, scores = _storable(extracted), {}
    for metric in metrics:
        score = scores[metric] = Score.__new__(Score)
        _METRIC(score, metric)
        _VALUE(score, 1.0)
        _VERDICT(score, True)
        _ERROR_TYPE(score, "")
        _EXTRACTED(score, stored)
        _REASON(score, "")
        _SCORER(score, scorer)
    return scores


_METRIC, _VALUE, _VERDICT, _ERROR_TYPE, _EXTRACTED, _REASON, _SCORER = (
    getattr(Score, field.name).__set__ for field in fields(Score)
)


def wrong(metric: str, scorer: str, error_type: str, reason: str, extracted: str | None = None) -> Score:
    """Value 0; `error_type` is a word of the scorer's closed list, `reason` a sentence for people."""
    return Score(
        metric=metric,
        value=0.0,
        verdict=False,
        error_type=error_type,
        extracted=_storable(extracted),
        reason=one_line(reason),
        scorer=scorer,
    )


def cannot_say(metric: str, scorer: str, error_type: str, reason: str) -> Score:
    """The scorer, not the answer, is at fault. Such a unit cannot carry an approval."""
    return Score(metric=metric, value=None, verdict=None, error_type=error_type, reason=one_line(reason), scorer=scorer)


def too_long(metric: str, scorer: str, text: str, limit: int = MAX_ANSWER) -> Score | None:
    """Return "wrong" for a `text` longer than the scorer reads, else None."""
    if len(text) <= limit:
        return None
    reason = f"the answer has {len(text):,} characters, {limit:,} are read"
    return wrong(metric, scorer, "too_long", reason)


def quote(value: object, limit: int = 60) -> str:
    """`value` for a reason: on one line, control and bidi characters escaped, cut at `limit`."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[:limit] + "…"


def actual(body: Mapping[str, Any], key: str) -> str:
    """Describe the value under `key` for the end of a message, or the row's keys if it has no such key."""
    if key in body:
        return f"found {quote(body[key])}"
    others = [quote(other, 30) for other in body if other != "id"][:8]
    return "it is missing" + (f"; the row has {', '.join(others)}" if others else "")


def one_line(reason: str) -> str:
    """Cut `reason` and escape its control, bidi and surrogate characters, since it may quote an answer."""
    shortened = reason if len(reason) <= REASON else reason[:REASON] + "…"
    return shortened if shortened.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in shortened)


def _storable(text: str | None) -> str | None:
    """Cut a text and escape lone surrogates, which no database stores."""
    if text is None:
        return None
    shortened = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return shortened.encode("utf-8", "backslashreplace").decode("utf-8")
