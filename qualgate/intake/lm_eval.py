"""The `--log_samples` files of lm-eval: one line a document and filter → score rows.

Two samples are a pair when document, prompt, target, filter and every request with its generation settings are the
same: lm-eval's own three hashes do not cover the other choices, nor `until` and `max_gen_toks`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.identity import content_hash
from qualgate.intake.copies import refuse_one_file_twice
from qualgate.intake.error_texts import NO_ANSWER, error_reader
from qualgate.intake.filtered import unanswered, written_texts
from qualgate.intake.jsonl import read_objects
from qualgate.intake.score_rows import ScoreRow, Scores, as_value, refuse_out_of_range
from qualgate.metrics import LM_EVAL, METRICS
from qualgate.records import Policy, Rule

HASHES = ("doc_hash", "prompt_hash", "target_hash")
OTHER_FIELDS = {*HASHES, "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
_LOG_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.:-]+")
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?(e[+-]\d{1,3})?", re.ASCII)
SCORE = f"{LM_EVAL}score"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """One file's rows under one filter."""

    task: str  # from the file's name; its stem where lm-eval did not name it
    filter: str
    scores: Scores


def read_samples(
    path: Path, *, filter: str | None = None, metric: str | None = None, error_texts: Iterable[str] | None = None
) -> SampleLog:
    """The samples of `path` under one filter; it must be named where the log has several.

    metric: a metric of lm-eval's that is not in the closed list; its value becomes `lm_eval.score`. error_texts: see
    `error_reader`.
    UsageError names file and line of what is no sample, and lists the metrics when none of them can be judged or that
    one is not among them.
    """
    samples = [(line, _sample(f"{path}:{line}", body)) for line, body in read_objects(path)]
    filters = sorted({str(body.get("filter", "none")) for _, body in samples})
    if filter is None and len(filters) > 1:
        raise UsageError(f"{path}: scored under the filters {', '.join(filters)}; say which counts: --filter NAME")
    chosen = filters[0] if filter is None else filter
    if chosen not in filters:
        raise UsageError(f"{path}: no sample under the filter {chosen!r}; its filters: {', '.join(map(repr, filters))}")
    mine = [(line, body) for line, body in samples if str(body.get("filter", "none")) == chosen]
    every = dict.fromkeys(name for _, body in mine for name in body["metrics"] if isinstance(name, str))
    if metric is not None and metric not in every:
        raise UsageError(f"{path}: --metric {metric}: no sample carries it{nearest(metric, every)}")
    # A pair for a score of the whole set (F1 of a choice, a Brier score) is no sample's own, unless it is named.
    pairs = {name for name in every if any(isinstance(body.get(name), list | dict) for _, body in mine)}
    names = {name: _our_name(name, metric) for name in every if name == metric or name not in pairs}
    if not any(names.values()):
        raise UsageError(
            f"{path}: has no metric that a rule may name, only {', '.join(sorted(every)) or 'none at all'}. For one "
            "with a value from 0 to 1 for each sample, name it: --metric NAME"
        )
    rows = tuple(_rows(path, mine, names, chosen, error_reader(error_texts)))
    named = _LOG_NAME.fullmatch(path.stem)
    scores = Scores(source=str(path), rows=rows)
    return SampleLog(task=named["task"] if named else path.stem, filter=chosen, scores=scores)


def _rows(
    path: Path,
    samples: Sequence[tuple[int, dict[str, Any]]],
    names: Mapping[str, str | None],
    chosen: str,
    is_error: Callable[[str], bool],
) -> Iterator[ScoreRow]:
    """One for each sample and metric. names: lm-eval's metric → ours, None where no rule may name it."""
    hashes = {line: _case_hash(body) for line, body in samples}
    asked = Counter(hashes.values())
    for line, body in samples:
        where, own = f"{path}:{line}", hashes[line]
        failure = next((text for text in written_texts(body) if is_error(text)), "")
        for name, ours in names.items():
            if ours is None or name not in body["metrics"]:
                continue
            if name not in body:
                raise UsageError(f"{where}: names the metric {name!r} and has no value for it")
            try:
                value = as_value(_as_logged(body[name]))
                refuse_out_of_range(ours, value, body[name])
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from None
            yield ScoreRow(
                id=str(body["doc_id"]),
                metric=ours,
                value=value,
                case_hash=own,
                scorer=f"lm_eval {name},{chosen}",
                cluster=own if own and asked[own] > 1 else None,  # asked twice is asked once
                unanswered=unanswered(body, value),
                failed=f"{where}: {NO_ANSWER.format(failure)}" if failure and value != 1 else "",
                line=line,
            )


def _sample(where: str, body: dict[str, Any]) -> dict[str, Any]:
    """The sample, with its metrics' names: versions of lm-eval before 0.4.6 put no list of them beside the values."""
    if "metrics" not in body and isinstance(body.get("filtered_resps"), list):
        body = {**body, "metrics": [name for name in body if name not in OTHER_FIELDS]}
    if type(body.get("doc_id")) is not int or not isinstance(body.get("metrics"), list):
        raise UsageError(f"{where}: not a sample of lm-eval's (`doc_id` and `metrics`); log with --log_samples")
    return body


def read_pair(
    baseline: Path,
    variant: Path,
    *,
    filter: str | None = None,
    metric: str | None = None,
    error_texts: Iterable[str] | None = None,
) -> tuple[SampleLog, SampleLog]:
    """Both sides of a comparison. UsageError for the logs of two tasks, and for one log twice."""
    refuse_one_file_twice({"baseline": baseline, "variant": variant})
    before, after = (
        read_samples(path, filter=filter, metric=metric, error_texts=error_texts) for path in (baseline, variant)
    )
    if before.task != after.task and all(_LOG_NAME.fullmatch(path.stem) for path in (baseline, variant)):
        raise UsageError(f"{baseline} logs the task {before.task}, {variant} logs {after.task}: not the same questions")
    return before, after


def default_policy(log: SampleLog, max_drop: float = 0.02) -> Policy:
    """Where no gate file says more: every metric of the log that can be judged, each held to the same margin."""
    carried = dict.fromkeys(row.metric for row in log.scores.rows)
    return Policy(rules=tuple(Rule(metric=name, scope="pooled", max_drop=max_drop) for name in carried))


def _as_logged(value: Any) -> Any:
    """numpy's own booleans and numbers, which a task's code often returns, lm-eval writes as texts."""
    if value in ("True", "False"):
        return value == "True"
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _our_name(metric: str, chosen: str | None) -> str | None:
    if metric == chosen:
        return SCORE
    name = f"{LM_EVAL}{metric}"
    return name if name in METRICS and name != SCORE else None


def _case_hash(body: dict[str, Any]) -> str:
    """An empty text when lm-eval's hashes are not there: then nothing says that both sides were asked the same."""
    if not all(isinstance(body.get(name), str) and body[name] for name in HASHES):
        return ""
    try:
        return content_hash([*(body[name] for name in HASHES), body.get("filter", "none"), body.get("arguments")])
    except ValueError:  # a NaN among the arguments
        return ""
