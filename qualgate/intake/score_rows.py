"""Read files of score rows, and find the rows that are no answers.

A row is one metric's value for one case and repeat. A row with a failure (`status`, `error`, an `error_type` or a null
`verdict` beside a value) is no answer, whatever its value. A row whose verdict and value contradict each other breaks
integrity. Answers that the server ended (`finish_reason`) are the gate's task, as in a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import nan
from pathlib import Path
from sys import intern
from typing import Any, Literal, cast

from qualgate.documents import misspelt
from qualgate.errors import UsageError
from qualgate.intake.error_texts import FIELDS as FIELDS_OF_ANSWERS
from qualgate.intake.error_texts import INFERENCE_ERROR, NO_ANSWER, error_reader
from qualgate.intake.jsonl import read_objects
from qualgate.intake.serving_rows import FIELDS, NOT_SAID, Served, served
from qualgate.records import FINISH_WORDS
from qualgate.records.metrics import METRICS, out_of_range

QUOTED = 1000  # characters kept of what a scorer extracted
READ = FIELDS | {
    "id", "metric", "value", "verdict", "error_type", "status", "error", "finish_reason", "case_hash", "scorer",
    "repeat", "cluster", "evalset", "task", "tags", "extracted", "reason", "model", "unanswered",
}  # fmt: skip
_MEANT = READ - {"id", "metric", "value"}  # without which a row is none


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """A row of `qualgate score` for one case, as far as a verdict rests on it."""

    id: str
    metric: str
    value: float | None  # None: the scorer could not say
    weight: float | None = None  # words or bytes of a text, of which `value` is −log-likelihood (nats)
    unsaid: str = ""  # why it could not, in its own word
    case_hash: str = ""  # "" = not in the file
    scorer: str = ""
    repeat: int = 0
    cluster: str | None = None
    evalset: str = ""  # "" = the one that the caller names
    labels: tuple[str, ...] = ()  # "task:x", "tag:y"
    finish_reason: str = ""  # a FinishReason; "" = the file does not say
    unanswered: Literal["", "empty", "unfiltered"] = ""  # as in `UnitEvidence`
    failed: str = ""  # where and why this is no answer; "" = it is one
    served: Served = NOT_SAID  # see `serving_rows`
    extracted: str = ""  # this and the next are quoted beside a flip, and decide nothing
    reason: str = ""
    model: str = ""  # whose answer it is; "" = the file does not say
    line: int = field(default=0, compare=False)  # of its file, for an error to name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The score rows of one side, and their source."""

    source: str
    rows: tuple[ScoreRow, ...]
    contradictions: tuple[str, ...] = ()  # where a row says two things that cannot both be true

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that rows give, in order."""
        return tuple(dict.fromkeys(row.model for row in self.rows if row.model))


def read_score_rows(path: Path, evalset: str = "", error_texts: Iterable[str] | None = None) -> Scores:
    """Read a file of score rows: `id, metric, value`, optional `verdict, error_type, status, finish_reason, case_hash,
    scorer, repeat, cluster, evalset, task, tags, extracted, reason, model, unanswered`.

    The fields of `serving_rows` come on top. Other fields are ignored, except that in a row that is not right an answer
    may be the text of an error. evalset: of rows that name none. error_texts: see `error_reader`. UsageError names file
    and line.
    """
    rows, contradictions, is_error = [], [], error_reader(error_texts)
    for line, body in read_objects(path):
        try:
            row, contradiction = _row(body, evalset, line)
            if not row.failed and row.value != 1 and is_score(row) and (error := _error_in(body, is_error)):
                row = replace(row, failed=NO_ANSWER.format(error))
        except ValueError as error:
            raise UsageError(f"{path}:{line}: {error}") from None
        if row.failed:
            row = replace(row, failed=f"{path}:{line}: {row.failed}")
        if contradiction:
            contradictions.append(f"{path}:{line}: {contradiction}")
        rows.append(row)
    return Scores(source=str(path), rows=tuple(rows), contradictions=tuple(contradictions))


def _error_in(body: dict[str, Any], is_error: Callable[[str], bool]) -> str:
    """The error in place of the row's answer, or BFCL's kind of error; "" without any."""
    texts = (body[name] for name in FIELDS_OF_ANSWERS if isinstance(body.get(name), str))
    kind = body.get("error_type") or ""
    return next(filter(is_error, texts), kind if kind.endswith(INFERENCE_ERROR) else "")


def is_score(row: ScoreRow) -> bool:
    """Whether the row is a score; times and divergences are measured, and no set requires them."""
    return _approves(row.metric)


@lru_cache(maxsize=4096)
def _approves(metric: str) -> bool:
    return metric not in METRICS or METRICS[metric].approves


class _NoRow(ValueError):
    """An object that is no score row."""


def _row(body: dict[str, Any], evalset: str, line: int) -> tuple[ScoreRow, str]:
    """Read one score row: (row, how it contradicts itself or ""). Raises _NoRow for an invalid row.

    evalset: for rows that name none. line: of the row in its file.
    """

    def text(key: str) -> str:
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            raise _NoRow(f"`{key}` must be a text, found {value!r:.60}")
        return value or ""

    if slips := [*misspelt(frozenset(body), READ, _MEANT)]:
        raise _NoRow(slips[0])
    name, metric, repeat = text("id"), text("metric"), body.get("repeat", 0)
    if not name or not metric:
        raise _NoRow("a score row needs `id` and `metric`, each a text that is not empty")
    if type(repeat) is not int or repeat < 0:
        raise _NoRow(f"`repeat` must be a whole number from 0, found {repeat!r:.60}")
    value = as_value(body.get("value"))
    failed, contradiction = _standing(body, metric, value, text("status"), text("error_type"))
    if "value" not in body and not failed:
        raise _NoRow("a score row needs a `value`: a number, true, false or null")
    if not failed:
        refuse_out_of_range(metric, value, body["value"])
    if (unanswered := text("unanswered")) not in ("", "empty", "unfiltered"):
        raise _NoRow(f"`unanswered` must be empty or unfiltered, found {unanswered!r:.60}")
    if (finish_word := text("finish_reason")) and finish_word.lower() not in FINISH_WORDS:
        raise _NoRow(f"`finish_reason` must be eos, stop, length or abort, found {finish_word!r:.60}")
    task, serving = text("task"), served(body)
    if serving.attempts and not failed and all(attempt.outcome != "done" for attempt in serving.attempts):
        failed = "none of its `attempts` was done, so no answer came of them, whatever its `value` says"
    row = ScoreRow(
        id=name,
        metric=intern(metric),
        value=value,
        unsaid=intern(text("error_type")) if value is None else "",
        case_hash=text("case_hash"),
        scorer=intern(text("scorer")),
        repeat=repeat,
        cluster=text("cluster") if body.get("cluster") is not None else None,
        evalset=intern(text("evalset") or evalset),
        labels=_labelled(task, tuple(_tags(body.get("tags")))),
        finish_reason=FINISH_WORDS[finish_word.lower()] if finish_word else "",
        unanswered=cast("Any", unanswered),
        failed=failed,
        served=serving,
        extracted=str(body.get("extracted") or "")[:QUOTED],
        reason=str(body.get("reason") or "")[:QUOTED],
        model=intern(text("model")),
        line=line,
    )
    return row, contradiction


def _standing(body: dict[str, Any], metric: str, value: float | None, status: str, error_type: str) -> tuple[str, str]:
    """(why this is no answer, how the row contradicts itself); at least one is empty.

    Both of these are answers: a wrong one, whose `error_type` says what is wrong, and one without a value, which the
    scorer could not score.
    """
    verdict = body.get("verdict")
    if not isinstance(verdict, bool | None):
        raise _NoRow(f"`verdict` must be true, false or null, found {verdict!r:.60}")
    if status not in ("", "done"):
        return f"its `status` is {status!r:.60}; an answer's is 'done'", ""
    if error := body.get("error"):
        return f"its `error` is {error!r:.60}", ""
    known = METRICS.get(metric)
    fraction = value is not None and 0 < value < 1
    if known is not None and known.kind == "quality":
        if known.binary and fraction:
            raise _NoRow(
                f"{metric} is right or wrong, so its value is 0 or 1, found {value:g}; for several answers to a case "
                "write several rows, each with its `repeat`"
            )
        if verdict is not None and (value is None or (value in (0, 1) and verdict != bool(value))):
            return "", f"`verdict` is {json.dumps(verdict)} and `value` is {json.dumps(body.get('value'))}"
        if verdict is None and "verdict" in body and value is not None and not fraction:
            word = f" ({error_type:.60})" if error_type else ""
            return f"nobody could judge it: `verdict` is null{word}, whatever its `value` says", ""
    if error_type and value is not None and verdict is not False:
        return f"its `error_type` is {error_type!r:.60}, whatever its `value` says", ""
    return "", ""


def _tags(value: Any) -> list[str]:
    if not isinstance(value, list | None) or not all(isinstance(tag, str) for tag in value or ()):
        raise _NoRow(f"`tags` must be a list of texts, found {value!r:.60}")
    return value or []


@lru_cache(maxsize=4096)  # rows of many cases have equal ones
def _labelled(task: str, tags: tuple[str, ...]) -> tuple[str, ...]:
    return (*((f"task:{task}",) if task else ()), *(f"tag:{tag}" for tag in tags))


def as_value(value: Any) -> float | None:
    """A score's value as a number: true and false count 1 and 0; None stays null. ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise _NoRow(f"a score must be a number, true, false or null, found {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return nan  # beyond a double: a number of no range


def refuse_out_of_range(metric: str, value: float | None, written: Any) -> None:
    """Raise ValueError for a value outside the metric's range, such as NaN. written: the value as in its file."""
    if value is not None and (wanted := out_of_range(metric, value)):
        raise _NoRow(f"the value of {metric} must be {wanted}, found {json.dumps(written):.60}")
