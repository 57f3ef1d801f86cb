"""lm-eval's tasks as evalsets: it makes the requests and scores the answers, our engine gives them.

A case is one document with all its requests; its scores are what lm-eval's filters and metrics say of that document
alone. Tasks may hold Python code (`!function`), which runs here as it runs in lm-eval: include folders you trust.
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
from qualgate.identity import content_hash, sha256_text
from qualgate.metrics import LM_EVAL, METRICS
from qualgate.records import Case, Evalset, LmEvalTask, Score

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

Task = Any  # lm_eval.api.task.Task, whose own annotations are looser than what it returns

SEEDS = (0, 1234)  # lm-eval's own: of Python's and numpy's generators while a task is loaded, and of few-shot examples
SCORE = f"{LM_EVAL}score"
LIKELIHOODS = ("loglikelihood", "multiple_choice", "loglikelihood_rolling")


def load(ref: LmEvalTask) -> Evalset:
    """The task's documents as cases. UsageError: no such task, no data, or nothing that qualgate could ask or judge."""
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
    """What lm-eval says of one document's answers: the gated metrics under their names, and every other metric and
    filter as `lm_eval.METRIC,FILTER`. A metric that fails on an answer, or is no number, has no value."""
    loaded = _loaded(ref)
    try:
        with _as_lm_eval_runs(ref, int(case.hash[:8], 16)):  # a metric that draws at random says the same each time
            said = _judge(loaded.task, loaded.asked[case.id], _answers(loaded.task, text))
    except Exception as error:  # a task's own code, on whatever a model can say
        reason = " ".join(f"lm-eval's metric fails on this answer: {type(error).__name__}: {error}".split())[:400]
        return tuple(
            Score(metric=name, value=None, verdict=None, error_type="metric_failed", reason=reason,
                  scorer=_scorer(loaded.filter))
            for name in loaded.metrics.values()
        )  # fmt: skip
    scores = []
    for filter, (extracted, values) in said.items():
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
    """The name of a metric that no rule can name, in the 64 characters that a score has for it."""
    name = f"{LM_EVAL}{metric},{filter}"
    return name if len(name) <= 64 else f"{name[:55]}~{sha256_text(name)[:8]}"


@cache
def library() -> str:
    """`lm_eval/VERSION`, or an empty text where it is not installed."""
    try:
        return f"lm_eval/{importlib.metadata.version('lm_eval')}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def today(then: str) -> str:
    """The scorer that lm-eval's installed version would be named where a run was scored by `then`."""
    return f"{library()} {then.partition(' ')[2]}" if library() else ""


def _scorer(filter: str) -> str:
    return f"{library()} {filter}"[:64]


# ----------------------------------------------------------------------------------------------- loading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    task: Task
    asked: dict[str, list[Instance]]  # case id → the document's requests, in lm-eval's order
    bodies: tuple[dict[str, Any], ...]
    filter: str  # the one that is gated
    metrics: dict[str, str]  # lm-eval's name → ours, of those that are gated


@lru_cache(maxsize=64)
def _loaded(ref: LmEvalTask) -> _Loaded:
    where = f"lm-eval's task {ref.task}"
    with _faults_named(ref):
        task = _task(ref)
    asked: dict[str, list[Instance]] = {}
    for instance in task.instances:
        asked.setdefault(str(instance.doc_id), []).append(instance)
    for instances in asked.values():
        instances.sort(key=lambda instance: instance.idx)
    bodies = _bodies(where, task, asked)
    names = [ensemble.name for ensemble in task._filters] or ["none"]
    if ref.filter not in ("", *names):
        raise UsageError(f"{where} has no filter {ref.filter!r}; it has {', '.join(names)}")
    if not ref.filter and len(names) > 1:
        raise UsageError(f"{where} has the filters {', '.join(names)}; say which counts: `filter: {names[0]}`")
    filter = ref.filter or names[0]
    metrics = _metrics(where, ref, task, next(iter(asked.values())), filter)
    return _Loaded(task=task, asked=asked, bodies=bodies, filter=filter, metrics=metrics)


def members(ref: LmEvalTask) -> tuple[LmEvalTask, ...]:
    """The tasks of the group or tag that `ref` names, in lm-eval's order, each as the group has it; else `ref` alone.

    Where lm-eval is not installed, or knows no such name, that is for `load` to say. UsageError for a group that cannot
    be loaded.
    """
    try:
        with _faults_named(ref):
            manager = _manager(ref.include_path)
    except UsageError:
        return (ref,)
    if ref.group or ref.task not in (*manager.all_groups, *manager.all_tags):
        return (ref,)
    with _faults_named(ref):
        found = _group(replace(ref, task="", group=ref.task))
    if not found:
        raise UsageError(f"lm-eval's group {ref.task} has no task")
    return tuple(replace(ref, task=name, group=ref.task) for name in found)


@lru_cache(maxsize=8)
def _manager(include_path: str) -> Any:
    """Of the folder alone, else of lm-eval's own tasks, whose index takes 5 s."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=include_path or None, include_defaults=not include_path)


@lru_cache(maxsize=8)
def _group(ref: LmEvalTask) -> dict[str, Task]:
    """All tasks of a group, made at once as lm-eval makes them. A member's settings are changed by how it is asked for,
    so groups that are asked for otherwise share none."""
    return _manager(ref.include_path).load([ref.group])["tasks"]


def _task(ref: LmEvalTask) -> Task:
    """The task with its requests built."""
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
    # As lm-eval does: a number asked for replaces the task's own, unless that is 0.
    own = task.get_config("num_fewshot")
    if own is None or (ref.num_fewshot is not None and own != 0):
        task.set_config(key="num_fewshot", value=ref.num_fewshot or 0)
    task.set_fewshot_seed(seed=SEEDS[1])
    task.build_all_requests(limit=ref.limit, rank=0, world_size=1)
    return task


@contextlib.contextmanager
def _faults_named(ref: LmEvalTask) -> Iterator[None]:
    """Around whatever a task's YAML, data and code can do while it is loaded: UsageError says of which task."""
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
    """Its seeds or another, and quiet; files that a local task names are relative to the folder it is in."""
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


def _bodies(where: str, task: Task, asked: dict[str, list[Instance]]) -> tuple[dict[str, Any], ...]:
    bodies = []
    for case, instances in asked.items():
        first = instances[0]
        body: dict[str, Any] = {"id": case, "task": "lm_eval", "answer": str(task.doc_to_target(first.doc))}
        kinds = {instance.request_type for instance in instances}
        texts = [text for instance in instances for text in instance.args if not isinstance(text, dict)]
        if not all(isinstance(text, str) for text in texts):
            raise NotInThisVersion(f"{where}, document {case}: a request that is no text")
        if kinds == {"generate_until"} and len(instances) == 1 and len(first.args) == 2:
            asks = _settings(where, first.args[1])
            body |= {"prompt": first.args[0], "until": list(asks.until), "max_new_tokens": asks.limit}
            if asks.sampling.drawn:
                body |= asks.sampling.content
                if (first.repeats or 1) > 1:
                    raise NotInThisVersion(f"{where} draws {first.repeats} answers to a document and scores them as "
                                           "one: not in this version")  # fmt: skip
        elif kinds <= set(LIKELIHOODS):
            body |= {"prompt": first.args[0], "requests": [list(instance.args) for instance in instances]}
            body |= {"max_new_tokens": 0}
        else:
            raise NotInThisVersion(f"{where}, document {case}: {len(instances)} requests, {', '.join(sorted(kinds))}")
        body["doc_hash"] = sha256_text(json.dumps(first.doc, default=str, sort_keys=True))
        text = json.dumps(body, ensure_ascii=False)
        if "\\u0000" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError(f"{where}, document {case}: a NUL or half a character, which no database takes")
        bodies.append(body)
    # Two documents that ask the same are one observation.
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
    """Those of the task's per-document metrics that a rule may name. What they are is known once one was scored.

    Not among them, unless `ref` names it: what only makes sense over all documents (a pair for F1, say), and what is
    worse the more there is of it.
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
    """What the task says of an answer made up: nothing said, or where its own code cannot take that, the reference."""
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
    """What lm-eval expects of a model: a text, or (log-likelihood, greedy) of each request; rolling: the number."""
    kind = task.OUTPUT_TYPE
    if kind == "generate_until":
        return [text]
    weighed = json.loads(text)
    return [number if kind == "loglikelihood_rolling" else (number, greedy) for number, greedy in weighed]


def _judge(task: Task, asked: list[Instance], answers: list[Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """filter → (what it extracted, metric → value), as lm-eval's `evaluate` has it for one document."""
    instances = []
    for instance, answer in zip(asked, answers, strict=True):
        mine = copy.copy(instance)
        mine.resps, mine.filtered_resps = [answer] * (instance.repeats or 1), {}
        instances.append(mine)
    for ensemble in task._filters:
        ensemble.apply(instances)
    doc = instances[0].doc
    found = {}
    for name in instances[0].filtered_resps:
        extracted = [instance.filtered_resps[name] for instance in instances]
        said = extracted[0] if task.OUTPUT_TYPE == "generate_until" else extracted
        found[name] = (said if isinstance(said, str) else repr(said), dict(task.process_results(doc, extracted)))
    return found


def _number(task: Task, metric: str, value: Any) -> float | None:
    """A sample's value as one finite number: what is no number is aggregated over this one sample."""
    try:
        if isinstance(value, tuple | list):
            value = task.aggregation()[metric]([value])
        number = float(value)
    except Exception:  # a metric of the whole set alone
        return None
    return number if isfinite(number) else None


def _config(task: Task) -> str:
    """The task's whole configuration, its functions by their source; without addresses, which change each time."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", json.dumps(task.dump_config(), sort_keys=True, default=repr))
