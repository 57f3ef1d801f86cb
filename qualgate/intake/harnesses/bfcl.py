"""Read BFCL: `result/MODEL/…/BFCL_v4_CATEGORY_result.json` and the score file of the same category.

The score file's first line is the summary, the others are the wrong answers only: an answer that is in no line is
right. Neither file holds the questions, so rows are paired by their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.error_texts import INFERENCE_ERROR
from qualgate.intake.harnesses.containers import choose, files_in
from qualgate.intake.harnesses.fields import digest, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.intake.jsonl import read_objects

METRIC = "accuracy"
_RESULT = re.compile(r"(?P<set>BFCL_v\d+)_(?P<category>\w+)_result\.json")
_IN_RESULTS = ("result", "score")
FAILED = "Error during inference"  # how BFCL begins a result that is an error
ABSTAINS = "irrelevance"  # categories in which no call is right
PAIRED_BY_IDS = "BFCL's files do not hold the questions: answers are paired by their ids alone"


def recognise(probe: Probe) -> bool:
    """Whether the path is a result or score file, or a folder that holds them."""
    names = probe.names or (probe.path.name,)
    return any(_RESULT.fullmatch(Path(name).name.replace("_score.json", "_result.json")) for name in names)


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read one category of one model. UsageError names the choices if there are several."""
    path = _result_file(path, choice)
    named = _RESULT.fullmatch(path.name)
    if named is None:
        raise UsageError(f"{path}: BFCL's files are named BFCL_v4_CATEGORY_result.json; keep its names")
    category, scores = named["category"], _scores(path)
    results: dict[str, str] = {}  # id → digest of the result
    for line, body in read_objects(path):
        name, where = body.get("id"), f"{path}:{line}"
        if not isinstance(name, str) or not name or "result" not in body:
            raise UsageError(f"{where}: no result of BFCL's, which has `id` and `result`")
        results[name] = digest(body["result"])
        kind = scores.wrong.get(name, "")
        answer, calls = _answer(body["result"])
        if not kind and not answer and ABSTAINS in category:
            answer = None if calls or body["result"] == [] else ""  # an empty list is no call: right here
        yield Sample(
            id=name,
            where=where,
            line=line,
            question=[named["set"], name],
            text=answer,
            calls=calls,
            tokens=_tokens(body.get("output_token_count")),
            error=_error(kind, answer),
            values={METRIC: float(not kind)},
            reason=kind,
            labels=(f"task:{category}",),
        )
    model, of_folder = scores.model or _model_of(path), _model_of(path)
    return Run(
        path=path,
        task=category,
        model=of_folder if choice.model == of_folder else model,
        settings={"the question set": named["set"]},
        faults=tuple(_faults(scores, results, tally.samples)),
        notes=(f"{path.name}: {PAIRED_BY_IDS}",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """A score file."""

    path: Path
    summary: Mapping[str, Any]
    wrong: Mapping[str, str]  # id → error type
    judged: Mapping[str, str]  # id of a wrong answer → digest of the result that was scored, where it is logged
    model: str


def _result_file(path: Path, choice: Choice) -> Path:
    if not path.is_dir():
        return _beside(path, "score", "result") if path.name.endswith("_score.json") else path
    files = {name: named for name in files_in(path, "_result.json") if (named := _RESULT.fullmatch(Path(name).name))}
    return choose(
        path, {name: ((files[name]["category"],), _model_of(path / name)) for name in files}, choice,
        "results (BFCL_v4_CATEGORY_result.json)",
    )  # fmt: skip


def _model_of(result: Path) -> str:
    """The folder below `result`; else the file's own."""
    parts = result.parent.parts
    place = max((index for index, part in enumerate(parts[:-1]) if part in _IN_RESULTS), default=-1)
    return parts[place + 1] if place >= 0 else result.parent.name


def _beside(path: Path, of: str, other: str) -> Path:
    """The file of the same category on the other side, below `result` or `score`, or in the same folder."""
    name = path.name.removesuffix(f"_{of}.json") + f"_{other}.json"
    parts = list(path.parent.parts)
    place = max((index for index, part in enumerate(parts) if part == of), default=-1)
    mirrored = Path(*parts[:place], other, *parts[place + 1 :], name) if place >= 0 else None
    return mirrored if mirrored is not None and mirrored.is_file() else path.with_name(name)


def _scores(result: Path) -> _Scores:
    path = _beside(result, "result", "score")
    if not path.is_file():
        raise UsageError(f"{result}: no score file of this category ({path.name}). Score it: bfcl evaluate")
    summary: dict[str, Any] = {}
    wrong, judged = dict[str, str](), dict[str, str]()
    model = ""
    for line, body in read_objects(path):
        if line == 1 and "total_count" in body:
            summary = body
            continue
        name = body.get("id")
        if not isinstance(name, str) or body.get("valid") is not False:
            raise UsageError(f"{path}:{line}: no wrong answer of BFCL's, which has `id` and `valid: false`")
        error = body.get("error")
        kind = text(body.get("error_type")) or text(error.get("error_type") if isinstance(error, dict) else "")
        if "model_result_raw" in body:
            judged[name] = digest(body["model_result_raw"])
        wrong[name], model = kind or "wrong", text(body.get("model_name")) or model
    if not summary:
        raise UsageError(f"{path}:1: no summary of BFCL's, which has `accuracy`, `correct_count` and `total_count`")
    return _Scores(path=path, summary=summary, wrong=wrong, judged=judged, model=model)


def _error(kind: str, answer: str | None) -> str:
    """What failed. In categories where no call is right, BFCL counts an error as a right answer."""
    if kind.endswith(INFERENCE_ERROR):
        return f"BFCL logged {kind}"
    return f"BFCL logged {answer:.300}" if answer and answer.startswith(FAILED) else ""


def _answer(result: Any) -> tuple[str | None, bool]:
    """(The answer as text, whether it calls tools) of a text, of calls, or of the turns of a conversation."""
    if isinstance(result, str):
        return result, False
    while isinstance(result, list) and len(result) == 1 and isinstance(result[0], list | str):
        result = result[0]  # one turn, one step
    if isinstance(result, str):
        return result, False
    return (json.dumps(result), True) if result else ("", False)


def _tokens(count: Any) -> int | None:
    return whole(int(count)) if isinstance(count, float) and count.is_integer() else whole(count)


def _faults(scores: _Scores, ids: Mapping[str, str], answers: int) -> Iterator[str]:
    """Say where the two files do not fit."""
    summary = scores.summary
    yield from miscounted(scores.path, "BFCL", "answers", summary.get("total_count"), answers)
    right = sum(name not in scores.wrong for name in ids)
    yield from miscounted(scores.path, "BFCL", "right answers", summary.get("correct_count"), right)
    if strangers := [name for name in scores.wrong if name not in ids]:
        yield f"{scores.path}: {len(strangers):,} wrong answers are not in the results, such as {strangers[0]!r:.60}"
    if other := [name for name, result in scores.judged.items() if ids.get(name, result) != result]:
        yield f"{scores.path}: scores of other answers than the results hold, such as {other[0]!r:.60}: bfcl evaluate"
