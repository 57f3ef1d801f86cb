"""Convert lm-eval's `--log_samples` files, one line per document and filter, to score rows.

Two samples are a pair if document, prompt, target, filter and every request with its generation settings are equal:
lm-eval's own three hashes cover neither the other choices nor `until` and `max_gen_toks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.intake.copies import refuse_one_file_twice
from qualgate.intake.error_texts import NO_ANSWER, error_reader
from qualgate.intake.filtered import unanswered, written_texts
from qualgate.intake.jsonl import read_objects
from qualgate.intake.score_rows import ScoreRow, Scores, as_value, refuse_out_of_range
from qualgate.records import Policy, Rule
from qualgate.records.identity import content_hash
from qualgate.records.metrics import LM_EVAL, METRICS, MOST_NATS
from qualgate.text.numbers import counted

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """One file's rows under one filter."""

    task: str  # from the file's name; its stem where lm-eval did not name it
    filter: str
    scores: Scores
    notes: tuple[str, ...] = ()  # notes for the verdict


def read_samples(
    path: Path, *, filter: str | None = None, metric: str | None = None, error_texts: Iterable[str] | None = None
) -> SampleLog:
    """Read the samples of `path` under one filter, which must be named if the log has several.

    metric: a metric of lm-eval outside the closed list; its value becomes `lm_eval.score`. error_texts: see
    `error_reader`. UsageError names file and line of an invalid sample, and lists the metrics if none can be judged or
    `metric` is not among them.
    """
    samples = [(line, _sample(f"{path}:{line}", body)) for line, body in read_objects(path)]
    filters = sorted({str(body.get("filter", "none")) for _, body in samples})
    if filter is None and len(filters) > 1:
        raise UsageError(f"{path}: has scores of several filters ({', '.join(filters)}); choose one: --filter NAME")
    chosen = filters[0] if filter is None else filter
    if chosen not in filters:
        raise UsageError(f"{path}: no sample of the filter {chosen!r}; its filters: {', '.join(map(repr, filters))}")
    chosen_samples = [(line, body) for line, body in samples if str(body.get("filter", "none")) == chosen]
    every = dict.fromkeys(name for _, body in chosen_samples for name in body["metrics"] if isinstance(name, str))
    if every.keys() <= {BYPASS}:
        raise UsageError(f"{path}: {NO_SCORES.format(BYPASS)}")
    if metric is not None and metric not in every:
        raise UsageError(f"{path}: --metric {metric}: no sample has this metric{nearest(metric, every)}")
    # A pair for a score of the whole set (F1 of a choice, a Brier score) is no sample's own, unless it is named.
    pairs = {name for name in every if any(isinstance(body.get(name), list | dict) for _, body in chosen_samples)}
    judged = {name for name in every if name == metric or name not in pairs or is_likelihood(f"{LM_EVAL}{name}")}
    names = {name: _our_name(name, metric) for name in every if name in judged}
    if not any(names.values()):
        raise UsageError(
            f"{path}: has no metric that a rule can use, only {', '.join(sorted(every)) or 'none at all'}. If one has "
            "a value from 0 to 1 for each sample, name it: --metric NAME"
        )
    named = _LOG_NAME.fullmatch(path.stem)
    task, by_question = named["task"] if named else path.stem, _by_question(chosen_samples)
    rows = tuple(_rows(path, chosen_samples, names, chosen, error_reader(error_texts), by_question))
    _refuse_certainty(path, rows)
    scores = Scores(source=str(path), rows=rows)
    return SampleLog(task=task, filter=chosen, scores=scores, notes=tuple(_notes_on_repeats(task, by_question)))


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
        failure = next((text for text in written_texts(body) if is_error(text)), "")
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


def read_pair(
    baseline: Path,
    variant: Path,
    *,
    filter: str | None = None,
    metric: str | None = None,
    error_texts: Iterable[str] | None = None,
) -> tuple[SampleLog, SampleLog]:
    """Read both sides of a comparison. UsageError for logs of two tasks, and for one log twice."""
    refuse_one_file_twice({"baseline": baseline, "variant": variant})
    before, after = (
        read_samples(path, filter=filter, metric=metric, error_texts=error_texts) for path in (baseline, variant)
    )
    if before.task != after.task and all(_LOG_NAME.fullmatch(path.stem) for path in (baseline, variant)):
        raise UsageError(f"{baseline} logs the task {before.task}, {variant} logs {after.task}; log one task for both")
    _refuse_other_lengths(before.scores, after.scores)
    return before, after


def _refuse_other_lengths(baseline: Scores, variant: Scores) -> None:
    """Raise UsageError if a text has two lengths: the two logs would divide by different numbers."""
    lengths = {(row.id, row.metric): row for row in baseline.rows if row.weight is not None}
    for row in variant.rows:
        other = lengths.get((row.id, row.metric))
        if other and other.case_hash == row.case_hash and row.weight not in (None, other.weight):
            raise UsageError(
                f"{variant.source}:{row.line}: {row.metric} of document {row.id} is divided by {row.weight:g}, and by "
                f"{other.weight:g} in {baseline.source}:{other.line}. Log both with one version of the task."
            )


def default_policy(log: SampleLog, max_drop: float | None = None, max_ratio: float | None = None) -> Policy:
    """The policy without a gate file: a rule on every metric of the log that can be judged, with one margin for scores
    and one for perplexities; by default 2 points and 2 %."""
    carried = dict.fromkeys(row.metric for row in log.scores.rows)
    max_drop, max_ratio = 0.02 if max_drop is None else max_drop, 1.02 if max_ratio is None else max_ratio
    return Policy(
        rules=tuple(
            Rule(metric=name, scope="pooled", max_ratio=max_ratio)
            if is_likelihood(name)
            else Rule(metric=name, scope="pooled", max_drop=max_drop)
            for name in carried
        )
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
