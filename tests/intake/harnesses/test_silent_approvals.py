"""Mistakes of a harness or its user that once were approved in silence: each is named, and none approves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.intake.test_lm_eval import judged
from tests.intake.test_lm_eval import log as lm_eval_log

N = 400


def table(
    folder: Path, name: str, right: int, edit: Callable[[int, dict[str, Any]], object] = lambda i, row: None
) -> Path:
    """A table whose first `right` answers are right, each row edited."""
    rows = []
    for i in range(N):
        row = {
            "id": f"q{i}",
            "question": f"what is {i}?",
            "answer": str(i if i < right else -1),
            "score": int(i < right),
        }
        row["model"] = name
        edit(i, row)
        rows.append(row)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def failing(i: int, row: dict[str, Any]) -> None:
    if i >= N - 60:
        row |= {"score": 0, "error": "HTTP 503"}


def silent(i: int, row: dict[str, Any]) -> None:
    if i >= N - 60:
        row |= {"score": 0, "answer": None}


@pytest.mark.parametrize(
    ("edit", "code", "said"),
    [
        (failing, 13, "HTTP 503"),
        (silent, 12, "60 are empty"),
        (lambda i, row: row.update(score=float("nan")) if i == 9 else None, 10, "could not say for 1"),
        (lambda i, row: row.update(score=10**400) if i == 9 else None, 10, "could not say for 1"),
    ],
)
def test_faults_in_later_rows_of_the_baseline_never_approve_a_loss(tmp_path, edit, code, said):
    """The baseline is right on 85 % where it answered; the variant on 80 %."""
    base, variant = table(tmp_path, "base", N - 60, edit), table(tmp_path, "variant", N - 80)
    assert judged(variant, table(tmp_path, "twin", N - 80))[0] == 0, "the control"
    found, text = judged(base, variant, "--json")
    assert (found, said in text) == (code, True), text[:3000]


@pytest.mark.parametrize("name", ["wer", "toxicity", "failed", "issues", "refusal"])
def test_a_metric_of_which_less_is_better_is_not_judged_by_a_drop(tmp_path, name):
    def renamed(i: int, row: dict[str, Any]) -> None:
        row[name] = row.pop("score")

    paths = [table(tmp_path, side, right, renamed) for side, right in (("base", 40), ("variant", 300))]
    code, text = judged(*paths, "--columns", f"score={name}", "--format", "table", "--json")
    assert (code, "less is better" in text) == (12, True)


def test_a_gate_files_models_tell_swapped_sides(tmp_path):
    gate = tmp_path / "gate.yaml"
    gate.write_text(
        "version: 1\nbaseline: {model: ./base}\nvariants: {int4: {model: ./variant}}\n"
        "evalsets: [{name: table, cases: external}]\ngate: {rules: [{metric: harness.score, max_drop: 0.05}]}\n"
    )
    base, variant = table(tmp_path, "base", 380), table(tmp_path, "variant", 300)
    assert judged(base, variant, gate)[0] == 10
    code, text = judged(variant, base, gate)
    assert (code, "swapped" in text) == (64, True)


def test_settings_on_one_side_alone_and_a_models_arguments_that_differ_decide_nothing(tmp_path):
    few = {"config": {"model_args": {"pretrained": "a", "max_gen_toks": 32}}}
    base = lm_eval_log(tmp_path, "base", 180, results=few)
    many = {"config": {"model_args": {"pretrained": "b", "max_gen_toks": 2048}}}
    code, text = judged(base, lm_eval_log(tmp_path, "variant", 180, results=many), "--json")
    assert (code, "max_gen_toks" in text, "pretrained" in text) == (12, True, False)
    bare = lm_eval_log(tmp_path, "bare", 179)
    next(bare.parent.glob("results_*.json")).unlink()
    code, text = judged(base, bare, "--json")
    assert (code, "does not say how it was asked" in text) == (12, True)
