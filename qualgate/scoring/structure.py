"""JSON answers: json.valid (one value for the strict reader), json.schema (valid, and the case's schema accepts it)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import actual, cannot_say, quote, right, wrong
from qualgate.scoring.schema import CannotValidate, first_error, lint, unread_formats
from qualgate.scoring.scorer import Scorer

SCORER = "json/5"
FORMATS = ("assert", "annotate")


def json_scores(body: Mapping[str, Any], text: str, lenient: Collection[str] = ()) -> dict[str, Score]:
    """Both flags; json.schema only where the case has a `schema`. lenient: names in `strict_json.LENIENT`."""
    wants_schema = "schema" in body
    try:
        # a text beyond the reader's size is refused, whatever stands around the value
        json_text = text if len(text) > strict_json.MAX_BYTES else strict_json.unwrapped(text, lenient)
        value = strict_json.read(json_text)
    except strict_json.NotStrictJson as error:
        metrics = ("json.valid", "json.schema") if wants_schema else ("json.valid",)
        return {metric: wrong(metric, SCORER, error.error_type, str(error)) for metric in metrics}
    scores = {"json.valid": right("json.valid", SCORER, json_text)}
    if wants_schema:
        scores["json.schema"] = _against(body["schema"], value, json_text, formats=asserted(body))
    return scores


def asserted(body: Mapping[str, Any]) -> bool:
    """Whether a case has its schema's `format` checked; by default it is a note for people, as JSON Schema has it."""
    return body.get("formats") == "assert"


def _against(schema: Any, value: Any, text: str, *, formats: bool) -> Score:
    """Return the score `json.schema` of a value. text: the answer's JSON, for the score. formats: assert `format`."""
    try:
        error = first_error(schema, value, formats=formats)
    except CannotValidate as failure:
        return cannot_say("json.schema", SCORER, "schema_unusable", str(failure))
    if error is None:
        return right("json.schema", SCORER, text)
    return wrong("json.schema", SCORER, "schema", error, text)


def schema_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `schema` and `formats` for json.schema. json.valid needs nothing."""
    if "json.schema" not in evalset.metrics:
        return
    if "schema" not in body:
        yield "json.schema needs `schema`; it is missing"
        return
    if body.get("formats", "annotate") not in FORMATS:
        yield f"`formats` must be one of {', '.join(FORMATS)}; {actual(body, 'formats')}"
    for reason in lint(body["schema"], formats=asserted(body)):
        yield f"`schema`: {reason}"


def schema_notes(body: dict[str, Any]) -> Iterator[str]:
    """Yield the formats that a valid case asserts and its schema's draft does not define."""
    for name in unread_formats(body["schema"]) if asserted(body) else ():
        yield f"`schema` asks for the format {quote(name)}, which its draft does not define: it is not checked"


SCORERS = (
    Scorer(
        name="json",
        version=SCORER,
        metrics=("json.valid", "json.schema"),
        function=lambda case, evalset, text: json_scores(case.body, text, evalset.lenient),
        faults=schema_faults,
        lenient=strict_json.LENIENT,
    ),
)
