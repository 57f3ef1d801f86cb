"""lighteval, NeMo Evaluator, BFCL and HELM, as `formats` edits the others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.intake.harnesses.formats import GOLDEN, Format, _set, another_question, read

# lighteval: {"rows", "results"}

_DETAILS = next((GOLDEN / "lighteval" / "base").glob("details_*.parquet"))


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _load_lighteval(path: Path) -> Any:
    results = read(next(path.parent.glob("results_*.json")))
    return {"rows": pq.read_table(path).to_pylist(), "results": results}


def _writable(value: Any) -> Any:
    """Without objects that have no keys, on which Arrow's writer crashes."""
    if isinstance(value, dict):
        return {str(key): _writable(part) for key, part in value.items()} or None
    return [_writable(part) for part in value] if isinstance(value, list) else value


def _save_lighteval(doc: Any, path: Path) -> None:
    try:
        pq.write_table(pa.Table.from_pylist(_writable(doc["rows"])), path)
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(error) from None
    path.with_name("results_run.json").write_text(json.dumps(doc["results"]))


def _say_lighteval(row: Any, text: str, right: bool) -> None:
    row["model_response"] |= {"text": [text], "text_post_processed": [text], "output_tokens": [[5] * 20]}
    row["metric"]["em"] = int(right)


def _count_lighteval(doc: Any) -> None:
    scores = [row["metric"]["em"] for row in doc["rows"]]
    doc["results"]["results"]["sums|0"]["em"] = sum(scores) / len(scores)


def _again_lighteval(row: Any, number: int) -> Any:
    again = another_question(row, number)
    again["doc"]["id"] = f"{row['doc']['id']}-{number}"
    return again


def _of_each(*keys_and_value: Any) -> Any:
    edit = _set(*keys_and_value)
    return lambda doc: [edit(row) for row in doc["rows"]]


def _longer_template(doc: Any) -> None:
    for row in doc["rows"]:
        row["model_response"]["input"] = f"<|user|>{row['model_response']['input']}"


_TASK = ("results", "config_tasks", "sums|0")
LIGHTEVAL: dict[str, Any] = {
    "golden": _DETAILS,
    "load": _load_lighteval,
    "save": _save_lighteval,
    "samples": lambda doc: doc["rows"],
    "keep": lambda doc, rows: doc.update(rows=rows),
    "renumber": _again_lighteval,
    "rename": lambda doc, name: doc["results"]["config_general"].update(model_name=name),
    "say": _say_lighteval,
    "count": _count_lighteval,
    "cut": lambda row: row["model_response"].update(output_tokens=[[5] * 32]),
    "settings": {
        "few-shots": (_set(*_TASK, "num_fewshots", 5), "the task's num_fewshots is 0"),
        "version": (_set(*_TASK, "version", 9), "the task's version is 1 for the baseline and 9"),
        "sampling": (
            _set("results", "config_general", "model_config", "generation_parameters", "temperature", 0.7),
            "temperature is 0",
        ),
        "judge": (_set(*_TASK, "metrics", [{"metric_name": "em", "judge": "other"}]), "the task's metrics is"),
        "system prompt": (
            _set("results", "config_general", "model_config", "system_prompt", "Be brief."),
            "the system prompt is",
        ),
        "template": (_longer_template, "cases are not the same version"),
    },
    "broken": {
        "a sample that is lost": (lambda doc: doc["rows"].pop(), "units missing"),
        "a doubled sample": (lambda doc: doc["rows"].append(doc["rows"][-1]), "recorded more than once"),
        "scores that were edited": (
            lambda doc: [_say_lighteval(row, "1", False) for row in doc["rows"][:9]],
            "lighteval counted 0.95 as the mean of em",
        ),
    },
}


# NeMo Evaluator: {"bundle", "rows", "endings"}


def _load_nemo(path: Path) -> Any:
    return {
        "bundle": read(path),
        "rows": _lines(path.with_name("results.jsonl")),
        "endings": _lines(path.with_name("inference_log.jsonl")),
    }


def _save_nemo(doc: Any, path: Path) -> None:
    path.write_text(json.dumps(doc["bundle"]))
    _write_lines(path.with_name("results.jsonl"), doc["rows"])
    endings = [
        {"problem_idx": row.get("problem_idx"), "repeat": row.get("repeat"), "completion_tokens": 20}
        | {"finish_reason": row.get("_finish", "stop")}
        for row in doc["rows"]
    ]
    _write_lines(path.with_name("inference_log.jsonl"), doc["endings"][:1] + endings)


def _say_nemo(row: Any, text: str, right: bool) -> None:
    row |= {"model_response": text, "reward": float(right), "extracted_answer": text or None}


def _count_nemo(doc: Any) -> None:
    rows, bundle = doc["rows"], doc["bundle"]
    bundle["n_results"] = len(rows)
    bundle["benchmark"]["samples"] = len({row["problem_idx"] for row in rows})
    bundle["config"]["shuffle"]["ds_effective_size"] = bundle["benchmark"]["samples"]
    bundle["benchmark"]["scores"]["summary"]["mean"] = sum(row["reward"] for row in rows) / len(rows)


def _fail_nemo(row: Any, why: str) -> None:
    row |= {"model_response": "", "reward": 0.0, "extracted_answer": None}
    row["scoring_details"] = {"error": why, "error_category": "graceful", "method": "solve_failed"}


NEMO: dict[str, Any] = {
    "golden": next((GOLDEN / "nemo-evaluator" / "base").glob("eval-*.json")),
    "repeats": 2,
    "load": _load_nemo,
    "save": _save_nemo,
    "samples": lambda doc: doc["rows"],
    "keep": lambda doc, rows: doc.update(rows=rows),
    "renumber": lambda row, number: another_question(row, number) | {"problem_idx": row["problem_idx"] + 100 * number},
    "rename": lambda doc, name: doc["bundle"]["config"].update(model=name),
    "say": _say_nemo,
    "count": _count_nemo,
    "fail": _fail_nemo,
    "miss": lambda row: row.update(extracted_answer=None),
    "cut": lambda row: row.update(_finish="length"),
    "settings": {
        "sampling": (_set("bundle", "config", "temperature", 0.7), "temperature is 0.0"),
        "system prompt": (_set("bundle", "config", "system_prompt", "Think."), "system_prompt is not said"),
        "judge": (_set("bundle", "config", "judge", {"model": "other"}), "judge is not said"),
        "version": (_set("bundle", "sdk_version", "0.3.1"), "NeMo Evaluator's version is 0.3.0"),
        "prompt": (
            lambda doc: [row.update(prompt="Q: " + row["prompt"]) for row in doc["rows"]],
            "cases are not the same version",
        ),
    },
    "broken": {
        "a sample that is lost": (lambda doc: doc["rows"].pop(), "units missing"),
        "a doubled epoch": (lambda doc: doc["rows"].append(doc["rows"][-1]), "recorded more than once"),
        "one shard": (_set("bundle", "config", "shard_range", [0, 6]), "the results of one shard"),
        "scores that were edited": (lambda doc: _say_nemo(doc["rows"][0], "1", False), "as the mean reward"),
    },
}


# BFCL: {"rows", "summary", "wrong": id → line}


def _load_bfcl(path: Path) -> Any:
    score = (
        path.parents[3] / "score" / path.parent.relative_to(path.parents[2]) / path.name.replace("_result", "_score")
    )
    summary, *wrong = _lines(score)
    return {"rows": _lines(path), "summary": summary, "wrong": {line["id"]: line for line in wrong}, "model": "m"}


def _save_bfcl(doc: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_lines(path, [{k: v for k, v in row.items() if k != "_wrong"} for row in doc["rows"]])
    wrong = [
        {"id": row["id"], "model_name": doc["model"], "valid": False, "error": ["…"], "error_type": row["_wrong"]}
        for row in doc["rows"]
        if row.get("_wrong")
    ]
    _write_lines(path.with_name(path.name.replace("_result", "_score")), [doc["summary"], *wrong])


def _say_bfcl(row: Any, text: str, right: bool) -> None:
    row |= {"result": text, "_wrong": "" if right else "ast_decoder:decoder_failed"}


def _count_bfcl(doc: Any) -> None:
    total, wrong = len(doc["rows"]), sum(bool(row.get("_wrong")) for row in doc["rows"])
    doc["summary"] |= {"accuracy": 1 - wrong / total, "correct_count": total - wrong, "total_count": total}


def _keep_bfcl(doc: Any, rows: list[Any]) -> None:
    for row in rows:
        if row["id"].partition("-")[0] in doc["wrong"]:
            row["_wrong"] = "ast_decoder:decoder_failed"
    doc["rows"] = rows


BFCL: dict[str, Any] = {
    "golden": next((GOLDEN / "bfcl" / "base").rglob("BFCL_v4_simple_python_result.json")),
    "load": _load_bfcl,
    "save": _save_bfcl,
    "samples": lambda doc: doc["rows"],
    "keep": _keep_bfcl,
    "renumber": lambda row, number: row | {"id": f"{row['id']}-{number}"},
    "rename": lambda doc, name: doc.update(model=name),
    "say": _say_bfcl,
    "count": _count_bfcl,
    "fail": lambda row, why: row.update(result="", _wrong="multi_turn:inference_error"),
    "broken": {
        "a sample that is lost": (lambda doc: doc["rows"].pop(), "units missing"),
        "a doubled sample": (lambda doc: doc["rows"].append(doc["rows"][-1]), "recorded more than once"),
        "scores that were edited": (lambda doc: _say_bfcl(doc["rows"][0], "f()", False), "right answers, and the log"),
        "an interrupted run": (lambda doc: doc.update(rows=doc["rows"][:200]), "232 of 432 units missing"),
    },
}  # fmt: skip


# HELM: {"spec", "state", "stats", "summary"}

_FILES = {"spec": "run_spec", "state": "scenario_state", "stats": "per_instance_stats", "summary": "stats"}


def _load_helm(path: Path) -> Any:
    doc = {key: read(path.with_name(f"{name}.json")) for key, name in _FILES.items()}
    stats = {entry["instance_id"]: entry for entry in doc["stats"]}
    doc["rows"] = [(state, stats[state["instance"]["id"]]) for state in doc["state"]["request_states"]]
    for row in doc["rows"]:
        _say_helm(row, "A" if row[0]["instance"]["references"][0]["tags"] else "B", True)
    return doc


def _save_helm(doc: Any, path: Path) -> None:
    if not all(isinstance(row, list | tuple) and len(row) == 2 for row in doc["rows"]):
        raise ValueError("damage of what is no part of the files")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = doc | {
        "state": doc["state"] | {"request_states": [row[0] for row in doc["rows"]]},
        "stats": [row[1] for row in doc["rows"]],
    }
    for key, name in _FILES.items():
        path.with_name(f"{name}.json").write_text(json.dumps(written[key]))


def _stat(stats: list[Any], name: str, value: float) -> None:
    for stat in stats:
        if stat["name"]["name"] == name and stat["name"]["split"] == "test" and "perturbation" not in stat["name"]:
            stat |= {"sum": value, "mean": value}


def _say_helm(row: Any, text: str, right: bool) -> None:
    row[0]["result"]["completions"][0]["text"] = text
    _stat(row[1]["stats"], "exact_match", float(right))
    _stat(row[1]["stats"], "num_output_tokens", 20)


def _count_helm(doc: Any) -> None:
    values = [stat["mean"] for row in doc["rows"] for stat in row[1]["stats"] if stat["name"]["name"] == "exact_match"]
    _stat(doc["summary"], "exact_match", sum(values) / len(values))
    _stat(doc["summary"], "num_instances", len(doc["rows"]))


def _again_helm(row: Any, number: int) -> Any:
    state, stats = json.loads(re.sub(r"Is (\d+) even or odd\?", rf"Is \1 even or odd? ({number})", json.dumps(row)))
    state["instance"]["id"] = stats["instance_id"] = f"{stats['instance_id']}-{number}"
    return state, stats


def _doubled_helm(doc: Any) -> None:
    state, stats = doc["rows"][-1]
    doc["rows"].append((state, {**stats, "train_trial_index": 7}))


def _edited_helm(doc: Any) -> None:
    for row in doc["rows"][:5]:
        _say_helm(row, "B", False)


def _fail_helm(row: Any, why: str) -> None:
    row[0]["result"] |= {"success": False, "error": why, "completions": []}


HELM: dict[str, Any] = {
    "golden": GOLDEN / "helm" / "base" / "scenario_state.json",
    "load": _load_helm,
    "save": _save_helm,
    "samples": lambda doc: doc["rows"],
    "keep": lambda doc, rows: doc.update(rows=rows),
    "renumber": _again_helm,
    "rename": lambda doc, name: doc["spec"]["adapter_spec"].update(model=name),
    "say": _say_helm,
    "count": _count_helm,
    "fail": _fail_helm,
    "cut": lambda row: row[0]["result"]["completions"][0].update(finish_reason={"reason": "length"}),
    "arguments": ("--metric", "exact_match"),
    "settings": {
        "few-shots": (_set("spec", "adapter_spec", "max_train_instances", 0), "max_train_instances is 5"),
        "template": (_set("spec", "adapter_spec", "output_prefix", "A:"), "output_prefix is"),
        "system prompt": (_set("spec", "adapter_spec", "instructions", "Be brief."), "instructions is"),
        "sampling": (_set("spec", "adapter_spec", "temperature", 1.0), "temperature is 0.0"),
        "judge": (_set("spec", "annotators", [{"class_name": "Other"}]), "the annotators is"),
    },
    "broken": {
        "a sample that is lost": (lambda doc: doc["rows"].pop(), "units missing"),
        "a doubled trial": (_doubled_helm, "recorded more than once"),
        "scores that were edited": (_edited_helm, "as the mean of exact_match"),
    },
}  # fmt: skip


OTHER_FORMATS = (
    Format(name="lighteval", suffix=".parquet", **LIGHTEVAL),
    Format(name="nemo-evaluator", suffix=".json", **NEMO),
    Format(name="bfcl", suffix="/BFCL_v4_simple_python_result.json", **BFCL),
    Format(name="helm", suffix="/scenario_state.json", **HELM),
)
