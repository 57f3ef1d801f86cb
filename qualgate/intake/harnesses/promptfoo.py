"""Read promptfoo's results: JSON or YAML that `promptfoo eval -o` writes, version 3.

A row is one test under one prompt and provider. Its assertions are metrics, by their `metric` or else their type, and
`pass` is promptfoo's own verdict on all of them. promptfoo numbers repeated tests anew, so that they count as one
cluster.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.fields import digest, mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.json_stream import JsonFile
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.intake.harnesses.yaml_file import YamlFile

FAILED = 2  # `failureReason` of a test whose provider failed; 1: an assertion did
SET = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop", "seed", "reasoning_effort",
       "frequency_penalty", "presence_penalty", "response_format", "tools", "tool_choice", "functions", "function_call",
       "passthrough", "reasoning", "thinking", "instructions", "systemPrompt")  # fmt: skip
STATED = ("equals", "contains", "icontains", "starts-with")  # assertions whose value is the reference


def recognise(probe: Probe) -> bool:
    """Whether the path is a results file."""
    head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"{"):
        return probe.says('"results"', '"prompts"', '"provider"') and (
            probe.says('"evalId"') or probe.says('"testIdx"')
        )
    return head.startswith((b"evalId:", b"results:")) and probe.says("\n  prompts:")


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read the tests of one provider, which must be chosen if there are several. UsageError for another version."""
    with path.open("rb") as opened:
        is_json = opened.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    file = JsonFile(path, "results", "results") if is_json else YamlFile(path, "results", "results")
    asserted, model = Asserted(), choice.model
    for position, body in enumerate(file.items, 1):
        where = f"{path}: result {position}"
        version = mapping(file.rest.get("results")).get("version", 3)
        if version != 3:
            raise UsageError(f"{path}: results of version {version!r:.20}; write them by promptfoo 0.100 or newer")
        if not isinstance(body, dict) or whole(body.get("testIdx")) is None:
            raise UsageError(f"{where}: no promptfoo result, which has a `testIdx`")
        prompts = sequence(mapping(file.rest.get("results")).get("prompts"))
        sample = _sample(where, body, prompts)
        if choice.model in ("", sample.model):
            model = sample.model or ""
            asserted.add(mapping(body.get("testCase")))
        yield sample
    results, config = mapping(file.rest.get("results")), mapping(file.rest.get("config"))
    return Run(
        path=path,
        task=text(config.get("description")),
        settings=_settings(results, config, model, asserted),
        faults=tuple(_miscounted(path, results, model, tally)),
    )


class Asserted:
    """What the tests assert, and who judges it."""

    def __init__(self) -> None:
        self.judges: Counter[str] = Counter()
        self.sum = 0  # of the definitions' hashes: their order says nothing

    def add(self, test: Mapping[str, Any]) -> None:
        """Add a test's assertions and the options that judge it."""
        options = mapping(test.get("options"))
        self.sum += int(digest([test.get("assert"), options]), 16)
        for judge in (options.get("provider"), *(mapping(a).get("provider") for a in sequence(test.get("assert")))):
            if judge:
                self.judges[_name(judge)] += 1


def _sample(where: str, body: Mapping[str, Any], prompts: list[Any]) -> Sample:
    response, test = mapping(body.get("response")), mapping(body.get("testCase"))
    parts = [mapping(part) for part in sequence(mapping(body.get("gradingResult")).get("componentResults"))]
    output, raw = response.get("output"), response.get("raw")
    answer = output if isinstance(output, str | None) else json.dumps(output, sort_keys=True, default=str)
    transformed = isinstance(raw, str) and bool(mapping(test.get("options")).get("transform"))
    return Sample(
        id=_id(body, prompts),
        where=where,
        question=[mapping(body.get("prompt")).get("raw"), body.get("vars"), test.get("assert")],
        target=_target(parts),
        text=raw if transformed else answer,
        extracted=answer if transformed else None,
        tokens=whole(mapping(response.get("tokenUsage")).get("completion")),
        finish=text(response.get("finishReason")),
        error=_error(body, response),
        values=_values(body, parts),
        reason=next((text(part.get("reason")) for part in parts if part.get("pass") is False), ""),
        model=_name(body.get("provider")),
    )


def _name(provider: Any) -> str:
    """A provider's name: its label, else its id."""
    return provider if isinstance(provider, str) else str(mapping(provider).get("label") or mapping(provider).get("id"))


def _id(body: Mapping[str, Any], prompts: list[Any]) -> str:
    """The test's number; with the prompt's among the provider's prompts, if it has several."""
    name = _name(body.get("provider"))
    own = [index for index, prompt in enumerate(prompts) if mapping(prompt).get("provider") == name]
    index = body.get("promptIdx")
    return f"{body['testIdx']}.{own.index(index)}" if len(own) > 1 and index in own else str(body["testIdx"])


def _target(parts: list[dict[str, Any]]) -> str:
    for part in parts:
        assertion = mapping(part.get("assertion"))
        if assertion.get("type") in STATED:
            rendered = mapping(part.get("metadata")).get("renderedAssertionValue", assertion.get("value"))
            return rendered if isinstance(rendered, str) else ""
    return ""


def _error(body: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    if body.get("failureReason") == FAILED or response.get("error") or (body.get("error") and not response):
        why = str(response.get("error") or body.get("error") or "no reason logged").partition("\n")[0]
        return f"promptfoo logged an error: {why:.300}"
    return ""


def _values(body: Mapping[str, Any], parts: list[dict[str, Any]]) -> dict[str, float | None]:
    """`pass`, and the mean score of the assertions of each name. {} for a test without assertions."""
    by_name: dict[str, list[float]] = {}
    for part in parts:
        assertion = mapping(part.get("assertion"))
        score = number(part.get("score"))
        if score is not None and (name := text(assertion.get("metric")) or text(assertion.get("type"))):
            by_name.setdefault(name, []).append(score)
    passed = body.get("success")
    values: dict[str, float | None] = {"pass": float(passed) if isinstance(passed, bool) else None}
    return values | {name: sum(scores) / len(scores) for name, scores in by_name.items()}


def _settings(results: Mapping[str, Any], config: Mapping[str, Any], model: str, asserted: Asserted) -> dict[str, str]:
    """What both sides must have alike: prompts, the provider's sampling, assertions, judges."""
    raws = [
        prompt.get("raw")
        for prompt in map(mapping, sequence(results.get("prompts")))
        if _name(prompt.get("provider")) == model
    ]
    own = next((p for p in map(mapping, sequence(config.get("providers"))) if _name(p) == model), {})
    settings = {
        f"the provider's {name}": shown(value) for name, value in mapping(own.get("config")).items() if name in SET
    }
    settings |= {"the provider's prompts": shown(own["prompts"])} if own.get("prompts") else {}
    settings |= {"the provider's transform": shown(own["transform"])} if own.get("transform") else {}
    default = mapping(mapping(config.get("defaultTest")).get("options")).get("provider")
    judges = sorted({*asserted.judges, *([_name(default)] if default else [])})
    return settings | {
        "the prompt": shown(raws[0] if len(raws) == 1 else raws),
        "the tests' assertions": f"{asserted.sum % 2**48:012x}",
        "the judge": shown(", ".join(judges) or "promptfoo's own"),
    }


def _miscounted(path: Path, results: Mapping[str, Any], model: str, tally: Tally) -> Iterator[str]:
    """Say where promptfoo's own counts of the provider are not those of its tests."""
    of_model = [
        mapping(prompt.get("metrics"))
        for prompt in map(mapping, sequence(results.get("prompts")))
        if _name(prompt.get("provider")) == model
    ]
    if not of_model:
        return
    passed = tally.total("pass")
    for key, what, found in (
        ("testPassCount", "passed tests", passed),
        ("testErrorCount", "errors", tally.errors),
        ("testFailCount", "failed tests", tally.answers - passed),
    ):
        stated = [number(metrics.get(key)) for metrics in of_model]
        if None not in stated:
            yield from miscounted(path, "promptfoo", what, sum(filter(None, stated)), found)
