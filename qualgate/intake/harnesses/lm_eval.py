"""Convert lm-eval's `--log_samples` files, one line per document and filter, to score rows.

Two samples are a pair if document, prompt, target, filter and every request with its generation settings are equal:
lm-eval's own three hashes cover neither the other choices nor `until` and `max_gen_toks`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.intake.error_texts import NO_ANSWER, error_reader
from qualgate.intake.filtered import unanswered, written_texts
from qualgate.intake.harnesses.containers import files_in
from qualgate.intake.harnesses.lm_eval_results import Results, results_beside
from qualgate.intake.harnesses.log import Choice, Counts, Log
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import HEAD
from qualgate.intake.jsonl import read_objects
from qualgate.intake.score_rows import QUOTED, ScoreRow, Scores, as_value, refuse_out_of_range
from qualgate.intake.serving_rows import NOT_SAID, Served
from qualgate.records.identity import content_hash, sha256_text
from qualgate.records.metrics import LM_EVAL, METRICS, MOST_NATS
from qualgate.scoring.refusal_wording import read_answer
from qualgate.text.numbers import counted

NAME = "lm-eval"
HASHES = ("doc_hash", "prompt_hash", "target_hash")
OTHER_FIELDS = {*HASHES, "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
_LOG_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.:-]+")
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?(e[+-]\d{1,3})?", re.ASCII)
SCORE = f"{LM_EVAL}score"
OF_LENGTH_1 = (f"{LM_EVAL}word_perplexity", f"{LM_EVAL}perplexity")
BYPASS = "bypass"
NO_SCORES = (
    "answers without a score. lm-eval logs them so under --predict_only (no metric, or `{}` in place of one): run it "
    "again without that option"
)
SHOWN = 3  # documents named in one note


def recognise(probe: Probe) -> bool:
    """Whether the path is a samples file, or a folder that holds some."""
    if probe.names:
        return any(_LOG_NAME.fullmatch(Path(name).stem) and name.endswith(".jsonl") for name in probe.names)
    return {"doc_id", "resps", "filtered_resps"} <= probe.keys or {"doc_id", "metrics"} <= probe.keys


def read(path: Path, choice: Choice, error_texts: Iterable[str] | None) -> Log:
    """Read the samples of one task under one filter, which must be named if there are several.

    choice.metric: a metric of lm-eval outside the closed list; its value becomes `lm_eval.score`. UsageError names file
    and line of an invalid sample, and lists the metrics if none can be judged or the chosen one is not among them.
    """
    path = samples_file(path, choice.task) if path.is_dir() else path
    samples = [(line, _sample(f"{path}:{line}", body)) for line, body in read_objects(path)]
    filters = sorted({str(body.get("filter", "none")) for _, body in samples})
    if not choice.filter and len(filters) > 1:
        raise UsageError(f"{path}: has scores of several filters ({', '.join(filters)}); choose one: --filter NAME")
    chosen = choice.filter or filters[0]
    if chosen not in filters:
        raise UsageError(f"{path}: no sample of the filter {chosen!r}; its filters: {', '.join(map(repr, filters))}")
    chosen_samples = [(line, body) for line, body in samples if str(body.get("filter", "none")) == chosen]
    names = _judged_names(path, [body for _, body in chosen_samples], choice.metric or None)
    named = _LOG_NAME.fullmatch(path.stem)
    task, by_question = named["task"] if named else "", _by_question(chosen_samples)
    if choice.task and task and choice.task != task:
        raise UsageError(f"{path}: its task is {task!r:.80}, not {choice.task!r:.80}")
    results = results_beside(path, task)
    if choice.model and results.model != choice.model:
        raise UsageError(f"{path}: its model is {results.model or 'not said'!r:.80}, not {choice.model!r:.80}")
    is_error = error_reader(error_texts)
    rows = tuple(
        replace(row, model=results.model) for row in _rows(path, chosen_samples, names, chosen, is_error, by_question)
    )
    _refuse_certainty(path, rows)
    return Log(
        format=NAME,
        task=task,
        scores=Scores(source=str(path), rows=rows),
        counts=_counts(chosen_samples, rows),
        settings=results.settings,
        faults=tuple(_faults(path, results, rows)),
        notes=(f"lm-eval, filter {chosen}", *_notes_on_repeats(task or path.stem, by_question)),
    )


def samples_file(folder: Path, task: str) -> Path:
    """The samples of a task in a folder of results. UsageError unless there is exactly one such file."""
    files = {name: named for name in files_in(folder, ".jsonl") if (named := _LOG_NAME.fullmatch(Path(name).stem))}
    of_task = [name for name, named in files.items() if task in ("", named["task"])]
    if len(of_task) == 1:
        return folder / of_task[0]
    tasks = sorted({named["task"] for named in files.values()})
    if not of_task:
        raise UsageError(f"{folder}: no samples of the task {task!r:.80}; it has {', '.join(tasks)}")
    if len(tasks) > 1 and not task:
        raise UsageError(f"{folder}: samples of several tasks ({', '.join(tasks)}); choose one: --task NAME")
    raise UsageError(f"{folder}: {len(of_task)} runs of the task {tasks[0]}; name one file: {', '.join(of_task[:3])}")


def _judged_names(path: Path, samples: Sequence[dict[str, Any]], metric: str | None) -> dict[str, str | None]:
    """lm-eval's metric → ours; None: not available to rules."""
    every = dict.fromkeys(name for body in samples for name in body["metrics"] if isinstance(name, str))
    if every.keys() <= {BYPASS}:
        raise UsageError(f"{path}: {NO_SCORES.format(BYPASS)}")
    if metric is not None and metric not in every:
        raise UsageError(f"{path}: --metric {metric}: no sample has this metric{nearest(metric, every)}")
    # A pair for a score of the whole set (F1 of a choice, a Brier score) is no sample's own, unless it is named.
    pairs = {name for name in every if any(isinstance(body.get(name), list | dict) for body in samples)}
    judged = {name for name in every if name == metric or name not in pairs or is_likelihood(f"{LM_EVAL}{name}")}
    names = {name: _our_name(name, metric) for name in every if name in judged}
    if not any(names.values()):
        raise UsageError(
            f"{path}: has no metric that a rule can use, only {', '.join(sorted(every)) or 'none at all'}. If one has "
            "a value from 0 to 1 for each sample, name it: --metric NAME"
        )
    return names


def _counts(samples: Sequence[tuple[int, dict[str, Any]]], rows: Sequence[ScoreRow]) -> Counts:
    """What the answers are; `resps` of likelihood requests are no texts."""
    by_line = {row.line: row for row in rows}
    texts = [text for _, body in samples for text in written_texts(body)[:1]]
    return Counts(
        answers=len(samples),
        errors=sum(bool(row.failed) for row in by_line.values()),
        empty=sum(row.unanswered == "empty" for row in by_line.values()),
        unfiltered=sum(row.unanswered == "unfiltered" for row in by_line.values()),
        refused=sum(read_answer(text[:HEAD], other_language=False).kind == "refused" for text in texts),
        alike=max(Counter(texts).values(), default=0),
        texts=len(texts),
    )


def _faults(path: Path, results: Results, rows: Sequence[ScoreRow]) -> Iterator[str]:
    """Say where the samples are not those that lm-eval counted."""
    documents = len({row.id for row in rows})
    if results.samples is not None and documents != results.samples:
        yield f"{path}: lm-eval counted {results.samples:,} documents, and the log holds {documents:,}"


def _by_question(samples: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, list[int]]:
    """Question → ids of the documents that ask it, in order."""
    by_question: dict[str, list[int]] = {}
    for _, body in samples:
        if question := _question_hash(body):
            by_question.setdefault(question, []).append(body["doc_id"])
    return by_question


def _notes_on_repeats(task: str, by_question: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Note documents that ask the same question under several ids: epochs, or duplicates in the data set.

    by_question: hash of a question → the ids of its documents.
    """
    copies = [ids for documents in by_question.values() if len(ids := sorted(set(documents))) > 1]
    if not copies:
        return
    shown = "; ".join(", ".join(map(str, ids[:SHOWN])) + (", …" if len(ids) > SHOWN else "") for ids in copies[:SHOWN])
    yield (
        f"{task}: {sum(map(len, copies)):,} documents under several ids ask {counted(len(copies), 'question')}, word "
        f"for word the same (doc_id {shown}{'; …' if len(copies) > SHOWN else ''}), as epochs that are exported so: "
        "each question counts once, as a cluster"
    )


def _rows(
    path: Path,
    samples: Sequence[tuple[int, dict[str, Any]]],
    names: Mapping[str, str | None],
    chosen: str,
    is_error: Callable[[str], bool],
    by_question: Mapping[str, Sequence[int]],
) -> Iterator[ScoreRow]:
    """Yield a row for each sample and metric.

    samples: (line, sample). names: lm-eval's metric → ours; None: not available to rules. chosen: the filter. is_error:
    whether a text is an error instead of an answer. by_question: hash of a question → document ids.
    """
    for line, body in samples:
        where, question = f"{path}:{line}", _question_hash(body)
        texts = written_texts(body)
        failure = next((text for text in texts if is_error(text)), "")
        served = Served(text_sha256=sha256_text("\n".join(texts))) if texts else NOT_SAID
        extracted = json.dumps(body.get("filtered_resps"))[:QUOTED]
        for name, our_name in names.items():
            if our_name is None or name not in body["metrics"]:
                continue
            if name not in body:
                raise UsageError(f"{where}: names the metric {name!r}, but has no value for it")
            try:
                value, weight = _measured(our_name, body[name])
                refuse_out_of_range(our_name, value, body[name])
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from None
            yield ScoreRow(
                id=str(body["doc_id"]),
                metric=our_name,
                value=value,
                weight=weight,
                case_hash=_case_hash(body),
                scorer=f"lm_eval {name},{chosen}",
                cluster=question if len(by_question.get(question, ())) > 1 else None,  # asked twice is asked once
                unanswered=unanswered(body, value),
                failed=f"{where}: {NO_ANSWER.format(failure)}" if failure and value != 1 else "",
                served=served,
                extracted=extracted,
                line=line,
            )


def _sample(where: str, body: dict[str, Any]) -> dict[str, Any]:
    """Check the sample, and add the names of its metrics, which lm-eval before 0.4.6 does not list."""
    if "metrics" not in body and isinstance(body.get("filtered_resps"), list):
        body = {**body, "metrics": [name for name in body if name not in OTHER_FIELDS]}
    if type(body.get("doc_id")) is not int or not isinstance(body.get("metrics"), list):
        raise UsageError(f"{where}: not an lm-eval sample, which has `doc_id` and `metrics`; log with --log_samples")
    return body


def _refuse_certainty(path: Path, rows: Sequence[ScoreRow]) -> None:
    """Raise UsageError for a log-likelihood of 0. At length 1 some documents may have one, but not all: lm-eval counts
    one word in an empty text and 1 for a continuation, whose log-likelihood may round to 0."""
    uncertain = {row.metric for row in rows if row.weight is not None and row.value}
    for row in rows:
        least = 1 if row.metric in uncertain and row.metric in OF_LENGTH_1 else 0
        if row.value == 0 and row.weight is not None and row.weight > least:
            raise UsageError(
                f"{path}:{row.line}: the log-likelihood of document {row.id} under {row.metric} is 0, but no model is "
                "that certain. Check that the server gives log-likelihoods of prompts, then log the task again."
            )


def is_likelihood(metric: str) -> bool:
    """Whether lm-eval logs log-likelihoods under this metric of ours."""
    return metric in METRICS and METRICS[metric].kind == "likelihood"


def _measured(metric: str, logged: Any) -> tuple[float | None, float | None]:
    """(value, weight) of a sample: a score and None, or nats and the words or bytes (else 1) that they cover.
    ValueError for anything else."""
    if not is_likelihood(metric) or logged is None:
        return as_value(_as_logged(logged)), None
    pair = [logged, 1] if metric == f"{LM_EVAL}perplexity" else logged if isinstance(logged, list) else ()
    parts = [*map(_as_logged, pair)]
    if len(parts) != 2 or any(type(part) not in (int, float) for part in parts):
        raise ValueError(f"{metric} must be a log-likelihood, or one with its words or bytes, found {logged!r:.60}")
    likelihood, length = (as_value(part) or 0.0 for part in parts)
    if not -MOST_NATS <= likelihood <= 0:
        raise ValueError(
            f"the log-likelihood under {metric} is {likelihood:g}, but must be finite and at most 0; check the model "
            "for overflow"
        )
    if not (0 <= length <= MOST_NATS and length.is_integer()):
        raise ValueError(f"{metric} is divided by {length:g}, which cannot be a number of words or bytes")
    return 0.0 - likelihood, length


def _as_logged(value: Any) -> Any:
    """Convert texts of booleans and numbers: lm-eval logs numpy's so, which tasks often return."""
    if value in ("True", "False"):
        return value == "True"
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _our_name(metric: str, chosen: str | None) -> str | None:
    name = f"{LM_EVAL}{metric}"
    if metric == chosen and not is_likelihood(name):
        return SCORE
    return name if name in METRICS and name != SCORE else None


def _question_hash(body: dict[str, Any]) -> str:
    """Hash the requests without their settings, equal for epochs exported under other ids.

    Falls back to the hashes of prompt and target; "" if neither is known, or a request cannot be hashed.
    """
    logged = body.get("arguments")
    requests = [*logged.values()] if isinstance(logged, dict) else logged if isinstance(logged, list) else []
    values = [[*request.values()] if isinstance(request, dict) else request for request in requests]
    hashes = [body.get(name) for name in HASHES[1:]]
    try:
        texts = [
            [part for index, part in enumerate(request) if index != 1 or not isinstance(part, dict)]
            for request in values
        ]
        return content_hash(texts or hashes) if texts or all(hashes) else ""
    except (TypeError, ValueError):  # a request that is no list, a NaN in one
        return ""


def _case_hash(body: dict[str, Any]) -> str:
    """Hash that both sides must share; "" without lm-eval's own hashes: then nothing shows that the questions match."""
    if not all(isinstance(body.get(name), str) and body[name] for name in HASHES):
        return ""
    try:
        return content_hash([*(body[name] for name in HASHES), body.get("filter", "none"), body.get("arguments")])
    except ValueError:  # a NaN among the arguments
        return ""
