"""Use lm-eval's tasks as evalsets: lm-eval makes the requests and scores the answers, our engine gives the answers.

A case is one document with all its requests, scored by lm-eval's filters and metrics on that document alone. Tasks may
contain Python code (`!function`), which runs here as in lm-eval: include only folders you trust.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import needs
from qualgate.harness.generation import Generation, generation_settings
from qualgate.records import Case, Evalset, LmEvalTask, Score
from qualgate.records.identity import content_hash, sha256_text
from qualgate.records.metrics import LM_EVAL, METRICS

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

Task = Any  # lm_eval.api.task.Task, whose annotations are looser than its return values

SEEDS = (0, 1234)  # lm-eval's defaults for Python's and numpy's generators while loading, and for few-shot examples
SCORE = f"{LM_EVAL}score"
LIKELIHOODS = ("loglikelihood", "multiple_choice", "loglikelihood_rolling")


def load(ref: LmEvalTask) -> Evalset:
    """Load a task's documents as cases. UsageError for an unknown task, missing data, or unsupported requests."""
    loaded = _loaded(ref)
    cases = tuple(Case(evalset=ref.task, body=body) for body in loaded.bodies)
    return Evalset(
        name=ref.task,
        version=str(getattr(loaded.task, "VERSION", 0)),
        sha256=content_hash([_config(loaded.task), loaded.filter, loaded.metrics, [case.hash for case in cases]]),
        metrics=tuple(loaded.metrics.values()),
        description=f"lm-eval's task {ref.task}, filter {loaded.filter}",
        path=ref.include_path,
        cases=cases,
        lm_eval=ref,
    )


def score(case: Case, ref: LmEvalTask, text: str) -> tuple[Score, ...]:
    """Score one document's answers by lm-eval: gated metrics under their names, every other metric and filter as
    `lm_eval.METRIC,FILTER`. A metric that fails on an answer, or is no number, has no value."""
    loaded = _loaded(ref)
    try:
        with _as_lm_eval_runs(ref, int(case.hash[:8], 16)):  # seeded, so random metrics repeat
            results = _judge(loaded.task, loaded.requests[case.id], _answers(loaded.task, text))
    except Exception as error:  # a task's own code may fail on unexpected answers
        reason = " ".join(f"lm-eval's metric fails on this answer: {type(error).__name__}: {error}".split())[:400]
        return tuple(
            Score(metric=name, value=None, verdict=None, error_type="metric_failed", reason=reason,
                  scorer=_scorer(loaded.filter))
            for name in loaded.metrics.values()
        )  # fmt: skip
    scores = []
    for filter, (extracted, values) in results.items():
        for metric, value in values.items():
            gated = loaded.metrics.get(metric) if filter == loaded.filter else None
            number = _number(loaded.task, metric, value)
            scores.append(
                Score(
                    metric=gated or _other(metric, filter),
                    value=number,
                    verdict=bool(number) if number in (0.0, 1.0) else None,
                    error_type="" if number is not None else "not_a_number",
                    extracted=extracted[:400],
                    reason="" if number is not None else f"lm-eval's {metric} of this answer is {value!r:.60}",
                    scorer=_scorer(filter),
                )
            )
    return tuple(scores)


def _other(metric: str, filter: str) -> str:
    """Return the name of an ungated metric, within the 64 characters of a stored score's name."""
    name = f"{LM_EVAL}{metric},{filter}"
    return name if len(name) <= 64 else f"{name[:55]}~{sha256_text(name)[:8]}"


@cache
def library() -> str:
    """Return `lm_eval/VERSION`, or "" if it is not installed."""
    try:
        return f"lm_eval/{importlib.metadata.version('lm_eval')}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def today(name: str) -> str:
    """Return the scorer's name with the installed version of lm-eval; "" if it is not installed."""
    return f"{library()} {name.partition(' ')[2]}" if library() else ""


def _scorer(filter: str) -> str:
    return f"{library()} {filter}"[:64]


# ----------------------------------------------------------------------------------------------- loading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    task: Task
    requests: dict[str, list[Instance]]  # case id → the document's requests, in lm-eval's order
    bodies: tuple[dict[str, Any], ...]
    filter: str  # the gated filter
    metrics: dict[str, str]  # lm-eval's name → ours, for the gated metrics


@lru_cache(maxsize=64)
def _loaded(ref: LmEvalTask) -> _Loaded:
    """Load a task once for every document: its requests by document id, case bodies, the filter that counts, and
    metrics."""
    where = f"lm-eval's task {ref.task}"
    with _faults_named(ref):
        task = _task(ref)
    requests: dict[str, list[Instance]] = {}
    for instance in task.instances:
        requests.setdefault(str(instance.doc_id), []).append(instance)
    for instances in requests.values():
        instances.sort(key=lambda instance: instance.idx)
    bodies = _bodies(where, task, requests)
    names = [ensemble.name for ensemble in task._filters] or ["none"]
    if ref.filter not in ("", *names):
        raise UsageError(f"{where} has no filter {ref.filter!r}; it has {', '.join(names)}")
    if not ref.filter and len(names) > 1:
        raise UsageError(f"{where} has the filters {', '.join(names)}; say which counts: `filter: {names[0]}`")
    filter = ref.filter or names[0]
    metrics = _metrics(where, ref, task, next(iter(requests.values())), filter)
    return _Loaded(task=task, requests=requests, bodies=bodies, filter=filter, metrics=metrics)


def members(ref: LmEvalTask) -> tuple[LmEvalTask, ...]:
    """Return the tasks of the group or tag named by `ref`, in lm-eval's order with the group's settings; else `ref`.

    A missing lm-eval or an unknown name is left to `load` to report. UsageError for a group that cannot be loaded.
    """
    try:
        with _faults_named(ref):
            manager = _manager(ref.include_path)
    except UsageError:
        return (ref,)
    if ref.group or ref.task not in (*manager.all_groups, *manager.all_tags):
        return (ref,)
    with _faults_named(ref):
        tasks = _group(replace(ref, task="", group=ref.task))
    if not tasks:
        raise UsageError(f"lm-eval's group {ref.task} has no task")
    return tuple(replace(ref, task=name, group=ref.task) for name in tasks)


@lru_cache(maxsize=8)
def _manager(include_path: str) -> Any:
    """Return the manager of a folder's tasks alone, else of lm-eval's own, whose index takes 5 s."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=include_path or None, include_defaults=not include_path)


@lru_cache(maxsize=8)
def _group(ref: LmEvalTask) -> dict[str, Task]:
    """Load all tasks of a group together, as lm-eval does. `_task` changes their settings by `ref`, so the cache does
    not share tasks between different requests for the group."""
    return _manager(ref.include_path).load([ref.group])["tasks"]


def _task(ref: LmEvalTask) -> Task:
    """Load a task and build its requests."""
    if ref.group:
        task = _group(replace(ref, task=""))[ref.task]
    else:
        manager = _manager(ref.include_path)
        if ref.task not in manager.all_tasks:
            where = f"{ref.include_path} has" if ref.include_path else "lm-eval knows"
            raise UsageError(
                f"{where} no task {ref.task!r}; one of your own is found in the folder `include_path` names"
            )
        task = manager.load([ref.task])["tasks"][ref.task]
    if getattr(task, "UNSAFE_CODE", False):
        raise NotInThisVersion(f"{ref.task}: lm-eval would run model-written code in this process: not in this version")
    # As in lm-eval, a requested number of examples replaces the task's own, unless that is 0.
    own_fewshot = task.get_config("num_fewshot")
    if own_fewshot is None or (ref.num_fewshot is not None and own_fewshot != 0):
        task.set_config(key="num_fewshot", value=ref.num_fewshot or 0)
    task.set_fewshot_seed(seed=SEEDS[1])
    task.build_all_requests(limit=ref.limit, rank=0, world_size=1)
    return task


@contextlib.contextmanager
def _faults_named(ref: LmEvalTask) -> Iterator[None]:
    """Turn any error of a task's YAML, data and code while it is loaded into a UsageError that names the task."""
    where = f"lm-eval's task {ref.task}"
    try:
        with _as_lm_eval_runs(ref):
            yield
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == "lm_eval":
            raise UsageError(needs(where, "harness")) from None
        raise UsageError(f"{where} needs a package that is not installed: {error}") from None
    except UsageError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:600]
        raise UsageError(f"{where} cannot be loaded: {reason}") from error


@contextlib.contextmanager
def _as_lm_eval_runs(ref: LmEvalTask, seed: int | None = None) -> Iterator[None]:
    """Run with lm-eval's seeds or `seed`, without output, and in the folder of a local task, which has its files."""
    import numpy

    here, before = random.getstate(), numpy.random.get_state()
    silence = io.StringIO()
    try:
        random.seed(SEEDS[0] if seed is None else seed)
        numpy.random.seed(SEEDS[1] if seed is None else seed)
        with (
            contextlib.chdir(ref.include_path or "."),
            contextlib.redirect_stderr(silence),
            contextlib.redirect_stdout(silence),
        ):
            yield
    finally:
        random.setstate(here)
        numpy.random.set_state(before)


def _bodies(where: str, task: Task, requests: dict[str, list[Instance]]) -> tuple[dict[str, Any], ...]:
    """Return a case body for each document of a task. NotInThisVersion for requests that the engine cannot serve;
    UsageError for text that no store takes. where: the task, for messages."""
    bodies = []
    for case, instances in requests.items():
        first = instances[0]
        body: dict[str, Any] = {"id": case, "task": "lm_eval", "answer": str(task.doc_to_target(first.doc))}
        request_types = {instance.request_type for instance in instances}
        texts = [text for instance in instances for text in instance.args if not isinstance(text, dict)]
        if not all(isinstance(text, str) for text in texts):
            raise NotInThisVersion(f"{where}, document {case}: a request that is no text")
        if request_types == {"generate_until"} and len(instances) == 1 and len(first.args) == 2:
            asks = _settings(where, first.args[1])
            body |= {"prompt": first.args[0], "until": list(asks.until), "max_new_tokens": asks.limit}
            if asks.sampling.drawn:
                body |= asks.sampling.content
                if (first.repeats or 1) > 1:
                    raise NotInThisVersion(f"{where} draws {first.repeats} answers to a document and scores them as "
                                           "one: not in this version")  # fmt: skip
        elif request_types <= set(LIKELIHOODS):
            body |= {"prompt": first.args[0], "requests": [list(instance.args) for instance in instances]}
            body |= {"max_new_tokens": 0}
        else:
            types = ", ".join(sorted(request_types))
            raise NotInThisVersion(f"{where}, document {case}: {len(instances)} requests, {types}")
        body["doc_hash"] = sha256_text(json.dumps(first.doc, default=str, sort_keys=True))
        text = json.dumps(body, ensure_ascii=False)
        if "\\u0000" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError(f"{where}, document {case}: a NUL or half a character, which no database takes")
        bodies.append(body)
    # Documents with the same question are one cluster.
    questions = [content_hash([body["prompt"], body.get("requests")]) for body in bodies]
    times = Counter(questions)
    return tuple(
        body | ({"cluster": question} if times[question] > 1 else {})
        for body, question in zip(bodies, questions, strict=True)
    )


def _settings(where: str, settings: dict[str, Any]) -> Generation:
    try:
        return generation_settings(settings)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _metrics(where: str, ref: LmEvalTask, task: Task, instances: list[Instance], filter: str) -> dict[str, str]:
    """Return lm-eval metric → its name in rules, found by scoring one document; the one that `ref` names is SCORE.

    Left out: metrics that make sense only over all documents (pairs for F1), and metrics for which higher is worse.
    Raises UsageError if `ref` names one that is not there, or for which higher is worse.
    """
    values = _probed(where, task, instances)[filter][1]
    better = task.higher_is_better()
    if ref.metric and ref.metric not in values:
        raise UsageError(f"{where} has no metric {ref.metric!r} for a document; it has {', '.join(sorted(values))}")
    if ref.metric and not better.get(ref.metric, True):
        raise UsageError(f"{where}: more of {ref.metric} is worse, and a rule bounds a drop; use a rule on drift")
    names = {
        metric: name
        for metric, value in values.items()
        if (name := f"{LM_EVAL}{metric}") in METRICS and name != SCORE
        if not isinstance(value, tuple | list) and better.get(metric, True)
    }
    return {**names, **({ref.metric: SCORE} if ref.metric else {})}


def _probed(where: str, task: Task, instances: list[Instance]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Score a made-up answer: the empty text, or the reference if the task's code fails on that."""
    if instances[0].request_type == "generate_until":
        answers = ["", str(task.doc_to_target(instances[0].doc))]
    else:
        answers = [json.dumps([[-1.0, False] for _ in instances])]
    failure: Exception | None = None
    for answer in answers:
        try:
            return _judge(task, instances, _answers(task, answer))
        except Exception as error:
            failure = error
    raise UsageError(f"{where}: its metrics fail on any answer: {type(failure).__name__}: {failure}") from failure


# ----------------------------------------------------------------------------------------------- scoring


def _answers(task: Task, text: str) -> list[Any]:
    """Return answers in lm-eval's form: a text, (log-likelihood, greedy) of each request, or for rolling a number."""
    kind = task.OUTPUT_TYPE
    if kind == "generate_until":
        return [text]
    weighed = json.loads(text)
    return [number if kind == "loglikelihood_rolling" else (number, greedy) for number, greedy in weighed]


def _judge(task: Task, requests: list[Instance], answers: list[Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return filter → (extracted text, metric → value) for one document, as lm-eval's `evaluate` does."""
    instances = []
    for instance, answer in zip(requests, answers, strict=True):
        copied = copy.copy(instance)
        copied.resps, copied.filtered_resps = [answer] * (instance.repeats or 1), {}
        instances.append(copied)
    for ensemble in task._filters:
        ensemble.apply(instances)
    doc = instances[0].doc
    results = {}
    for name in instances[0].filtered_resps:
        extracted = [instance.filtered_resps[name] for instance in instances]
        value = extracted[0] if task.OUTPUT_TYPE == "generate_until" else extracted
        results[name] = (value if isinstance(value, str) else repr(value), dict(task.process_results(doc, extracted)))
    return results


def _number(task: Task, metric: str, value: Any) -> float | None:
    """Return a sample's value as a finite number, aggregated over this sample alone if it is a tuple or list."""
    try:
        if isinstance(value, tuple | list):
            value = task.aggregation()[metric]([value])
        number = float(value)
    except Exception:  # a metric defined only over the whole set
        return None
    return number if isfinite(number) else None


def _config(task: Task) -> str:
    """Return the task's configuration, with functions by their source and without memory addresses, which vary."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", json.dumps(task.dump_config(), sort_keys=True, default=repr))
