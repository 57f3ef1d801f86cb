"""A file that holds the answers of another arm's file is refused, whatever else was changed in it."""

from __future__ import annotations

import json

import pytest

from tests.gate import planted
from tests.intake.score_files import code, exported, gated, said

MORE = {"extracted": "yes", "text_sha256": "1" * 64, "ttft": 0.25, "started": 3.0}


def changed(**fields):
    return lambda rows: [row | fields for row in rows]


def without(name: str):
    return lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows]


def first(**fields):
    return lambda rows: [rows[0] | fields, *rows[1:]]


@pytest.mark.parametrize(
    "change",
    [
        changed(),
        lambda rows: rows[::-1],
        lambda rows: [dict(reversed(row.items())) for row in rows],
        lambda rows: (
            [row | {"value": bool(row["value"])} for row in rows if row["metric"] == "exact_match"]
            + [row for row in rows if row["metric"] != "exact_match"]
        ),
        changed(note="x"),
        changed(reason="x", latency_ms=7),
        changed(tags=["x"], task="x"),
        changed(error_type=""),
        changed(ttft=0.5),
        changed(started=1.0),
        changed(finish_reason="eos"),
        first(note="x"),
        without("model"),
        without("extracted"),
        without("text_sha256"),
        changed(extracted=" yes "),
        changed(draft_proposed=9, draft_accepted=7),
        lambda rows: [row | {"value": 9.0} if row["metric"].startswith("latency.") else row for row in rows],
    ],
    ids=range(18),
)
def test_a_file_with_the_baselines_answers_is_a_copy_of_it_whatever_else_it_says(tmp_path, change):
    gate, a, b = exported(tmp_path, planted.run(n=120))
    rows = [json.loads(line) | MORE for line in a.read_text().splitlines()]
    for path, its in ((a, rows), (b, change(rows))):
        path.write_text("".join(json.dumps(row) + "\n" for row in its))
    found, text = said((gate, a, b))
    assert (found, f"{b} holds the answers of {a}" in text) == (64, True), text


@pytest.mark.parametrize(
    ("change", "exit"),
    [
        (first(extracted="no"), 0),
        (changed(text_sha256="2" * 64), 0),
        (changed(model="int4"), 0),
        (first(model="int4"), 64),
        (changed(model="Baseline "), 64),
        (lambda rows: [row | {"model": "int4"} for row in rows[1:]] + [without("model")(rows[:1])[0]], 64),
        (lambda rows: rows[1:], 13),
    ],
)
def test_another_text_or_another_model_tells_two_files_apart(tmp_path, change, exit):
    gate, a, b = exported(tmp_path, planted.run(n=120))
    rows = [json.loads(line) | MORE for line in a.read_text().splitlines()]
    for path, its in ((a, rows), (b, change(rows))):
        path.write_text("".join(json.dumps(row) + "\n" for row in its))
    assert code((gate, a, b)) == exit


def test_two_models_that_answer_alike_are_approved_and_the_first_line_says_so(tmp_path):
    (verdict,) = json.loads(gated(exported(tmp_path, planted.run(n=120))).stdout)["verdicts"]
    assert (verdict["word"], verdict["reasons"][0]) == (
        "approve",
        "no score differs: all 360 scores equal the baseline's, and the texts are not known",
    )


def test_one_file_is_not_two_arms(tmp_path):
    gate, a, b = exported(tmp_path, planted.run(n=120))
    b.unlink()
    b.symlink_to(a)
    assert code((gate, a, b)) == 64
