"""GSM8K's sample log scored by lm-eval's own task and by us: is it the same, and how much faster is it?

The task is gsm8k's as lm-eval 0.4.13 has it (filters `strict-match` and `flexible-extract`, exact_match), with local
documents: lm-eval applies the filters and computes the metrics of every sample, as after a run.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.records import Case, Evalset
from qualgate.scoring import registry
from tests.verification.references.filters_fuzz import PIPELINES

FILTERS = ("strict-match", "flexible-extract")
IGNORED = [",", r"\$", "(?s).*#### ", r"\.$"]
Verdicts = dict[str, list[tuple[str, bool]]]  # filter → (extracted, right) of each sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    answer: str
    text: str


class CannotRun(Exception):
    """lm-eval or the rows are not here."""


def samples(data: Path) -> list[Sample]:
    """400 rows, the reference's own solutions and four models', as they are and with gsm8k's `#### `."""
    if not (data / "model_solutions.jsonl").exists():
        raise CannotRun("the GSM8K rows are not here")
    answers = {row["doc_id"]: row["answer"] for row in _lines(data / "test.jsonl")}
    found = [Sample(answer=answer, text=answer) for answer in answers.values()]
    for row in _lines(data / "model_solutions.jsonl"):
        for said in (each["solution"] for each in row.values() if isinstance(each, dict)):
            found += [
                Sample(answer=answers[row["doc_id"]], text=text) for text in (said, said.replace("\nA: ", "\n#### "))
            ]
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Theirs:
    """lm-eval's task over `log`; `score` is what lm-eval does with the answers once it has them."""

    def __init__(self, log: list[Sample]) -> None:
        try:
            from lm_eval.tasks import TaskManager
        except ImportError as error:
            raise CannotRun(f"lm-eval cannot be imported: {error}") from None
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
            folder = Path(name)
            documents = [json.dumps({"question": str(n), "answer": one.answer}) for n, one in enumerate(log)]
            (folder / "documents.jsonl").write_text("\n".join(documents))
            (folder / "log.yaml").write_text(json.dumps(_task(folder)))  # JSON is YAML
            manager = TaskManager(include_path=str(folder), include_defaults=False)
            self.task: Any = manager.load(["gsm8k_log"])["tasks"]["gsm8k_log"]
            self.task.set_config(key="num_fewshot", value=0)
            self.task.build_all_requests(limit=None, rank=0, world_size=1)
        for instance in self.task.instances:
            instance.resps = [log[instance.doc_id].text]

    def score(self) -> Verdicts:
        task = self.task
        task.apply_filters()
        found: Verdicts = {}
        for name in FILTERS:
            rows = found[name] = []
            for instance in task.instances:
                answer = instance.filtered_resps[name]
                rows.append((answer, bool(task.process_results(instance.doc, [answer])["exact_match"])))
        return found


def _task(folder: Path) -> dict[str, Any]:
    steps = [{"name": name, "filter": [*PIPELINES[name]]} for name in FILTERS]
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True,
              "ignore_punctuation": False, "regexes_to_ignore": IGNORED}  # fmt: skip
    return {
        "task": "gsm8k_log", "dataset_path": "json", "test_split": "test", "output_type": "generate_until",
        "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}, "cache_dir": str(folder / "cache")},
        "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}", "metric_list": [metric], "filter_list": steps,
        "generation_kwargs": {"until": ["Question:"]}, "repeats": 1, "num_fewshot": 0,
    }  # fmt: skip


class Ours:
    """The same log through the scorers that `qualgate score --mode compat --filter NAME` takes."""

    def __init__(self, log: list[Sample]) -> None:
        self.evalset = Evalset(name="log", version="1", sha256="", metrics=("exact_match",))
        self.rows = [
            (Case(evalset="log", body={"id": str(number), "answer": one.answer}), one.text)
            for number, one in enumerate(log)
        ]

    def score(self) -> Verdicts:
        found: Verdicts = {}
        for name in FILTERS:
            scorer = registry.filtered(registry.find("exact_match", "compat"), name)
            rows = found[name] = []
            for case, text in self.rows:
                score = registry.apply(scorer, case, self.evalset, text)["exact_match"]
                rows.append((score.extracted or "", bool(score.verdict)))
        return found


def measured(data: Path, rounds: int) -> dict[str, Any]:
    """Samples, how many agree by filter, and seconds of processor time of each, in interleaved rounds. CannotRun."""
    log = samples(data)
    theirs, ours = Theirs(log), Ours(log)
    one, other = theirs.score(), ours.score()
    agree = {name: sum(a == b for a, b in zip(one[name], other[name], strict=True)) for name in FILTERS}
    right = {name: sum(verdict for _, verdict in other[name]) for name in FILTERS}
    seconds = [{"lm_eval": _seconds(theirs), "qualgate": _seconds(ours)} for _ in range(rounds)]
    return {"samples": len(log), "agree": agree, "right": right, "seconds": seconds}


def _seconds(scoring: Theirs | Ours) -> float:
    start = time.process_time()
    scoring.score()
    return time.process_time() - start
