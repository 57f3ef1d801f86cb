"""How the results of each format are read, written and edited by tests."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.intake.harnesses.containers import Archive

GOLDEN = Path(__file__).parent.parent / "golden"
Edit = Callable[[Any], object]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: its golden file, and how its document is edited. A document's samples are edited in place."""

    name: str
    golden: Path
    suffix: str
    load: Callable[[Path], Any]
    save: Callable[[Any, Path], object]
    samples: Callable[[Any], list[Any]]
    keep: Callable[[Any, list[Any]], object]  # make these the document's samples
    renumber: Callable[[Any, int], Any]  # a copy of a sample that is another question
    rename: Callable[[Any, str], object]  # the model
    say: Callable[[Any, str, bool], object]  # give a sample this text, and whether it is right
    count: Callable[[Any], object] = lambda doc: None  # let the tool's own summary fit the samples
    fail: Callable[[Any, str], object] | None = None  # log an error
    miss: Callable[[Any], object] | None = None  # log that the filter found nothing
    cut: Callable[[Any], object] | None = None  # log that the answer was cut at its limit
    settings: Mapping[str, tuple[Edit, str]] = field(default_factory=dict)
    broken: Mapping[str, tuple[Edit, str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    repeats: int = 1  # of each question in the golden file

    def grown(self, model: str, times: int = 18) -> Any:
        """The golden results of `times` as many questions, by a model of another name."""
        doc = self.load(self.golden)
        every = self.samples(doc)
        self.keep(doc, [self.renumber(deepcopy(sample), number) for number in range(times) for sample in every])
        self.rename(doc, model)
        self.count(doc)
        return doc

    def write(self, doc: Any, folder: Path, name: str) -> Path:
        """Write a document; the path to give to `intake`."""
        folder = folder / name
        folder.mkdir(exist_ok=True)
        path = folder / f"results{self.suffix}"
        self.save(doc, path)
        return path


def another_question(sample: Any, number: int) -> Any:
    """A copy of a sample that asks something else in the same way."""
    return json.loads(re.sub(r"What is (\d+)\+(\d+)\?", rf"What is \1+\2? ({number})", json.dumps(sample)))


def reference(sample: Any) -> str:
    """The answer to the golden questions, "What is 2+2?"."""
    found = re.search(r"What is (\d+)\+", json.dumps(sample))
    assert found
    return str(2 * int(found[1]))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def write(doc: Any, path: Path) -> None:
    path.write_text(json.dumps(doc))


# inspect


def _load_eval(path: Path) -> Any:
    with Archive(path) as archive:
        samples = [archive.json(name) for name in archive.names if name.startswith("samples/")]
        return {**archive.json("header.json"), "samples": samples}


def save_eval(doc: Any, path: Path) -> None:
    """As inspect wrote before it took Zstandard."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index, sample in enumerate(doc["samples"]):
            archive.writestr(f"samples/{index}_epoch_{sample['epoch']}.json", json.dumps(sample))
        if doc.get("status") != "started":
            archive.writestr("header.json", json.dumps({key: doc[key] for key in doc if key != "samples"}))


def _count_inspect(doc: Any) -> None:
    results, samples = doc["results"], doc["samples"]
    results["total_samples"] = len(samples)
    results["completed_samples"] = sum(not sample.get("error") for sample in samples)
    scored = [sample["scores"]["match"]["value"] == "C" for sample in samples if sample.get("scores")]
    for score in results["scores"]:
        if score["name"] == "match" and scored:
            score["metrics"]["accuracy"]["value"] = sum(scored) / len(scored)


def _say_inspect(sample: Any, text: str, right: bool) -> None:
    sample["output"]["choices"][0]["message"]["content"] = text
    sample["output"]["usage"]["output_tokens"] = 200
    sample["scores"]["match"] |= {"value": "C" if right else "I", "answer": text, "explanation": text}


def _fail_inspect(sample: Any, why: str) -> None:
    sample |= {"error": {"message": why, "traceback": ""}, "scores": {}, "output": {"choices": []}}


def _again_inspect(sample: Any, number: int) -> Any:
    return another_question(sample, number) | {"id": f"{sample['id']}-{number}"}


def _parts(doc: Any, *keys: str) -> Any:
    for key in keys:
        doc = doc.setdefault(key, {})
    return doc


def _set(*keys_and_value: Any) -> Edit:
    *keys, last, value = keys_and_value
    return lambda doc: _parts(doc, *keys).update({last: value})


INSPECT: dict[str, Any] = {
    "golden": GOLDEN / "inspect" / "base.eval",
    "arguments": ("--metric", "match"),
    "repeats": 2,
    "load": _load_eval,
    "samples": lambda doc: doc["samples"],
    "keep": lambda doc, samples: doc.update(samples=samples),
    "renumber": _again_inspect,
    "rename": lambda doc, name: doc["eval"].update(model=name),
    "say": _say_inspect,
    "count": _count_inspect,
    "fail": _fail_inspect,
    "miss": lambda sample: sample["scores"]["match"].update(answer=""),
    "cut": lambda sample: sample.update(limit={"type": "token", "limit": 16}),
    "settings": {
        "few-shots": (_set("eval", "task_args", "shots", 5), "the task's arguments is"),
        "template": (
            lambda doc: doc["plan"]["steps"].insert(0, {"solver": "prompt_template", "params": {"template": "{p}!"}}),
            "the solver is",
        ),
        "sampling": (_set("plan", "config", "temperature", 0.7), "temperature is"),
        "version": (_set("eval", "task_version", 3), "the task's version is"),
        "judge": (_set("eval", "model_roles", {"grader": {"model": "another/judge"}}), "the role 'grader' is not said"),
        "judges that are the models themselves": (
            lambda doc: doc["eval"]["scorers"].append({"name": "model_graded_qa", "options": {}}),
            "the judge of model_graded_qa",
        ),
        "epochs": (_set("eval", "config", "epochs", 4), "epochs is"),
    },
    "broken": {
        "an interrupted run": (_set("status", "cancelled"), "ended with the status 'cancelled'"),
        "samples that were marked as invalid": (_set("invalidated", True), "marked as invalid"),
        "a sample that is lost": (lambda doc: doc["samples"].pop(), "1 of 216 units missing: sums/q5-17#2"),
        "a doubled epoch": (lambda doc: doc["samples"].append(doc["samples"][-1]), "more than once: sums/q5-17#2"),
        "scores that were edited": (
            lambda doc: [_say_inspect(sample, "1", False) for sample in doc["samples"][:9]],
            "accuracy of match, and the log holds",
        ),
    },
}  # fmt: skip


# promptfoo


def _rows(doc: Any) -> list[Any]:
    return doc["results"]["results"]


def _say_promptfoo(sample: Any, text: str, right: bool) -> None:
    sample["response"] |= {"output": text, "tokenUsage": {"completion": 200}}
    sample |= {"success": right, "score": float(right), "failureReason": 0 if right else 1}
    first = sample["gradingResult"]["componentResults"][0]
    first |= {"pass": right, "score": float(right)}


def _fail_promptfoo(sample: Any, why: str) -> None:
    sample |= {"success": False, "score": 0, "failureReason": 2, "error": why, "gradingResult": None}
    sample["response"] = {"error": why}


def _count_promptfoo(doc: Any) -> None:
    rows = _rows(doc)
    doc["results"]["prompts"][0]["metrics"] |= {
        "testPassCount": sum(row["success"] for row in rows),
        "testErrorCount": sum(row["failureReason"] == 2 for row in rows),
        "testFailCount": sum(not row["success"] and row["failureReason"] != 2 for row in rows),
    }


def _rename_promptfoo(doc: Any, name: str) -> None:
    for row in _rows(doc):
        row["provider"]["label"] = name
    doc["results"]["prompts"][0]["provider"] = doc["config"]["providers"][0]["label"] = name


def _judged_promptfoo(doc: Any) -> None:
    for row in _rows(doc):
        row["testCase"]["options"]["provider"] = "another:judge"


PROMPTFOO: dict[str, Any] = {
    "load": read,
    "samples": _rows,
    "keep": lambda doc, rows: doc["results"].update(results=rows),
    "renumber": lambda sample, number: another_question(sample, number)
    | {"testIdx": sample["testIdx"] + 1000 * number},
    "rename": _rename_promptfoo,
    "say": _say_promptfoo,
    "count": _count_promptfoo,
    "fail": _fail_promptfoo,
    "cut": lambda sample: sample["response"].update(finishReason="length"),
    "settings": {
        "template": (
            lambda doc: doc["results"]["prompts"][0].update(raw="Q: What is {{n}}+{{n}}?"),
            "the prompt is What is",
        ),
        "sampling": (lambda doc: doc["config"]["providers"][0]["config"].update(temperature=1), "temperature is 0"),
        "assertions": (lambda doc: [row["testCase"].update(assert_=1, **{"assert": []}) for row in _rows(doc)],
                       "the tests' assertions is"),
        "tools": (
            lambda doc: doc["config"]["providers"][0]["config"].update(tools=[{"type": "function"}]),
            "tools is not said",
        ),
        "judge": (_judged_promptfoo, "the judge is promptfoo's own for the baseline and another:judge"),
    },
    "broken": {
        "a sample that is lost": (lambda doc: _rows(doc).pop(), "1 of 72 units missing: sums/17003"),
        "a doubled test": (lambda doc: _rows(doc).append(_rows(doc)[0]), "recorded more than once: sums/0"),
        "scores that were edited": (lambda doc: _say_promptfoo(_rows(doc)[0], "1", False), "passed tests, and the log"),
    },
}  # fmt: skip


# OpenAI Evals: {"spec", "final_report", "events": the events of each sample}


def _load_events(path: Path) -> Any:
    doc: dict[str, Any] = {}
    by_sample: dict[str, list[Any]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if "event_id" in line:
            by_sample.setdefault(line["sample_id"], []).append(line)
        else:
            doc |= line
    return doc | {"events": list(by_sample.values())}


def _save_events(doc: Any, path: Path) -> None:
    lines = [{"spec": doc["spec"]}]
    lines += [{"final_report": doc["final_report"], "run_id": doc["run_id"]}] if "final_report" in doc else []
    lines += [event for events in doc["events"] for event in events]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _count_events(doc: Any) -> None:
    every = [event for events in doc["events"] for event in events]
    for number, event in enumerate(every):
        event["event_id"] = number
    right = [event["data"]["correct"] for event in every if event["type"] == "match"]
    doc["final_report"]["accuracy"] = sum(right) / len(right) if right else None


def _say_events(events: Any, text: str, right: bool) -> None:
    events[0]["data"]["sampled"] = text
    events[1]["data"] |= {"sampled": text, "correct": right, "picked": text}


def _fail_events(events: Any, why: str) -> None:
    events[1] |= {"type": "error", "data": {"type": "APIError", "message": why}}


OPENAI_EVALS: dict[str, Any] = {
    "golden": GOLDEN / "openai-evals" / "base-sums.jsonl",
    "load": _load_events,
    "save": _save_events,
    "samples": lambda doc: doc["events"],
    "keep": lambda doc, samples: doc.update(events=samples),
    "renumber": lambda events, number: [
        another_question(event, number) | {"sample_id": f"{event['sample_id']}.{number}"} for event in events
    ],
    "rename": lambda doc, name: doc["spec"].update(completion_fns=[name]),
    "say": _say_events,
    "count": _count_events,
    "fail": _fail_events,
    "miss": lambda events: events[1]["data"].update(picked=None),
    "settings": {
        "few-shots": (_set("spec", "run_config", "eval_spec", "args", "num_few_shot", 4), "num_few_shot is not said"),
        "class": (_set("spec", "run_config", "eval_spec", "cls", "evals.elsuite.basic.includes:Includes"), "class is"),
        "seed": (_set("spec", "run_config", "seed", 1), "the seed is"),
        "judge": (
            _set("spec", "run_config", "eval_spec", "cls", "evals.elsuite.modelgraded.classify:ModelBasedClassify"),
            "the judge is",
        ),
    },
    "broken": {
        "a run that never finished": (lambda doc: doc.pop("final_report"), "never finished (no final_report)"),
        "a sample that is lost": (lambda doc: doc["events"].pop(0), "1 of 216 units missing: sums.dev.v0/"),
        "a doubled sample": (lambda doc: doc["events"].append(doc["events"][0]), "2 events stand in it twice"),
        "two runs": (lambda doc: doc["events"][0][0].update(run_id="another"), "events of several runs"),
        "scores that were edited": (lambda doc: _say_events(doc["events"][0], "1", False), "accuracy, and the log"),
    },
}  # fmt: skip


# Every Eval Ever: {"rows", "aggregate"}


def _load_eee(path: Path) -> Any:
    aggregate = path.with_name(path.name.removesuffix("_samples.jsonl") + ".json")
    return {"rows": [*map(json.loads, path.read_text().splitlines())], "aggregate": read(aggregate)}


def _lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _save_eee(doc: Any, path: Path) -> None:
    path.write_text(_lines(doc["rows"]))
    write(doc["aggregate"], path.with_name(path.name.removesuffix("_samples.jsonl") + ".json"))


def _count_eee(doc: Any) -> None:
    digest = hashlib.sha256(_lines(doc["rows"]).encode()).hexdigest()
    doc["aggregate"]["detailed_evaluation_results"] |= {"checksum": digest, "total_rows": len(doc["rows"])}


def _rename_eee(doc: Any, name: str) -> None:
    doc["aggregate"]["model_info"]["id"] = name
    for row in doc["rows"]:
        row["model_id"] = name


def _say_eee(row: Any, text: str, right: bool) -> None:
    row["output"]["raw"] = [text]
    row["token_usage"]["output_tokens"] = 200
    row["evaluation"] |= {"score": float(right), "is_correct": right}


def _result(doc: Any) -> Any:
    return doc["aggregate"]["evaluation_results"][0]


EVERY_EVAL_EVER: dict[str, Any] = {
    "golden": GOLDEN / "every-eval-ever" / "base_samples.jsonl",
    "repeats": 2,
    "load": _load_eee,
    "save": _save_eee,
    "samples": lambda doc: doc["rows"],
    "keep": lambda doc, rows: doc.update(rows=rows),
    "renumber": lambda row, number: another_question(row, number) | {"sample_id": f"{row['sample_id']}-{number}"},
    "rename": _rename_eee,
    "say": _say_eee,
    "count": _count_eee,
    "fail": lambda row, why: row.update(error=why),
    "miss": lambda row: row.update(
        answer_attribution=[{"turn_idx": 0, "source": "output.raw", "extracted_value": "", "extraction_method": "regex",
                             "is_terminal": True}]
    ),
    "cut": lambda row: row["metadata"].update(stop_reason="max_tokens"),
    "settings": {
        "template": (
            lambda doc: _result(doc)["generation_config"]["generation_args"].update(prompt_template="Q: {q}"),
            "prompt_template is not said",
        ),
        "sampling": (
            lambda doc: _result(doc)["generation_config"]["generation_args"].update(temperature=1.0),
            "temperature is not said",
        ),
        "few-shots": (
            lambda doc: _result(doc)["generation_config"]["generation_args"].update(num_fewshot=5),
            "num_fewshot is not said",
        ),
        "judge": (
            lambda doc: _result(doc)["metric_config"].update(
                llm_scoring={"judges": [{"model_info": {"name": "j", "id": "another/judge"}}], "input_prompt": "p"}
            ),
            "the judges is not said",
        ),
    },
    "broken": {
        "a sample that is lost": (lambda doc: doc["rows"].pop(), "1 of 216 units missing: sums/sums/q5-17#2"),
        "scores that were edited": (lambda doc: _say_eee(doc["rows"][0], "1", False), "was changed after its"),
        "rows of another run": (lambda doc: doc["rows"][0].update(evaluation_id="x"), "of another run"),
    },
}  # fmt: skip


# MLflow


def _say_mlflow(row: Any, text: str, right: bool) -> None:
    row[3:5] = [text, float(right)]


MLFLOW: dict[str, Any] = {
    "golden": GOLDEN / "mlflow" / "base.json",
    "load": lambda path: {
        "columns": [*read(path)["columns"], "model"],
        "data": [[*row, "base"] for row in read(path)["data"]],
    },
    "save": write,
    "samples": lambda doc: doc["data"],
    "keep": lambda doc, rows: doc.update(data=rows),
    "renumber": lambda row, number: [f"{row[0]}-{number}", *another_question(row, number)[1:]],
    "rename": lambda doc, name: [row.__setitem__(-1, name) for row in doc["data"]],
    "say": _say_mlflow,
    "settings": {
        "prompt": (lambda doc: [row.__setitem__(1, "Q: " + row[1]) for row in doc["data"]], "cases are not the same"),
    },
    "broken": {
        "a row that is lost": (lambda doc: doc["data"].pop(), "units missing"),
        "a doubled row": (lambda doc: doc["data"].append(doc["data"][-1]), "recorded more than once"),
    },
}  # fmt: skip
