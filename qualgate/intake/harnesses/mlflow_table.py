"""Read MLflow's evaluation tables (`eval_results_table.json`): columns, and rows of values.

Scores are the columns `NAME/score`. A table names no judge, no sampling and no error; where the run's files lie around
it, its `NAME/mean` is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.fields import number, text, whole
from qualgate.intake.harnesses.json_stream import JsonFile
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.records.identity import sha256_text

COLUMNS: Mapping[str, tuple[str, ...]] = {  # what a column is → its usual names, the likeliest first
    "id": ("id", "sample_id", "question_id", "case_id"),
    "asked": ("inputs", "input", "question", "prompt", "query", "messages", "request"),
    "target": ("targets", "target", "ground_truth", "expected_response", "reference", "label"),
    "answer": ("outputs", "output", "predictions", "prediction", "response", "answer"),
    "model": ("model", "model_name"),
    "tokens": ("token_count",),
    "error": ("error", "error_message"),
    "repeat": ("repeat", "epoch"),
}
SCORE, REASON = "/score", "/justification"
MOST_COLUMNS = 1000
LONGEST_ID = 60


def recognise(probe: Probe) -> bool:
    """Whether the path is a table."""
    return probe.head.lstrip().startswith(b'{"columns"') and probe.says(SCORE, '"data"')


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a table. UsageError for one without columns of questions and of scores."""
    file = JsonFile(path, "data")
    columns: dict[str, int] = {}
    numbered: dict[str, int] = {}
    for position, values in enumerate(file.items, 1):
        columns = columns or _columns(path, file.rest.get("columns"))
        where = f"{path}: row {position}"
        if not isinstance(values, list) or len(values) != len(columns):
            raise UsageError(f"{where}: must have {len(columns)} values, one for each column")
        row = dict(zip(columns, values, strict=True))
        cells = {what: next((row[name] for name in names if name in row), None) for what, names in COLUMNS.items()}
        answer = cells["answer"]
        yield Sample(
            id=_id(cells, numbered),
            where=where,
            repeat=whole(cells["repeat"]) or 0,
            question=cells["asked"],
            target=_words(cells["target"]),
            text=answer if isinstance(answer, str | None) else _words(answer),
            tokens=whole(cells["tokens"]),
            error=f"the table names an error: {cells['error']!s:.300}" if cells["error"] else "",
            values={name.removesuffix(SCORE): _score(row[name]) for name in columns if name.endswith(SCORE)},
            reason=next((text(row[name]) for name in columns if name.endswith(REASON)), ""),
            model=_words(cells["model"]) if cells["model"] is not None else "",
        )
    _columns(path, file.rest.get("columns"))
    return Run(path=path, faults=() if choice.model else tuple(_miscounted(path, tally)))


def _columns(path: Path, names: Any) -> dict[str, int]:
    """The columns' names → their places. UsageError for a table that cannot be judged."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > MOST_COLUMNS:
        raise UsageError(f"{path}: no table of MLflow: `columns`, before `data`, must be a list of names")
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: a column stands in it twice")
    if not any(name.endswith(SCORE) for name in names):
        raise UsageError(f"{path}: no column NAME{SCORE}: these metrics gave one value for the whole table, no scores")
    if not any(name in names for name in COLUMNS["asked"]):
        raise UsageError(
            f"{path}: no column of what was asked ({', '.join(COLUMNS['asked'])}), so no rows can be paired"
        )
    return {name: index for index, name in enumerate(names)}


def _id(cells: Mapping[str, Any], numbered: dict[str, int]) -> str:
    """The row's own id, else what it asks; a question asked again is numbered."""
    if cells["id"] is not None:
        return _words(cells["id"])
    asked = _words(cells["asked"])
    name = asked if len(asked) <= LONGEST_ID else f"{asked[:LONGEST_ID]}… ({sha256_text(asked)[:12]})"
    numbered[name] = numbered.get(name, 0) + 1
    return name if numbered[name] == 1 else f"{name} #{numbered[name]}"


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _score(value: Any) -> float | None:
    if isinstance(value, str):
        return {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}.get(value.strip().lower())
    return number(value)


def _miscounted(path: Path, tally: Tally) -> Iterator[str]:
    """Say where the mean that MLflow kept beside the artifacts is not that of the rows."""
    for name in tally.sums:
        if ".." in name or name.startswith("/"):
            continue
        beside = path.parent.parent / "metrics" / name / "mean"
        try:
            with beside.open(encoding="ascii") as file:
                last = file.read(2**16).strip().rpartition("\n")[2].split(" ")
            yield from miscounted(
                path, "MLflow's run", f"as the mean of {name}", float(last[1]), tally.mean(name) or 0.0
            )
        except (OSError, ValueError, IndexError):
            continue
