"""JSON answers: json.valid (one value for the strict reader), json.schema (valid, and the case's schema accepts it)."""

from __future__ import annotations

from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import cannot_say, right, wrong
from qualgate.scoring.schema import CannotValidate, first_error

SCORER = "json/1"


def score_json(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    """Both flags; json.schema only where the case has a schema."""
    wants_schema = "schema" in case.body
    for mode, extract in strict_json.LENIENT.items():
        if mode in evalset.lenient:
            text = extract(text)
    try:
        value = strict_json.read(text)
    except strict_json.NotStrictJson as error:
        metrics = ("json.valid", "json.schema") if wants_schema else ("json.valid",)
        return {metric: wrong(metric, SCORER, error.error_type, str(error)) for metric in metrics}
    scores = {"json.valid": right("json.valid", SCORER, text)}
    if wants_schema:
        scores["json.schema"] = _against(case.body["schema"], value, text)
    return scores


def _against(schema: Any, value: Any, text: str) -> Score:
    try:
        error = first_error(schema, value)
    except CannotValidate as failure:
        return cannot_say("json.schema", SCORER, "schema_unusable", str(failure))
    if error is None:
        return right("json.schema", SCORER, text)
    return wrong("json.schema", SCORER, "schema", error, text)
