"""Formats of results, and the faults that a run may hide in them.

A format joins `FORMATS` with functions that read and write its files, and edit one sample. `FAULTS` are planted in the
same way in every format; those of a format's own are in its `settings` (runs that were set up otherwise) and `broken`
(logs that are not whole).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.intake.harnesses.formats import (
    EVERY_EVAL_EVER,
    GOLDEN,
    INSPECT,
    MLFLOW,
    OPENAI_EVALS,
    PROMPTFOO,
    Format,
    reference,
    save_eval,
    write,
)
from tests.intake.harnesses.other_formats import OTHER_FORMATS
from tests.intake.harnesses.row_formats import ROW_FORMATS

FORMATS = (
    Format(name="inspect", suffix=".json", save=write, **INSPECT),
    Format(name="inspect archive", suffix=".eval", save=save_eval, **INSPECT),
    Format(name="promptfoo", suffix=".json", golden=GOLDEN / "promptfoo" / "base.json", save=write, **PROMPTFOO),
    Format(name="openai-evals", suffix=".jsonl", **OPENAI_EVALS),
    Format(name="every-eval-ever", suffix="_samples.jsonl", **EVERY_EVAL_EVER),
    Format(name="mlflow", suffix=".json", **MLFLOW),
    *OTHER_FORMATS,
    *ROW_FORMATS,
)


# Faults of single answers, planted in every third sample: name → (edit, what the verdict must name, exit codes)


def _empty(form: Format, sample: Any) -> None:
    form.say(sample, "", False)


def _error_as_zero(form: Format, sample: Any) -> None:
    form.say(sample, "Error code: 503 - Service Unavailable", False)


def _missed(form: Format, sample: Any) -> None:
    form.say(sample, f"The answer is {reference(sample)}", False)
    if form.miss:
        form.miss(sample)


def _failed(form: Format, sample: Any) -> None:
    if form.fail:
        form.fail(sample, "Connection error.")


def _cut(form: Format, sample: Any) -> None:
    form.say(sample, "So the", False)
    if form.cut:
        form.cut(sample)


FAULTS: Mapping[str, tuple[Callable[[Format, Any], None], str, str, tuple[int, ...]]] = {
    "empty by a reasoning parser": (_empty, "", "are empty", (10, 12)),
    "a filter that finds nothing": (_missed, "miss", "are right and not found by the filter", (10, 12)),
    "errors as zeros": (_error_as_zero, "", "failed", (13,)),
    "logged errors": (_failed, "fail", "failed", (13,)),
    "answers cut at their limit": (_cut, "cut", "were cut at their limit", (10, 12)),
}
