"""Read output items of OpenAI's hosted evals, one a line, as its API documents them (`eval.run.output_item`).

Written from the API's reference; no file of the product was at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.fields import mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally
from qualgate.intake.jsonl import read_objects

KIND = "eval.run.output_item"
SAMPLING = ("temperature", "top_p", "seed", "max_completion_tokens")


def recognise(probe: Probe) -> bool:
    """Whether the path holds output items."""
    return {"object", "datasource_item_id", "results", "sample"} <= probe.keys and probe.says(KIND)


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read the items of one run and model. UsageError for items of several evals."""
    settings: dict[str, set[str]] = {}
    for line, body in read_objects(path):
        where = f"{path}:{line}"
        case = body.get("datasource_item_id")
        if body.get("object") != KIND or not isinstance(case, int | str) or isinstance(case, bool):
            raise UsageError(f"{where}: no output item of a hosted eval, which has `datasource_item_id`")
        sample, results = mapping(body.get("sample")), [mapping(part) for part in sequence(body.get("results"))]
        model = text(sample.get("model"))
        if choice.model in ("", model):
            stated = {name: sample.get(name) for name in SAMPLING} | {
                name: body.get(name) for name in ("eval_id", "run_id")
            }
            stated["the graders"] = [[part.get("name"), part.get("type")] for part in results]
            stated |= {
                f"the judge of {part.get('name')}": judge
                for part in results
                if (judge := mapping(part.get("sample")).get("model"))
            }
            for name, value in stated.items():
                settings.setdefault(name, set()).add(shown(value))
        error = sample.get("error")
        yield Sample(
            id=str(case),
            where=where,
            line=line,
            question=[body.get("datasource_item"), sample.get("input")],
            text=_text(sample.get("output")),
            calls=any(mapping(part).get("tool_calls") for part in sequence(sample.get("output"))),
            tokens=whole(mapping(sample.get("usage")).get("completion_tokens")),
            finish=text(sample.get("finish_reason")),
            error=_error(body, mapping(error)),
            values={
                text(part.get("name")) or str(position): number(part.get("score"))
                for position, part in enumerate(results)
            },
            model=model,
        )
    evals, runs = settings.pop("eval_id", set()), settings.pop("run_id", set())
    if len(evals) > 1:
        raise UsageError(f"{path}: items of several evals ({', '.join(sorted(evals)):.200}); give a file for each")
    return Run(
        path=path,
        task=choice.task or next(iter(evals), ""),
        settings={name: ", ".join(sorted(values)) for name, values in settings.items()},
        faults=(f"{path}: holds the items of {len(runs)} runs",) if len(runs) > 1 else (),
    )


def _text(output: Any) -> str | None:
    parts = [mapping(part).get("content") for part in sequence(output)]
    return "".join(map(text, parts)) if parts else None


def _error(body: Mapping[str, Any], error: Mapping[str, Any]) -> str:
    if error.get("message") or error.get("code"):
        return f"the hosted eval logged an error: {error.get('code')}: {error.get('message')!s:.300}"
    return "its status is 'error'" if body.get("status") in ("error", "errored") else ""
