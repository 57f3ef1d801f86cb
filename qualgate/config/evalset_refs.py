"""References under a gate file's `evalsets`: a shipped set, a file, a task of lm-eval, or a set stored elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from qualgate import evalsets
from qualgate.config.paths import expanded
from qualgate.documents import nearest, quote, stated
from qualgate.errors.misplaced import nearest_path
from qualgate.records import ExternalCases, LmEvalTask

LM_EVAL_KEYS: dict[str, tuple[type, str]] = {
    "lm_eval": (str, "The task's or the group's name. Example: `lm_eval: gsm8k`"),
    "include_path": (
        str,
        "The folder of tasks of your own, relative to the gate file. Example: `include_path: ./tasks`",
    ),
    "filter": (str, "The filter of lm-eval's that counts. Example: `filter: strict-match`"),
    "metric": (str, "The task's metric that is judged, as `lm_eval.score`. Example: `metric: bleu`"),
    "num_fewshot": (
        int,
        "Examples before each question; the task's own number where it is left out. Example: `num_fewshot: 5`",
    ),
    "limit": (int, "Only so many documents of each task. Example: `limit: 200`"),
}
LM_EVAL_SCHEMA = {
    "type": "object",
    "properties": {
        name: (
            {"type": "string", "minLength": 1} if kind is str else {"type": "integer", "minimum": int(name == "limit")}
        )
        | {"description": meaning}
        for name, (kind, meaning) in LM_EVAL_KEYS.items()
    },
    "required": ["lm_eval"],
    "additionalProperties": False,
}
EXTERNAL_KEYS = {
    "name": "The set's name, as the rows of score files say it in `evalset`. Example: `name: support`",
    "cases": (
        "Says that the cases lie elsewhere: without `gate.expected`, the ids of all score files together are taken "
        "for all there are, and the verdict says so. Example: `cases: external`"
    ),
}
EXTERNAL_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": f"^{evalsets.NAME}$", "description": EXTERNAL_KEYS["name"]},
        "cases": {"const": "external", "description": EXTERNAL_KEYS["cases"]},
    },
    "required": ["name", "cases"],
    "additionalProperties": False,
}


def _lm_eval_task(ref: dict[Any, Any], info: ValidationInfo) -> LmEvalTask:
    """Check a task of lm-eval's, {lm_eval: NAME, …}. Its folder is checked only if files are."""
    for key, value in ref.items():
        if key not in LM_EVAL_KEYS:
            raise stated(f"unknown key {quote(key)} beside `lm_eval`{nearest(str(key), LM_EVAL_KEYS)}")
        kind, _ = LM_EVAL_KEYS[key]
        if type(value) is not kind or value == "" or (kind is int and value < (key == "limit")):
            wanted = "a text" if kind is str else f"a whole number from {int(key == 'limit')}"
            raise stated(f"`{key}` must be {wanted}, found {quote(value)}")
    if not re.fullmatch(evalsets.NAME, ref["lm_eval"]):
        raise stated(
            f"{quote(ref['lm_eval'])} cannot be the name of an lm-eval task; for a task of your own write the name "
            "after `task:` in its file, and the file's folder as `include_path`"
        )
    folder = expanded(ref.get("include_path", ""))
    if "include_path" in ref and info.context is not None:
        folder = info.context["folder"] / folder
        if info.context["files"] and not os.path.isdir(folder):
            raise stated(f"no folder {quote(str(folder), 200)} of lm-eval tasks{nearest_path(folder)}")
    return LmEvalTask(
        task=ref["lm_eval"],
        include_path=os.path.normpath(folder) if "include_path" in ref else "",
        filter=ref.get("filter", ""),
        metric=ref.get("metric", ""),
        num_fewshot=ref.get("num_fewshot"),
        limit=ref.get("limit"),
    )


def _external(ref: dict[Any, Any]) -> ExternalCases:
    """Check an evalset whose cases lie elsewhere: {name: NAME, cases: external}."""
    for key in ref:
        if key not in EXTERNAL_KEYS:
            raise stated(f"unknown key {quote(key)} of an evalset{nearest(str(key), (*EXTERNAL_KEYS, 'lm_eval'))}")
    name = ref.get("name")
    if not isinstance(name, str) or not re.fullmatch(evalsets.NAME, name):
        raise stated(f"`name` must be the name of an evalset, found {quote(name)}")
    if ref.get("cases") != "external":
        raise stated(
            f"`cases` must be `external`, found {quote(ref.get('cases'))}; for cases on this machine write their file "
            "instead: ./NAME.yaml"
        )
    return ExternalCases(name=name)


def _evalset_ref(ref: Any, info: ValidationInfo) -> Any:
    """Check one entry of `evalsets`: a shipped set's name, a path, a task of lm-eval's or an external set.

    A path is checked only if files are; it is returned as written.
    """
    if isinstance(ref, dict) and "lm_eval" in ref:
        return _lm_eval_task(ref, info)
    if isinstance(ref, dict) and ref:
        return _external(ref)
    if not isinstance(ref, str) or not ref:
        raise stated(f"an evalset is a shipped set's name or a path, not {quote(ref)}")
    if not evalsets.is_path(ref) and ref not in evalsets.shipped():
        own = evalsets.own_path(ref, Path(info.context["folder"] if info.context else ""))
        raise stated(f"no shipped evalset {quote(ref)}{nearest(ref, evalsets.shipped())}; write a file as {own}")
    if (
        info.context
        and info.context["files"]
        and evalsets.is_path(ref)
        and not os.path.isfile(info.context["folder"] / ref)
    ):
        file = info.context["folder"] / ref
        raise stated(f"no evalset at {quote(str(file), 200)}{nearest_path(file)}")
    return ref


EvalsetRef = Annotated[
    Any,
    AfterValidator(_evalset_ref),
    WithJsonSchema({"oneOf": [{"type": "string", "minLength": 1}, LM_EVAL_SCHEMA, EXTERNAL_SCHEMA]}),
]
