"""How every scorer states its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from qualgate.records import Score

MAX_ANSWER = 2**20  # characters; a longer answer is wrong for every scorer
SHOWN = 4096  # characters of an extracted answer kept with its score
REASON = 1000  # characters of a reason, which may quote what an answer said


def right(metric: str, scorer: str, extracted: str | None = None) -> Score:
    """Value 1."""
    return Score(metric=metric, value=1.0, verdict=True, extracted=_storable(extracted), scorer=scorer)


def all_right(metrics: tuple[str, ...], scorer: str, extracted: str | None) -> dict[str, Score]:
    """`right` for each of the metrics, its slots filled one by one: a frozen record's own constructor takes twice as
    long, and six of them longer than the calls take to judge."""
    kept, found = _storable(extracted), {}
    for metric in metrics:
        score = found[metric] = Score.__new__(Score)
        _METRIC(score, metric)
        _VALUE(score, 1.0)
        _VERDICT(score, True)
        _ERROR_TYPE(score, "")
        _EXTRACTED(score, kept)
        _REASON(score, "")
        _SCORER(score, scorer)
    return found


_METRIC, _VALUE, _VERDICT, _ERROR_TYPE, _EXTRACTED, _REASON, _SCORER = (
    getattr(Score, one.name).__set__ for one in fields(Score)
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
    """That `text` is longer than the scorer reads; None when it is not."""
    if len(text) <= limit:
        return None
    reason = f"the answer has {len(text):,} characters, {limit:,} are read"
    return wrong(metric, scorer, "too_long", reason)


def quote(value: object, limit: int = 60) -> str:
    """`value` for a reason: on one line, control and bidi characters escaped, cut at `limit`."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[:limit] + "…"


def found(body: Mapping[str, Any], key: str) -> str:
    """What stands under `key`, for the end of a message about it; without it, what the row has: a name may differ."""
    if key in body:
        return f"found {quote(body[key])}"
    others = [quote(other, 30) for other in body if other != "id"][:8]
    return "it is missing" + (f"; the row has {', '.join(others)}" if others else "")


def one_line(reason: str) -> str:
    """`reason`, cut, with every control, bidi and surrogate character escaped: what an answer said may stand in it."""
    kept = reason if len(reason) <= REASON else reason[:REASON] + "…"
    return kept if kept.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in kept)


def _storable(text: str | None) -> str | None:
    """Cut, and without lone surrogates, which no database takes."""
    if text is None:
        return None
    kept = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return kept.encode("utf-8", "backslashreplace").decode("utf-8")
