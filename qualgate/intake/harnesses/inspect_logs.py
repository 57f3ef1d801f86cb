"""Read inspect_ai's logs: `.eval` archives and their JSON form.

A sample has an epoch, which is its repeat; scores by scorer, `C`, `I`, `P` and `N` as inspect counts them; an error,
where the run failed on it; a limit, where it was stopped. Read here and not by inspect_ai, whose reader has no bound on
what a log unpacks to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from math import isnan
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import Archive
from qualgate.intake.harnesses.fields import digest, mapping, read_score, sequence, shown, text, whole
from qualgate.intake.harnesses.json_stream import JsonFile
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted

HOW_SENT = (  # keys of the generate config that do not change what is answered
    "max_retries", "timeout", "attempt_timeout", "max_connections", "adaptive_connections", "batch", "cache",
    "cache_prompt", "logprobs", "top_logprobs", "prompt_logprobs",
)  # fmt: skip
LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "turn_limit", "cost_limit")
OF_MODEL = ("chat_template", "enable_thinking", "max_model_len", "max_length", "tokenizer_call_args")
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}  # value_to_float
LOGGED = "inspect logged an error"
REDUCED = (None, "mean")  # reducers of epochs whose mean the rows give


def recognise(probe: Probe) -> bool:
    """Whether the path is an `.eval` archive or a JSON log."""
    if probe.head.startswith(b"PK\x03\x04"):
        return b"_journal/" in probe.head or b"header.json" in probe.head or probe.path.suffix == ".eval"
    return probe.head.lstrip().startswith(b"{") and probe.says('"status"', '"eval"', '"task_id"', '"dataset"')


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a log. UsageError for one of another task or model than chosen."""
    with path.open("rb") as file:
        packed = file.read(4) == b"PK\x03\x04"
    if not packed:
        log = JsonFile(path, "samples")
        for position, body in enumerate(log.items, 1):
            yield _sample(f"{path}: sample {position}", body)
        return _run(path, log.rest, tally)
    with Archive(path) as archive:
        if "header.json" not in archive.names:
            raise UsageError(
                f"{path}: the run never finished (no header.json). Finish it: inspect eval-retry {path.name}, or "
                f"recover what it has: inspect log recover {path.name}"
            )
        for name in archive.names:
            if name.startswith("samples/") and name.endswith(".json"):
                yield _sample(f"{path}: {name}", archive.json(name))
        return _run(path, _object(path, archive.json("header.json")), tally)


def _run(path: Path, header: Mapping[str, Any], tally: Tally) -> Run:
    spec = _object(path, header.get("eval"))
    return Run(
        path=path,
        task=str(spec.get("task") or ""),
        model=str(spec.get("model") or ""),
        scorers=_scorers(spec),
        settings=_settings(spec, header),
        faults=(*_ended_early(path, header), *_miscounted(path, header, tally)),
    )


def _object(path: Path, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: no inspect log: its `eval` is no object")
    return value


def _sample(where: str, body: Any) -> Sample:
    """Read a sample. UsageError for what is none."""
    if not isinstance(body, dict) or not isinstance(body.get("id"), str | int) or isinstance(body.get("id"), bool):
        raise UsageError(f"{where}: no inspect sample, which has an `id`")
    epoch = body.get("epoch", 1)
    if type(epoch) is not int or epoch < 1:
        raise UsageError(f"{where}: `epoch` must be a whole number from 1, found {epoch!r:.40}")
    output, scores = mapping(body.get("output")), mapping(body.get("scores"))
    first = mapping(next(iter(sequence(output.get("choices"))), None))
    message = mapping(first.get("message"))
    read = {name: _value(where, name, score) for name, score in scores.items()}
    values = {f"{name}.{key}" if key else name: value for name, of in read.items() for key, value in of.items()}
    return Sample(
        id=str(body["id"]),
        where=where,
        repeat=epoch,
        question=[body.get("input"), body.get("choices"), _before_answer(body.get("messages"))],
        target=_target(body.get("target")),
        text=_text(message.get("content")) if message else None,
        calls=bool(message.get("tool_calls")),
        extracted=next((answer for answer in map(_answer, scores.values()) if answer is not None), None),
        tokens=whole(mapping(output.get("usage")).get("output_tokens")),
        finish=_finish(body.get("limit"), first.get("stop_reason")),
        error=_error(body.get("error"), output.get("error")),
        values=values,
        reason=next(filter(None, (text(mapping(score).get("explanation")) for score in scores.values())), ""),
    )


def _before_answer(messages: Any) -> list[Any]:
    """What was sent before the first answer: few-shots, system messages and templates that a solver added."""
    every = map(mapping, sequence(messages))
    return [
        [part.get("role"), part.get("content")]
        for part in takewhile(lambda part: part.get("source") != "generate" and part.get("role") != "assistant", every)
    ]


def _answer(score: Any) -> str | None:
    """What a scorer read in the answer; None where it does not say."""
    answer = mapping(score).get("answer")
    return answer if isinstance(answer, str) else None


def _value(where: str, name: str, score: Any) -> dict[str, float | None]:
    """The values of one scorer, by key where it gives several ("" = one)."""
    value = score.get("value") if isinstance(score, dict) else score
    parts = value if isinstance(value, dict) else {"": value}
    return {str(key): _number(where, name, part) for key, part in parts.items()}


def _number(where: str, name: str, value: Any) -> float | None:
    result = read_score(where, name, value, GRADES)
    return None if result is None or (isnan(result) and not isinstance(value, str)) else result  # NaN: it cannot say


def _text(content: Any) -> str:
    """The visible text of a message: its parts of text, thoughts left out."""
    if isinstance(content, str):
        return content
    parts = [mapping(part) for part in sequence(content)]
    return "".join(text(part.get("text")) for part in parts if part.get("type") == "text")


def _target(target: Any) -> str:
    return target if isinstance(target, str) else "\n".join(map(str, target)) if isinstance(target, list) else ""


def _finish(limit: Any, stop_reason: Any) -> str:
    """How the answer ended. A sample stopped by a limit of the run has an answer that was cut."""
    if isinstance(limit, dict):
        return "length"
    return stop_reason if isinstance(stop_reason, str) and stop_reason != "unknown" else ""


def _error(error: Any, of_output: Any) -> str:
    if isinstance(error, dict):
        return f"{LOGGED}: {str(error.get('message'))[:300]}"
    return f"the model's API answered with an error: {str(of_output)[:300]}" if of_output else ""


def _scorers(spec: Mapping[str, Any]) -> dict[str, str]:
    """The scorer's name → its name and options."""
    return {
        str(scorer.get("name")): f"inspect {scorer.get('name')} {digest(scorer.get('options') or {})}"
        for scorer in map(mapping, sequence(spec.get("scorers")))
    }


def _settings(spec: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, str]:
    """What both sides must have alike: sampling, task arguments and versions, the solver's steps, epochs."""
    plan, limits, own = (mapping(of) for of in (header.get("plan"), spec.get("config"), spec.get("model_args")))
    config = {**mapping(spec.get("model_generate_config")), **mapping(plan.get("config"))}
    settings = {name: shown(config[name]) for name in config if name not in HOW_SENT and config[name] is not None}
    settings |= {f"the {name}": shown(limits[name]) for name in LIMITS if limits.get(name) is not None}
    settings |= {f"the model's {name}": shown(own[name]) for name in OF_MODEL if own.get(name) is not None}
    steps = [[step.get("solver"), step.get("params")] for step in map(mapping, sequence(plan.get("steps")))]
    settings["the solver"] = " > ".join(str(step[0]) for step in steps) + f" ({digest(steps)})"
    settings["the task's version"] = str(spec.get("task_version", 0))
    if arguments := mapping(spec.get("task_args")):
        settings["the task's arguments"] = str(dict(sorted(arguments.items())))
    settings |= {
        f"the model in the role {role!r:.40}": digest(of) for role, of in mapping(spec.get("model_roles")).items()
    }
    if not spec.get("model_roles"):
        settings |= {
            f"the judge of {scorer.get('name')}": f"the model itself, {spec.get('model')}"
            for scorer in map(mapping, sequence(spec.get("scorers")))
            if "model_graded" in str(scorer.get("name")) and not mapping(scorer.get("options")).get("model")
        }
    settings["epochs"] = str(mapping(spec.get("config")).get("epochs") or 1)
    return settings


def _ended_early(path: Path, header: Mapping[str, Any]) -> Iterator[str]:
    if (status := header.get("status")) != "success":
        message = str(mapping(header.get("error")).get("message") or "")[:200]
        yield f"{path}: inspect's run ended with the status {status!r:.40}{': ' + message if message else ''}"
    if header.get("invalidated") is True:
        yield f"{path}: its samples were marked as invalid in inspect"


def _miscounted(path: Path, header: Mapping[str, Any], tally: Tally) -> Iterator[str]:
    """Say where inspect's own summary is not that of the samples: their number, those without an error, means."""
    results = mapping(header.get("results"))
    yield from miscounted(path, "inspect", "samples", results.get("total_samples"), tally.samples)
    yield from miscounted(path, "inspect", "samples without an error", results.get("completed_samples"), tally.answers)
    for score in map(mapping, sequence(results.get("scores"))):
        names = (score.get("name"), f"{score.get('scorer')}.{score.get('name')}")
        for metric in ("accuracy", "mean"):
            stated = mapping(mapping(score.get("metrics")).get(metric)).get("value")
            mean = next((mean for mean in map(tally.mean, map(str, names)) if mean is not None), None)
            if mean is not None and score.get("reducer") in REDUCED:
                yield from miscounted(path, "inspect", f"{metric} of {names[0]}", stated, mean)
