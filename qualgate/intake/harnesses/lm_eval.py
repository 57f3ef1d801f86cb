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
from sys import intern
from typing import Any

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.intake.error_texts import NO_ANSWER, error_reader
from qualgate.intake.filtered import unanswered, written_texts
from qualgate.intake.harnesses.containers import choose, files_in
from qualgate.intake.harnesses.lm_eval_results import Results, results_beside
from qualgate.intake.harnesses.log import Choice, Counts, Log
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import HEAD
from qualgate.intake.jsonl import read_objects
from qualgate.intake.score_rows import QUOTED, ScoreRow, Scores, as_value, refuse_out_of_range
from qualgate.intake.serving_rows import NOT_SAID, Served
from qualgate.records.identity import content_hash, sha256_text
from qualgate.records.metrics import LM_EVAL, METRICS, MOST_NATS
from qualgate.scoring.refusal_wording import is_refusal
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
    path = samples_file(path, choice) if path.is_dir() else path
    named = _LOG_NAME.fullmatch(path.stem)
    task = named["task"] if named else ""
    if choice.task and task and choice.task != task:
        raise UsageError(f"{path}: its task is {task!r:.80}, not {choice.task!r:.80}")
    results = results_beside(path, task)
    if choice.model and results.model != choice.model:
        raise UsageError(f"{path}: its model is {results.model or 'not said'!r:.80}, not {choice.model!r:.80}")
    samples = _Samples(path, choice, results.model, error_reader(error_texts))
    for line, body in read_objects(path):
        samples.add(f"{path}:{line}", line, body)
    rows = samples.rows()
    _refuse_certainty(path, rows)
    return Log(
        task=task,
        scores=Scores(source=str(path), rows=rows),
        counts=samples.counts(),
        settings=results.settings,
        faults=tuple(_faults(path, results, rows)),
        notes=(f"lm-eval, filter {samples.chosen}", *_notes_on_repeats(task or path.stem, samples.by_question)),
    )


class _Samples:
    """The rows of the samples under one filter, and what their answers are."""

    def __init__(self, path: Path, choice: Choice, model: str, is_error: Callable[[str], bool]) -> None:
        self.chosen = choice.filter
        self.by_question: dict[str, list[int]] = {}  # hash of a question → ids of its documents
        self._path, self._choice, self._model, self._is_error = path, choice, model, is_error
        self._filters: set[str] = set()
        self._names: dict[str, str] = {}  # lm-eval's metric → ours; "": not available to rules
        self._pairs: set[str] = set()  # metrics of the whole set (F1 of a choice, a Brier score): no sample's own
        self._rows: list[ScoreRow] = []
        self._numbers: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()

    def add(self, where: str, line: int, body: dict[str, Any]) -> None:
        """Add a row for each metric of a sample. UsageError for what is no sample, or no score."""
        body = _sample(where, body)
        filter = str(body.get("filter", "none"))
        self._filters.add(filter)
        self.chosen = self.chosen or filter
        if filter != self.chosen:
            return
        question, texts, case_hash = _question_hash(body), written_texts(body), _case_hash(body)
        if question:
            self.by_question.setdefault(question, []).append(body["doc_id"])
        failure = next((text for text in texts if self._is_error(text)), "")
        served = Served(text_sha256=sha256_text("\n".join(texts))) if texts else NOT_SAID
        extracted, row = json.dumps(body.get("filtered_resps"))[:QUOTED], None
        for name in body["metrics"]:
            if isinstance(name, str) and name not in self._names:
                self._names[name] = _our_name(name, self._choice.metric)
        for name, our_name in self._names.items():
            if not our_name or name not in body["metrics"]:
                continue
            if isinstance(body.get(name), list | dict) and name != self._choice.metric and not is_likelihood(our_name):
                self._pairs.add(our_name)
                continue
            if name not in body:
                raise UsageError(f"{where}: names the metric {name!r}, but has no value for it")
            try:
                value, weight = _measured(our_name, body[name])
                refuse_out_of_range(our_name, value, body[name])
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from None
            row = ScoreRow(
                id=str(body["doc_id"]),
                metric=our_name,
                value=value,
                weight=weight,
                case_hash=case_hash,
                scorer=intern(f"lm_eval {name},{self.chosen}"),
                cluster=question or None,
                unanswered=unanswered(body, value),
                failed=f"{where}: {NO_ANSWER.format(failure)}" if failure and value != 1 else "",
                served=served,
                extracted=extracted,
                model=self._model,
                line=line,
            )
            self._rows.append(row)
        self._count(texts[:1], row)

    def _count(self, texts: Sequence[str], row: ScoreRow | None) -> None:
        """Count a sample by its first text and its last row; `resps` of likelihood requests are no texts."""
        self._numbers["answers"] += 1
        for text in texts:
            self._texts[sha256_text(text)] += 1
            self._numbers["refused"] += is_refusal(text[:HEAD])
        if row is not None:
            self._numbers["errors"] += bool(row.failed)
            self._numbers[row.unanswered] += bool(row.unanswered)

    def counts(self) -> Counts:
        """What the answers are."""
        of = self._numbers
        return Counts(
            answers=of["answers"], errors=of["errors"], empty=of["empty"], unfiltered=of["unfiltered"],
            refused=of["refused"], alike=max(self._texts.values(), default=0), texts=self._texts.total(),
        )  # fmt: skip

    def rows(self) -> tuple[ScoreRow, ...]:
        """The rows of metrics that can be judged. UsageError for another filter than chosen, and if there is none."""
        path, metric, filters = self._path, self._choice.metric, sorted(self._filters)
        if not self._choice.filter and len(filters) > 1:
            raise UsageError(f"{path}: has scores of several filters ({', '.join(filters)}); choose one: --filter NAME")
        if self.chosen not in filters:
            listed = ", ".join(map(repr, filters))
            raise UsageError(f"{path}: no sample of the filter {self.chosen!r}; its filters: {listed}")
        if self._names.keys() <= {BYPASS}:
            raise UsageError(f"{path}: {NO_SCORES.format(BYPASS)}")
        if metric and metric not in self._names:
            raise UsageError(f"{path}: --metric {metric}: no sample has this metric{nearest(metric, self._names)}")
        if not any(name and name not in self._pairs for name in self._names.values()):
            raise UsageError(
                f"{path}: has no metric that a rule can use, only {', '.join(sorted(self._names)) or 'none at all'}. "
                "If one has a value from 0 to 1 for each sample, name it: --metric NAME"
            )
        return tuple(
            row if len(self.by_question.get(row.cluster or "", ())) > 1 else replace(row, cluster=None)
            for row in self._rows
            if row.metric not in self._pairs
        )


def samples_file(folder: Path, choice: Choice) -> Path:
    """The samples of a task in a folder of results. UsageError unless there is exactly one such file."""
    files = {name: named for name in files_in(folder, ".jsonl") if (named := _LOG_NAME.fullmatch(Path(name).stem))}
    return choose(
        folder, {name: ((named["task"],), "") for name, named in files.items()}, replace(choice, model=""), "samples"
    )


def _faults(path: Path, results: Results, rows: Sequence[ScoreRow]) -> Iterator[str]:
    """Say where the samples are not those that lm-eval counted."""
    documents = len({row.id for row in rows})
    if results.samples is not None and documents != results.samples:
        yield f"{path}: lm-eval counted {results.samples:,} documents, and the log holds {documents:,}"


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


def _our_name(metric: str, chosen: str) -> str:
    name = f"{LM_EVAL}{metric}"
    if metric == chosen and not is_likelihood(name):
        return SCORE
    return name if name in METRICS and name != SCORE else ""


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
