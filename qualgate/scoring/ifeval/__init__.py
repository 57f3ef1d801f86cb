"""IFEval: whether an answer follows the instructions in its prompt that a program can verify.

strict: the answer as it is. loose: it, without asterisks, without its first line, its last, or both, and these without
asterisks: an instruction that one of the eight follows is followed. An empty text follows none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from qualgate.errors import close_names
from qualgate.records import Score
from qualgate.sandbox import killable
from qualgate.scoring import regexes
from qualgate.scoring.ifeval.checks import INSTRUCTIONS
from qualgate.scoring.ifeval.language import NoDetector
from qualgate.scoring.outcome import actual, cannot_say, right, too_long, wrong
from qualgate.scoring.scorer import Scorer, by_body

__all__ = ["INSTRUCTIONS", "SCORERS", "faults", "score_ifeval"]

SCORER = "ifeval/2"
MAX_TEXT = 2**18  # characters, read up to eight times for each instruction; a longer answer follows none
METRICS = {(level, way): f"ifeval.{level}_{way}" for level in ("prompt", "inst") for way in ("strict", "loose")}


def _arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that have a value: a published row lists every argument of every instruction."""
    return {name: value for name, value in kwargs.items() if value}


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a case cannot be scored. body: `instruction_id_list` and, for each, its arguments in `kwargs`."""
    ids, kwargs = body.get("instruction_id_list"), body.get("kwargs")
    if not isinstance(ids, list) or not ids or not isinstance(kwargs, list) or len(kwargs) != len(ids):
        key = "instruction_id_list" if not isinstance(ids, list) or not ids else "kwargs"
        yield (
            "ifeval needs `instruction_id_list` and `kwargs`, two lists of one length, as "
            f'["length_constraints:number_words"] and [{{"relation": "at least", "num_words": 3}}]; `{key}`: '
            f"{actual(body, key)}"
        )
        return
    for name, raw_arguments in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in INSTRUCTIONS:
            close = close_names(str(name), INSTRUCTIONS)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(INSTRUCTIONS)}"
            yield f"no instruction {name!r:.60}; {hint}"
        elif not isinstance(raw_arguments, dict):
            yield f"{name}: its arguments are no object"
        elif (fault := INSTRUCTIONS[name].fault(_arguments(raw_arguments))) is not None:
            yield f"{name}: {fault}"


def loosened(text: str) -> tuple[str, ...]:
    lines = text.split("\n")
    cut = (text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])))
    return tuple(dict.fromkeys((*cut, *(each.replace("*", "") for each in cut))))


def score_ifeval(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """ifeval.prompt_strict and .prompt_loose (all followed), ifeval.inst_strict and .inst_loose (their share).

    `extracted` is a JSON list: for each instruction true, false, or null where it could not be told (langdetect
    missing, a pattern stopped). Then there is no verdict unless another instruction is broken.
    """
    if fault := next(faults(body), None):
        return {metric: cannot_say(metric, SCORER, "case", fault) for metric in METRICS.values()}
    if refusal := too_long("", SCORER, text, MAX_TEXT):
        return {metric: replace(refusal, metric=metric) for metric in METRICS.values()}
    scores: dict[str, Score] = {}
    before: list[bool | None] = [False] * len(body["kwargs"])  # what is followed strictly is followed loosely
    for way, texts in (("strict", (text,)), ("loose", loosened(text)[1:])):
        followed: list[bool | None] = []
        reasons: list[str] = []
        for already, name, raw_arguments in zip(before, body["instruction_id_list"], body["kwargs"], strict=True):
            try:
                check, arguments = INSTRUCTIONS[name].check, _arguments(raw_arguments)
                followed.append(already or any(bool(form.strip()) and check(form, **arguments) for form in texts))
            except (NoDetector, killable.Killed, regexes.BadPattern) as failure:
                followed.append(None)
                reasons.append(f"{name}: {failure}")
            if already is None:
                followed[-1] = followed[-1] or None
                reasons.append(f"{name}: it could not be told of the answer as it is")
        for level in ("prompt", "inst"):
            metric = METRICS[level, way]
            scores[metric] = _score(metric, body, followed, reasons)
        before = followed
    return scores


def _score(metric: str, body: Mapping[str, Any], followed: list[bool | None], reasons: list[str]) -> Score:
    """Return the score of one metric. followed: for each instruction, None if undecided; reasons: why, for those."""
    followed_json = json.dumps(followed)
    if all(followed):
        return right(metric, SCORER, followed_json)
    if None in followed and (False not in followed or metric.startswith("ifeval.inst")):
        return cannot_say(metric, SCORER, "instruction", reasons[0])
    broken = [name for name, good in zip(body["instruction_id_list"], followed, strict=True) if good is False]
    missed = wrong(metric, SCORER, broken[0], f"not followed: {', '.join(broken)}", followed_json)
    value = 0.0 if metric.startswith("ifeval.prompt") else sum(map(bool, followed)) / len(followed)
    return Score(metric=metric, value=value, verdict=False, error_type=missed.error_type, extracted=followed_json,
                 reason=missed.reason, scorer=SCORER)  # fmt: skip


SCORERS = (
    Scorer(
        name="ifeval",
        version=SCORER,
        metrics=tuple(sorted(METRICS.values())),
        function=by_body(score_ifeval),
        faults=lambda body, evalset: faults(body),
    ),
)
