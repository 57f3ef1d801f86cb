"""Read a HELM run: `run_spec.json`, `scenario_state.json`, `per_instance_stats.json` and `stats.json` of one folder.

An instance has an id, a training trial, which is its repeat, and a perturbation, which makes it another case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import choose, files_in, read_json
from qualgate.intake.harnesses.fields import mapping, number, sequence, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted

STATE, STATS, SUMMARY, SPEC = "scenario_state.json", "per_instance_stats.json", "stats.json", "run_spec.json"
OF_THE_MODEL = ("model", "model_deployment")
NO_SCORES = (  # beginnings of statistics that HELM keeps of every run, and that say nothing about an answer's quality
    "num_", "finish_reason_", "training_", "inference_", "batch_size", "prompt_truncated", "max_prob", "logprob",
    "predicted_index", "logprob_per_byte", "bits_per_byte", "perplexity",
)  # fmt: skip
TOKENS = "num_output_tokens"
FINISH = {"endoftext": "stop", "unknown": "", "none": ""}
Key = tuple[str, int]


def recognise(probe: Probe) -> bool:
    """Whether the path is a run's folder, one of its files, or a folder of runs."""
    if probe.names:
        names = {Path(name).name for name in probe.names}
        return {STATE, STATS} <= names
    return probe.path.name in (STATE, STATS, SUMMARY, SPEC) and probe.path.with_name(STATE).is_file()


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a run: a sample for each instance and trial; one that is asked once for each reference is one sample."""
    folder = _run(path, choice)
    spec = _object(folder / SPEC)
    adapter = mapping(spec.get("adapter_spec"))
    scored = _scored(folder / STATS)
    left = dict.fromkeys(scored)
    states: dict[Key, list[Mapping[str, Any]]] = {}
    twice: list[tuple[Key, Mapping[str, Any]]] = []
    for position, state in enumerate(sequence(_object(folder / STATE).get("request_states")), 1):
        body = mapping(state)
        instance = mapping(body.get("instance"))
        key = _key(
            {**body, "id": instance.get("id")},
            "id",
            instance.get("perturbation"),
            f"{folder / STATE}: request {position}",
        )
        group = states.setdefault(key, [])
        if any(
            shown(other.get("reference_index")) == shown(body.get("reference_index"))
            and other.get("request_mode") == body.get("request_mode")
            for other in group
        ):
            twice.append((key, body))
        else:
            group.append(body)
    for key, group in (*states.items(), *((key, [body]) for key, body in twice)):
        left.pop(key, None)
        yield _sample(f"{folder / STATE}: {key[0]}", key, group, scored.get(key, {}))
    return Run(
        path=folder,
        task=_task(text(spec.get("name"))),
        names=(folder.name, _task(folder.name)),
        model=text(adapter.get("model")),
        settings=_settings(spec, adapter),
        faults=tuple(_faults(folder, tally, len(left), scored)),
    )


def _object(path: Path) -> Mapping[str, Any]:
    body = read_json(path)
    if not isinstance(body, dict):
        raise UsageError(f"{path}: must be a JSON object")
    return body


def _run(path: Path, choice: Choice) -> Path:
    """The folder of the chosen run."""
    if not path.is_dir():
        return path.parent
    runs = [Path(name).parent for name in files_in(path, ".json") if Path(name).name == STATE]
    names = {str(run): ((_task((path / run).name), (path / run).name), "") for run in runs}
    return choose(path, names, replace(choice, model=""), "runs")


def _task(run: str) -> str:
    """The run's name without its model."""
    name, colon, arguments = run.partition(":")
    kept = [part for part in arguments.split(",") if part and not part.startswith(("model=", "model_deployment="))]
    return name + (colon + ",".join(kept) if kept else "")


def _key(body: Mapping[str, Any], of: Any, perturbation: Any, where: str) -> Key:
    name, trial = body.get(of) if isinstance(of, str) else None, whole(body.get("train_trial_index"))
    if not isinstance(name, str) or not name or trial is None:
        raise UsageError(f"{where}: no instance of HELM's, which has an id and `train_trial_index`")
    changed = mapping(perturbation)
    return (f"{name} {shown(changed)}" if changed else name), trial


def _scored(path: Path) -> dict[Key, dict[str, float | None]]:
    """(instance, trial) → its statistics."""
    scored: dict[Key, dict[str, float | None]] = {}
    for position, body in enumerate(sequence(read_json(path)), 1):
        where = f"{path}: instance {position}"
        key = _key(mapping(body), "instance_id", mapping(body).get("perturbation"), where)
        if key in scored:
            raise UsageError(f"{where}: {key[0]!r:.60} stands there twice")
        stats = [mapping(stat) for stat in sequence(mapping(body).get("stats"))]
        scored[key] = {text(mapping(stat.get("name")).get("name")): number(stat.get("mean")) for stat in stats}
    return scored


def _sample(where: str, key: Key, states: Sequence[Mapping[str, Any]], stats: Mapping[str, float | None]) -> Sample:
    instance, mapped = mapping(states[0].get("instance")), mapping(states[0].get("output_mapping"))
    requests = [mapping(state.get("request")) for state in states]
    results = [mapping(state.get("result")) for state in states]
    first = mapping(next(iter(sequence(results[0].get("completions"))), None))
    failed = next((result for result in results if result.get("success") is not True), None)
    answer = first.get("text") if len(states) == 1 else None
    right = _right(instance)
    letter = next((key for key, value in mapped.items() if value == right), "")
    values = {name: value for name, value in stats.items() if name and not name.startswith(NO_SCORES)}
    tokens = stats.get(TOKENS)
    return Sample(
        id=key[0],
        where=where,
        repeat=key[1],
        question=[{name: value for name, value in request.items() if name not in OF_THE_MODEL} for request in requests],
        target=letter or right,
        text=answer if isinstance(answer, str) else None,
        extracted=_extracted(answer, mapped) if mapped and isinstance(answer, str) else None,
        tokens=whole(int(tokens)) if tokens is not None and 0 <= tokens < 2**31 else None,
        finish=_finish(mapping(first.get("finish_reason")).get("reason")),
        error="" if failed is None else f"HELM logged a failed request: {str(failed.get('error'))[:300]}",
        values={} if failed is not None else values,
        labels=(f"tag:{split}",) if (split := text(instance.get("split"))) else (),
    )


def _extracted(answer: str, mapped: Mapping[str, Any]) -> str:
    """The choice that the adapter reads in the answer; "" for none."""
    return str(mapped.get(answer.strip(), ""))


def _right(instance: Mapping[str, Any]) -> str:
    for reference in map(mapping, sequence(instance.get("references"))):
        if "correct" in sequence(reference.get("tags")):
            return text(mapping(reference.get("output")).get("text"))
    return ""


def _finish(reason: Any) -> str:
    return FINISH.get(reason, reason) if isinstance(reason, str) else ""


def _settings(spec: Mapping[str, Any], adapter: Mapping[str, Any]) -> dict[str, str]:
    """What both sides must have alike: the adapter, the scenario, the metrics with their judges."""
    settings = {name: shown(value) for name, value in adapter.items() if name not in OF_THE_MODEL}
    for name in ("scenario_spec", "metric_specs", "data_augmenter_spec", "annotators"):
        settings[f"the {name.replace('_', ' ')}"] = shown(spec.get(name))
    return settings


def _faults(folder: Path, tally: Tally, unasked: int, scored: Mapping[Key, Mapping[str, Any]]) -> Iterator[str]:
    """Say where the run's files do not fit each other."""
    if unasked or len(scored) != tally.samples:
        yield f"{folder}: {STATS} scores {len(scored):,} instances, and {STATE} holds {tally.samples:,}"
    if not (folder / SUMMARY).is_file():
        yield f"{folder}: no {SUMMARY}: the run did not end"
        return
    stated: dict[str, float] = {}
    counts: dict[str, float] = {}
    for stat in map(mapping, sequence(read_json(folder / SUMMARY))):
        of = mapping(stat.get("name"))
        name, mean, total = text(of.get("name")), number(stat.get("mean")), number(stat.get("sum"))
        if of.get("perturbation") is None and of.get("split") == "test":
            if mean is not None:
                stated[name] = mean
            counts[name] = counts.get(name, 0) + (total or 0)
    if any(" {" in key[0] for key in scored) or len({key[1] for key in scored}) > 1:
        return  # HELM averages trials, and perturbed instances apart
    yield from miscounted(folder / SUMMARY, "HELM", "instances", counts.get("num_instances"), len(scored))
    for name in tally.sums:
        if len(tally.sums[name]) == tally.samples:
            yield from miscounted(
                folder / SUMMARY, "HELM", f"as the mean of {name}", stated.get(name), tally.mean(name) or 0.0
            )
