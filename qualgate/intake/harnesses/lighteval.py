"""Read lighteval's details (Parquet, one row per document) and the results file of the same run.

lighteval logs no error and no end of an answer: an answer as long as the task's limit counts as cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from os import SEEK_END
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import choose, files_in, read_json
from qualgate.intake.harnesses.fields import mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.parquet import first_lengths, parquet_batches
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted

_DETAILS = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.parquet")
FOOTER = 262_144  # bytes
OF_DOC = ("id", "query", "choices", "gold_index", "instruction", "fewshot_samples", "generation_size", "task_name")
OF_RESPONSE = ("input", "text", "text_post_processed", "output_tokens")
OF_TASK = (
    "version", "num_fewshots", "few_shots_select", "prompt_function", "hf_repo", "hf_subset", "hf_revision", "metrics",
    "generation_size", "stop_sequence", "num_samples",
)  # fmt: skip


def recognise(probe: Probe) -> bool:
    """Whether the path is a details file, or a folder that holds some."""
    if probe.names:
        return any(_DETAILS.fullmatch(Path(name).name) for name in probe.names)
    return probe.head.startswith(b"PAR1") and (
        _DETAILS.fullmatch(probe.path.name) is not None or _is_details(probe.path)
    )


def _is_details(path: Path) -> bool:
    """Whether the file's end, where the schema stands, names the columns of details."""
    with path.open("rb") as file:
        file.seek(-min(FOOTER, path.stat().st_size), SEEK_END)
        end = file.read()
    return all(name in end for name in (b"doc", b"metric", b"model_response"))


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read the details of one task. UsageError names the choices if there are several."""
    path = _details_file(path, choice) if path.is_dir() else path
    named = _DETAILS.fullmatch(path.name)
    results = _results_beside(path, named["date"] if named else "")
    key = "|".join(_task(named["task"] if named else next(iter(mapping(results.get("config_tasks"))), "")))
    columns = (*(f"doc.{name}" for name in OF_DOC), "metric", *(f"model_response.{name}" for name in OF_RESPONSE))
    line = 0
    for batch in parquet_batches(path, columns, ("doc", "metric", "model_response")):
        lengths = first_lengths(batch, "model_response", "output_tokens")
        for row, tokens in zip(batch.drop_columns(["model_response"]).to_pylist(), lengths, strict=True):
            line += 1
            yield _sample(f"{path}: row {line}", row, tokens)
    general = mapping(results.get("config_general"))
    stated = mapping(mapping(results.get("results")).get(key))
    return Run(
        path=path,
        task=_task(key)[0],
        names=(key,),
        model=text(general.get("model_name")) or _model_of(path),
        settings=_settings(general, mapping(mapping(results.get("config_tasks")).get(key))),
        faults=tuple(_faults(path, stated, general, tally)),
        notes=() if results else (f"{path}: no results file of this run, so its settings are not compared",),
    )


def _task(name: str) -> tuple[str, str]:
    """(task, few-shots) of `name|shots`."""
    task, bar, shots = name.rpartition("|")
    return (task, shots) if bar else (name, "0")


def _details_file(folder: Path, choice: Choice) -> Path:
    """The details of a task in a folder. UsageError unless there is exactly one such file."""
    files = {name: named for name in files_in(folder, ".parquet") if (named := _DETAILS.fullmatch(Path(name).name))}
    return choose(
        folder,
        {name: ((named["task"], _task(named["task"])[0]), _model_of(folder / name)) for name, named in files.items()},
        choice,
        "details",
    )


def _model_of(details: Path) -> str:
    """The model as lighteval's folders name it: details/ORG/MODEL/DATE/file; "" for a file elsewhere."""
    parts = details.parts
    place = max((index for index, part in enumerate(parts) if part == "details"), default=len(parts))
    return "/".join(parts[place + 1 : -2])


def _results_beside(details: Path, date: str) -> Mapping[str, Any]:
    """The results file of the same run, {} if there is none."""
    folder, name = details.parent, f"results_{date}.json"
    places = [folder / name, folder.parent / name]
    if (model := _model_of(details)) and date:
        root = Path(str(details).rpartition(f"details/{model}/")[0])
        places.append(root / "results" / model / name)
    alone = [] if date else sorted(folder.glob("results_*.json"))[:2]
    found = next((place for place in places if date and place.is_file()), alone[0] if len(alone) == 1 else None)
    if found is None:
        return {}
    results = read_json(found)
    if not isinstance(results, dict) or not isinstance(results.get("config_general"), dict):
        raise UsageError(f"{found}: no results of lighteval, which have `config_general`")
    return results


def _sample(where: str, row: Mapping[str, Any], answer: tuple[Any, int | None]) -> Sample:
    """Read a row. answer: (its response without tokens, tokens of the answer). UsageError for what is none."""
    doc, (response, tokens) = mapping(row.get("doc")), answer
    if not text(doc.get("id")):
        raise UsageError(f"{where}: no document of lighteval, which has `doc.id`")
    texts = sequence(response.get("text_post_processed")) or sequence(response.get("text"))
    limit = whole(doc.get("generation_size"))
    golds = [choice for index in _golds(doc) for choice in sequence(doc.get("choices"))[index : index + 1]]
    return Sample(
        id=text(doc["id"]),
        where=where,
        question=[*map(doc.get, ("query", "choices", "instruction", "fewshot_samples")), response.get("input")],
        target=" ".join(map(str, golds[:1])),
        text=texts[0] if texts and isinstance(texts[0], str) else None,
        tokens=tokens,
        finish="length" if limit and tokens is not None and tokens >= limit else "",
        values={str(name): number(value) for name, value in mapping(row.get("metric")).items()},
    )  # fmt: skip


def _golds(doc: Mapping[str, Any]) -> list[int]:
    gold = doc.get("gold_index")
    return [index for index in (gold if isinstance(gold, list) else [gold]) if whole(index) is not None]


def _settings(general: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, str]:
    """What both sides must have alike: the task's definition, sampling, the system prompt."""
    if not general:
        return {}
    config = mapping(general.get("model_config"))
    settings = {f"the task's {key}": shown(task.get(key)) for key in OF_TASK}
    settings |= {
        name: shown(value) for name, value in mapping(config.get("generation_parameters")).items() if value is not None
    }
    settings["the system prompt"] = shown(config.get("system_prompt"))
    for key in ("num_fewshot_seeds", "max_samples", "lighteval_sha"):
        settings[key] = shown(general.get(key))
    for key in ("override_chat_template", "use_chat_template", "max_length", "max_model_length", "add_special_tokens"):
        if key in config:
            settings[key] = shown(config[key])
    return settings


def _faults(path: Path, stated: Mapping[str, Any], general: Mapping[str, Any], tally: Tally) -> Iterator[str]:
    """Say where the summary and the rows differ."""
    if general and not stated:
        yield f"{path}: lighteval's results file has no scores of this task"
    for name in tally.sums:
        if name in stated and f"{name}_stderr" in stated:  # with one, the score is a mean of the documents
            yield from miscounted(path, "lighteval", f"as the mean of {name}", stated[name], tally.mean(name) or 0.0)
