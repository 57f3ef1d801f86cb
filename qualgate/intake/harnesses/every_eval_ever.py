"""Read results in the schema of Every Eval Ever: lines of instance-level results, and the aggregate file of their run.

Either file may be given, or a folder with one pair. The aggregate's settings, checksum and number of rows are compared;
without instance-level results there is nothing to pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable
from qualgate.intake.harnesses.containers import read_json
from qualgate.intake.harnesses.fields import mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.intake.jsonl import read_objects

SAMPLES = "_samples.jsonl"
LEFT_OUT = ("execution_command",)  # generation arguments that name the model
UNKNOWN = -1  # the score of an unknown level


def recognise(probe: Probe) -> bool:
    """Whether the path is either file, or a folder with instance-level results."""
    if probe.names:
        pairs = {name.removesuffix(SAMPLES) for name in probe.names if name.endswith(SAMPLES)}
        return any(f"{stem}.json" in probe.names for stem in pairs)
    instance = {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= probe.keys
    return instance or probe.says('"schema_version"', '"evaluation_id"', '"evaluation_results"')


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read the instance-level results of one model. choice.task: an `evaluation_name`. UsageError without any."""
    samples, aggregate = _files(path)
    summary = {} if aggregate is None else mapping(read_json(aggregate))
    results = _Results(summary)
    for line, body in read_objects(samples):
        where, name = f"{samples}:{line}", text(body.get("evaluation_name"))
        evaluation = body.get("evaluation")
        if not isinstance(body.get("sample_id"), str) or not isinstance(evaluation, dict) or not name:
            raise UsageError(
                f"{where}: no instance of Every Eval Ever: needs `sample_id`, `evaluation_name`, `evaluation`"
            )
        if choice.task not in ("", name):
            continue
        results.tasks[name] = None
        results.runs.add((text(body.get("evaluation_id")), text(body.get("model_id"))))
        asked, output, metadata = (mapping(body.get(key)) for key in ("input", "output", "metadata"))
        answer, calls = _answer(body, output)
        metric, config = results.metric(body)
        correct = evaluation.get("is_correct")
        yield Sample(
            id=f"{name}/{body['sample_id']}",
            where=where,
            line=line,
            repeat=_epoch(metadata),
            question=[asked.get("raw"), asked.get("formatted"), asked.get("choices"), _before_answer(body)],
            target="\n".join(map(str, sequence(asked.get("reference")))),
            text=answer,
            calls=calls,
            extracted=_extracted(body),
            tokens=whole(mapping(body.get("token_usage")).get("output_tokens")),
            finish=text(metadata.get("stop_reason")) or text(metadata.get("finish_reason")),
            error=f"the results name an error: {body['error']!s:.300}" if body.get("error") else "",
            values=results.value(metric, config, evaluation.get("score"))
            | ({"is_correct": float(correct)} if isinstance(correct, bool) else {}),
            labels=(f"task:{name}",),
            model=text(body.get("model_id")),
        )
    return Run(
        path=samples,
        task=choice.task or ", ".join(results.tasks),
        settings=results.settings(),
        faults=tuple(_not_whole(samples, summary, results, tally, choice.task)),
        notes=tuple(results.notes(samples)),
    )


def _files(path: Path) -> tuple[Path, Path | None]:
    """(instance-level results, the aggregate beside them or None)."""
    if path.is_dir():
        found = sorted(path.rglob(f"*{SAMPLES}"))
        if len(found) != 1:
            raise UsageError(f"{path}: holds {len(found)} files of instance-level results; name one of them")
        path = found[0]
    if path.suffix != ".json":
        aggregate = path.with_name(path.name.removesuffix(SAMPLES) + ".json")
        return path, aggregate if path.name.endswith(SAMPLES) and aggregate.is_file() else None
    stated = text(mapping(mapping(read_json(path)).get("detailed_evaluation_results")).get("file_path"))
    names = (PurePosixPath(stated).name, path.stem + SAMPLES)  # a path of its repository; here the file lies beside
    samples = next((path.with_name(name) for name in names if name and path.with_name(name).is_file()), None)
    if samples is None:
        raise UsageError(
            f"{path}: has scores of whole sets alone; qualgate pairs answers, so put the instance-level results beside "
            f"it: {names[1]}"
        )
    return samples, path


class _Results:
    """The aggregate's results, as far as rows and settings need them."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        self.every = [mapping(result) for result in sequence(summary.get("evaluation_results"))]
        self._by_id = {
            result.get("evaluation_result_id"): result
            for result in self.every
            if isinstance(result.get("evaluation_result_id"), str)
        }
        self.tasks: dict[str, None] = {}
        self.runs: set[tuple[str, str]] = set()  # (evaluation_id, model_id) of rows
        self._upside_down: set[str] = set()

    def metric(self, body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """(the metric's name, its configuration)."""
        key = body.get("evaluation_result_id")
        result = self._by_id.get(key, {}) if isinstance(key, str) else {}
        config = mapping(result.get("metric_config"))
        name = text(config.get("metric_id")) or text(config.get("metric_name")) or text(result.get("evaluation_name"))
        if not result and len(self.every) == 1:
            config = mapping(self.every[0].get("metric_config"))
        return name or "score", config

    def value(self, name: str, config: Mapping[str, Any], score: Any) -> dict[str, float | None]:
        """The score by its metric's name; {} where less is better, which no rule on scores can judge."""
        if config.get("lower_is_better") is True:
            self._upside_down.add(name)
            return {}
        value = number(score)
        return {name: None if value == UNKNOWN and config.get("has_unknown_level") else value}

    def notes(self, path: Path) -> Iterator[str]:
        """A line for each metric that is not judged."""
        for name in sorted(self._upside_down):
            yield f"{path}: not judged, since less is better: {name:.60}"

    def settings(self) -> dict[str, str]:
        """What both sides must have alike: data, sampling, templates, plans, judges."""
        found: dict[str, dict[str, None]] = {}
        for result in self.every:
            metric, data = mapping(result.get("metric_config")), mapping(result.get("source_data"))
            config = mapping(result.get("generation_config"))
            arguments = {
                key: value for key, value in mapping(config.get("generation_args")).items() if key not in LEFT_OUT
            }
            judging = mapping(metric.get("llm_scoring"))
            judges = [mapping(mapping(judge).get("model_info")).get("id") for judge in sequence(judging.get("judges"))]
            stated = {**arguments, "the dataset": data.get("dataset_name"), "the dataset's split": data.get("hf_split"),
                      "the judges": judges or None, "the judges' prompt": judging.get("input_prompt")}  # fmt: skip
            for key, value in stated.items():
                if value is not None:
                    found.setdefault(key, {})[shown(value)] = None
        return {key: ", ".join(values) for key, values in found.items()}


def _epoch(metadata: Mapping[str, Any]) -> int:
    epoch = text(metadata.get("epoch"))
    return int(epoch) if epoch.isdecimal() and epoch.isascii() and len(epoch) < 7 else 0


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [mapping(message) for message in sequence(body.get("messages"))]


def _answer(body: Mapping[str, Any], output: Mapping[str, Any]) -> tuple[str | None, bool]:
    """(the answer's text, whether it calls tools)."""
    if output:
        raw = [part for part in sequence(output.get("raw")) if isinstance(part, str)]
        return "\n".join(raw) if raw else None, False
    last = next((message for message in reversed(_messages(body)) if message.get("role") == "assistant"), None)
    return (None, False) if last is None else (text(last.get("content")), bool(last.get("tool_calls")))


def _before_answer(body: Mapping[str, Any]) -> list[Any]:
    messages = _messages(body)
    first = next((index for index, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return [[message.get("role"), message.get("content")] for message in messages[:first]]


def _extracted(body: Mapping[str, Any]) -> str | None:
    """What the scorer read in the answer; None where the results do not say."""
    last = [mapping(item) for item in sequence(body.get("answer_attribution")) if mapping(item).get("is_terminal")]
    value = last[-1].get("extracted_value") if last else None
    return value if isinstance(value, str) else None


def _not_whole(path: Path, summary: Mapping[str, Any], results: _Results, tally: Tally, task: str) -> Iterator[str]:
    """Say where the aggregate is not that of these rows."""
    if not summary:
        return
    run, model = summary.get("evaluation_id"), mapping(summary.get("model_info")).get("id")
    if any(pair != (run, model) for pair in results.runs):
        yield f"{path}: its rows are of another run than the aggregate beside it ({run!s:.80})"
    detailed = mapping(summary.get("detailed_evaluation_results"))
    if not task:
        yield from miscounted(path, "the aggregate", "rows", detailed.get("total_rows"), tally.samples)
    stated, algorithm = text(detailed.get("checksum")), detailed.get("hash_algorithm")
    if stated and algorithm in ("sha256", "md5"):
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, algorithm).hexdigest()
        except OSError as error:
            raise UsageError(unreadable(path, error)) from None
        if digest != stated.lower():
            yield f"{path}: was changed after its aggregate was written ({algorithm} {digest[:12]}, not {stated[:12]})"
    for result in results.every:
        score = mapping(result.get("score_details")).get("score")
        name, _ = results.metric({"evaluation_result_id": result.get("evaluation_result_id")})
        mean = tally.mean(name) if len(results.tasks) == 1 and name != "score" else None
        if mean is not None:
            yield from miscounted(path, "the aggregate", f"as {name}", score, mean)
