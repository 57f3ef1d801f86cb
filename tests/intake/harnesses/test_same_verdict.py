"""The same answers, scored and judged by us, and as each harness logs them: one verdict, the same flips."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from tests.intake.harnesses.faults import FORMATS
from tests.intake.harnesses.formats import Format

NUMBERS = ("n", "clusters", "baseline", "variant", "difference", "lower", "upper", "lost", "gained", "status")
SHOWN = 20  # flips in a report
QUESTION = re.compile(r"What is \d+\+\d+\?(?: \(\d+\))?|Is \d+ even or odd\?(?: \(\d+\))?")
GATE = """version: 1
baseline: {model: ./base}
variants:
  variant: {model: ./variant}
evalsets: [{name: sums, cases: external}]
gate: {rules: [{metric: exact_match, max_drop: 0.1}]}
"""


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.exit_code, done.stdout or repr(done.exception)


def ids_of(form: Format, doc: Any) -> list[tuple[str, int]]:
    """Question and repeat of each sample."""
    seen: Counter[str] = Counter()
    ids = []
    for sample in form.samples(doc):
        text = QUESTION.search(json.dumps(sample))
        name = text[0] if text else str(sample["id"])
        ids.append((name, seen[name]))
        seen[name] += 1
    return ids


def texts(ids: list[tuple[str, int]], wrong: slice) -> list[str]:
    """Right answers, and wrong ones each of which is another text, by which a flip is known."""
    answers = [f"to {name}: yes" for name, _ in ids]
    answers[wrong] = [f"no {number}" for number in range(*wrong.indices(len(ids)))]
    return answers


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def natively(folder: Path, ids: list[tuple[str, int]], sides: dict[str, list[str]]) -> tuple[int, str]:
    cases = [{"id": name, "answer": f"to {name}: yes"} for name in dict(ids)]
    for model, answers in sides.items():
        outputs = [
            {"id": name, "repeat": repeat, "text": text, "model": model}
            for (name, repeat), text in zip(ids, answers, strict=True)
        ]
        named = lines(folder / "cases.jsonl", cases), lines(folder / f"{model}.texts.jsonl", outputs)
        scored = folder / f"{model}.jsonl"
        code, text = run("score", *named, "--scorer", "exact_match", "--json", scored)
        assert code == 0, text
    (folder / "gate.yaml").write_text(GATE)
    files = ("--baseline-scores", folder / "base.jsonl", "--variant-scores", folder / "variant.jsonl")
    return run("gate", folder / "gate.yaml", *files, "--json")


def found(code: int, text: str) -> dict[str, Any]:
    report = json.loads(text)
    (verdict,) = report["verdicts"]
    compared = verdict["comparisons"][0]
    flips = [(flip["direction"], flip["baseline"], flip["variant"]) for flip in report["flips"]["variant"]]
    return {
        "exit": (code, verdict["exit"], verdict["word"]),
        "numbers": {name: compared[name] for name in NUMBERS},
        "flips": {*flips} if compared["lost"] + compared["gained"] <= SHOWN else (),  # else the first by their ids
    }


@pytest.mark.parametrize(("share", "word"), [(0.0, "approve"), (0.08, ""), (0.34, "block")])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_verdict_is_the_same_natively_and_from_a_log(form, share, word, tmp_path):
    docs = {name: form.grown(name) for name in ("base", "variant")}
    ids = ids_of(form, docs["base"])
    wrong = min(int(share * len(ids)), SHOWN - 1) if share < 0.1 else int(share * len(ids))
    sides = {"base": texts(ids, slice(5, 6)), "variant": texts(ids, slice(0, 3 * wrong, 3) if wrong else slice(5, 6))}
    for name, doc in docs.items():
        for sample, text in zip(form.samples(doc), sides[name], strict=True):
            form.say(sample, text, text.endswith("yes"))
        form.count(doc)
    paths = [form.write(doc, tmp_path, name) for name, doc in docs.items()]
    logged = found(*run("intake", *paths, *form.arguments, "--max-drop", 0.1, "--json"))
    assert logged == found(*natively(tmp_path, ids, sides))
    assert word in ("", logged["exit"][2])
