"""Formats of one row an answer, tables and items of hosted evals, as `formats` edits the others."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tests.intake.harnesses.formats import GOLDEN, Format, another_question


def _write_lines(doc: Any, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in doc))


# Tables


def _load_table(_: Path) -> Any:
    return [
        {"id": f"q{i}", "question": f"What is {i}+{i}?", "expected": str(2 * i), "response": str(2 * i), "correct": "1",
         "model": "m", "epoch": "0", "error": "", "finish_reason": "stop"}
        for i in range(12)
    ]  # fmt: skip


def _save_csv(doc: Any, path: Path) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(doc[0]))
    table.writeheader()
    table.writerows(doc)
    path.write_text(text.getvalue())


def _keep(doc: Any, rows: list[Any]) -> None:
    doc[:] = rows


TABLE: dict[str, Any] = {
    "golden": GOLDEN / "table",
    "load": _load_table,
    "samples": lambda doc: doc,
    "keep": _keep,
    "renumber": lambda row, number: another_question(row, number) | {"id": f"{row['id']}-{number}"},
    "rename": lambda doc, name: [row.update(model=name) for row in doc],
    "say": lambda row, text, right: row.update(response=text, correct=str(int(right))),
    "fail": lambda row, why: row.update(error=why, response="", correct="0"),
    "cut": lambda row: row.update(finish_reason="length"),
    "settings": {
        "prompt": (
            lambda doc: [row.update(question="Q: " + row["question"]) for row in doc],
            "cases are not the same version",
        ),
    },
    "broken": {
        "a row that is lost": (lambda doc: doc.pop(), "units missing"),
        "a doubled epoch": (lambda doc: doc.append(doc[-1]), "recorded more than once"),
    },
}

# Items of OpenAI's hosted evals, after its reference


def _load_items(_: Path) -> Any:
    return [
        {"object": "eval.run.output_item", "id": f"item-{i}", "datasource_item_id": str(i), "eval_id": "sums",
         "run_id": "run", "status": "pass", "datasource_item": {"question": f"What is {i}+{i}?", "answer": str(2 * i)},
         "results": [{"name": "match", "type": "string_check", "score": 1.0, "passed": True}],
         "sample": {"input": [{"role": "user", "content": f"What is {i}+{i}?"}], "model": "m", "error": None,
                    "output": [{"role": "assistant", "content": str(2 * i)}], "finish_reason": "stop",
                    "temperature": 0.0, "top_p": 1.0, "seed": 42, "max_completion_tokens": 16,
                    "usage": {"completion_tokens": 2, "prompt_tokens": 9}}}
        for i in range(12)
    ]  # fmt: skip


def _say_item(item: Any, text: str, right: bool) -> None:
    item["sample"] |= {"output": [{"role": "assistant", "content": text}]}
    item["sample"]["usage"]["completion_tokens"] = 200
    item["results"][0] |= {"score": float(right), "passed": right}


def _fail_item(item: Any, why: str) -> None:
    item |= {"status": "error", "results": []}
    item["sample"] |= {"output": [], "error": {"code": "server_error", "message": why}}


def _sampled(name: str, value: Any) -> Any:
    return lambda doc: [item["sample"].update({name: value}) for item in doc]


OPENAI_ITEMS: dict[str, Any] = {
    "golden": GOLDEN / "openai-items",
    "load": _load_items,
    "save": _write_lines,
    "samples": lambda doc: doc,
    "keep": _keep,
    "renumber": lambda item, number: (
        another_question(item, number)
        | {"id": f"{item['id']}-{number}", "datasource_item_id": f"{item['datasource_item_id']}-{number}"}
    ),
    "rename": lambda doc, name: _sampled("model", name)(doc),
    "say": _say_item,
    "fail": _fail_item,
    "cut": lambda item: item["sample"].update(finish_reason="length"),
    "settings": {
        "sampling": (_sampled("temperature", 1.0), "temperature is 0.0"),
        "seed": (_sampled("seed", 7), "seed is 42"),
        "template": (_sampled("input", [{"role": "user", "content": "Q"}]), "cases are not the same version"),
        "graders": (
            lambda doc: [item["results"][0].update(type="text_similarity") for item in doc],
            "the graders is",
        ),
        "judge": (
            lambda doc: [item["results"][0].update(sample={"model": "another"}) for item in doc],
            "the judge of match is",
        ),
    },
    "broken": {
        "an item that is lost": (lambda doc: doc.pop(), "units missing"),
        "a doubled item": (lambda doc: doc.append(doc[-1]), "recorded more than once"),
        "items of two runs": (lambda doc: doc[0].update(run_id="another"), "holds the items of 2 runs"),
    },
}

ROW_FORMATS = (
    Format(name="openai-items", suffix=".jsonl", **OPENAI_ITEMS),
    Format(name="csv", suffix=".csv", save=_save_csv, **TABLE),
    Format(name="json lines table", suffix=".jsonl", save=_write_lines, **TABLE),
)
