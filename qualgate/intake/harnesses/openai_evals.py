"""Read the logs of OpenAI's `oaieval`: lines of events, a first line with the spec and one with the final report.

A sample's `match` events and the numbers of its `metrics` events are scores; its first `sampling` event is the answer.
Events carry consecutive numbers, so that a lost or doubled one shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.fields import mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.intake.jsonl import read_objects

REPORTED = {"accuracy": ("accuracy", "match"), "score": ("score",), "f1_score": ("f1_score",)}  # report → our metric


def recognise(probe: Probe) -> bool:
    """Whether the path is a log of events."""
    return (probe.keys == {"spec"} and probe.says('"completion_fns"')) or {"run_id", "event_id", "type"} <= probe.keys


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a log: an answer for each sample and each of its matches."""
    run = _read(path)
    for name, case in run.cases.items():
        for repeat, match in enumerate(case.matches or [{}]):
            correct = match.get("correct")
            values = case.values if repeat == 0 else {}
            if match:
                values = {"match": float(correct) if isinstance(correct, bool) else None, **values}
            if not values and not case.error and not case.sampling:
                continue  # events beside the samples
            expected = match.get("expected")
            yield Sample(
                id=name,
                where=f"{path}:{case.line}",
                line=case.line,
                repeat=repeat,
                question=case.sampling.get("prompt"),
                target=expected if isinstance(expected, str) else "\n".join(map(str, sequence(expected))),
                text=_text(match.get("sampled", case.sampling.get("sampled"))),
                extracted=_picked(match),
                tokens=whole(mapping(case.sampling.get("usage")).get("completion_tokens")),
                error=case.error,
                values=values,
            )
    models = [str(name) for name in sequence(run.spec.get("completion_fns"))]
    return Run(
        path=path,
        task=text(run.spec.get("eval_name")),
        model=models[0] if models else "",
        settings=_settings(run.spec, models),
        faults=(*_not_whole(path, run), *_miscounted(path, run, tally)),
    )


@dataclass(slots=True, kw_only=True)
class _Case:
    """The events of one sample."""

    line: int
    sampling: Mapping[str, Any] = field(default_factory=dict)
    matches: list[Mapping[str, Any]] = field(default_factory=list)
    values: dict[str, float | None] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True, kw_only=True)
class _Events:
    """What a log holds."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    specs: int = 0
    report: Mapping[str, Any] | None = None
    runs: set[str] = field(default_factory=set)
    events: int = 0  # of different numbers
    last: int = -1
    twice: int = 0
    cases: dict[str, _Case] = field(default_factory=dict)


def _read(path: Path) -> _Events:
    run, numbers = _Events(), set[int]()
    for line, body in read_objects(path):
        if "spec" in body:
            run.spec, run.specs = mapping(body["spec"]), run.specs + 1
            continue
        run.runs.add(text(body.get("run_id")))
        if "final_report" in body:
            run.report = mapping(body["final_report"])
            continue
        event, case = whole(body.get("event_id")), body.get("sample_id")
        if event is None or not isinstance(case, str) or not isinstance(body.get("type"), str):
            raise UsageError(f"{path}:{line}: no event of OpenAI Evals, which has `event_id`, `sample_id` and `type`")
        if event in numbers:
            run.twice += 1
            continue
        numbers.add(event)
        run.last = max(run.last, event)
        _add(run.cases.setdefault(case, _Case(line=line)), body["type"], mapping(body.get("data")))
    run.events = len(numbers)
    return run


def _add(case: _Case, kind: str, data: Mapping[str, Any]) -> None:
    if kind == "sampling" and not case.sampling:
        case.sampling = data
    elif kind == "match":
        case.matches.append(data)
    elif kind == "metrics":
        case.values |= {key: number(value) for key, value in data.items() if isinstance(value, bool | int | float)}
    elif kind == "error":
        case.error = f"OpenAI Evals logged an error: {data.get('type')}: {data.get('message')!s:.300}"


def _text(sampled: Any) -> str | None:
    first = sampled[0] if isinstance(sampled, list) and sampled else sampled
    return first if isinstance(first, str) else None


def _picked(match: Mapping[str, Any]) -> str | None:
    """What the eval found in the answer; "" = nothing."""
    if "picked" not in match:
        return None
    picked = match["picked"]
    return picked if isinstance(picked, str) else "" if not picked else str(picked)


def _settings(spec: Mapping[str, Any], models: list[str]) -> dict[str, str]:
    """What both sides must have alike: the eval's class and arguments, seed, number of samples, judges."""
    config = mapping(spec.get("run_config"))
    of_eval = mapping(config.get("eval_spec"))
    settings = {
        "the eval": shown(spec.get("eval_name")),
        "the eval's class": shown(of_eval.get("cls")),
        "the seed": shown(config.get("seed")),
        "max_samples": shown(config.get("max_samples")),
    }
    settings |= {f"the eval's {key}": shown(value) for key, value in mapping(of_eval.get("args")).items()}
    if "modelgraded" in str(of_eval.get("cls")):
        settings["the judge"] = models[-1] if len(models) > 1 else f"the model itself, {models[0] if models else ''}"
    return settings


def _not_whole(path: Path, run: _Events) -> Iterator[str]:
    if not run.spec:
        yield f"{path}: has no spec of the run, the first line of such a log"
    if run.report is None:
        yield f"{path}: the run never finished (no final_report)"
    if len(run.runs) > 1 or run.specs > 1:
        yield f"{path}: holds the events of several runs"
    if run.twice:
        yield f"{path}: {run.twice:,} events stand in it twice"
    if run.events != run.last + 1:
        yield f"{path}: its events are numbered from 0 to {run.last:,}, and it holds {run.events:,} of them"


def _miscounted(path: Path, run: _Events, tally: Tally) -> Iterator[str]:
    for name, metrics in REPORTED.items():
        mean = next((mean for metric in metrics if (mean := tally.mean(metric)) is not None), None)
        if mean is not None:
            yield from miscounted(path, "the final report", name, mapping(run.report).get(name), mean)
