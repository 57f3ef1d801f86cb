"""lm-eval tasks of every kind and rows for them: the YAML in `tasks/`; nothing is looked up anywhere."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from lm_eval.api.model import LM

HERE = Path(__file__).parent / "tasks"
TASKS = ("sums", "line", "choice", "greedy", "text")  # in `local`
KINDS = tuple(path.stem for path in sorted((HERE / "kinds").glob("*.yaml")) if path.stem not in ("family", "pair"))
FILTER = {"few_shot_and_filters": "strict-match", "repeats": "maj@4"}
CHAT = "<|im_start|>user\n{{question}}<|im_end|>\n<|im_start|>assistant\n"  # as the tasks in `local` ask


def sum_row(left: int, right: int) -> dict:
    """A question as the shipped model has learned to answer it, digit by digit."""
    lines, carry, place = [], 0, 1
    while place <= max(left, right):
        a, b = left // place % 10, right // place % 10
        lines.append(f"{a}+{b}+{carry}={a + b + carry}")
        carry, place = (a + b + carry) // 10, place * 10
    answer = f"Answer: {left + right}"
    return {
        "question": f"{left} + {right} = ?",
        "answer": str(left + right),
        "first": lines[0],
        "second": lines[1],
        "choices": [lines[0], lines[0][:-1] + "x", "Answer: 1"],
        "right": 0,
        "text": "\n".join([f"{left} + {right} = ?", *lines, answer]),
    }


def _write(folder: Path, name: str, rows: list[dict]) -> Path:
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_tasks(folder: Path, n: int = 6, *, long_text: int = 0) -> Path:
    """`sums` (two filters), `line` (ends at a line break), `choice`, `greedy`, `text`, with `n` rows each.

    long_text: copies of a row's text in the first row of `text`, so that it exceeds the model's context.
    """
    rows = [sum_row(1234 + 877 * i, 4321 + 613 * i) for i in range(n)]
    rows[0]["text"] += ("\n" + rows[0]["text"]) * long_text
    return _write(folder, "local", rows)


def write_kinds(folder: Path, n: int = 8) -> Path:
    """A task of each kind that lm-eval has, `pair` of two of them, and `family` of three and `pair`."""
    rows = [
        {
            "q": f"What is {i} + {7 * i}?", "n": str(8 * i), "many": [str(8 * i), f"${8 * i}"], "lab": i % 2,
            "letters": ["A", "B", "C"], "choices": ["A", "B", "C"], "cont": "sat down.",
            "opt": [f"Größe {i}", f"the dog {i} runs"],
        }
        for i in range(1, n + 1)
    ]  # fmt: skip
    return _write(folder, "kinds", rows)


class Drawn(LM):
    """Answers that follow from the request alone, right ones, wrong ones and odd ones."""

    def generate_until(self, requests, disable_tqdm=False) -> list[str]:
        said = [(random.Random(repr(one.args)).choice, one.doc["n"]) for one in requests]
        return [
            choice([n, f" {n}.", f"so #### {n}.", f"#### ${n}", "I say (B)", f"the answer: {n} 7", "C", f"{n}, no"])
            for choice, n in said
        ]

    def loglikelihood(self, requests, disable_tqdm=False) -> list[tuple[float, bool]]:
        drawn = [random.Random(repr(one.args)) for one in requests]
        return [(-20 * draw.random(), draw.random() < 0.5) for draw in drawn]

    def loglikelihood_rolling(self, requests, disable_tqdm=False) -> list[float]:
        return [-500 * random.Random(repr(one.args)).random() for one in requests]
