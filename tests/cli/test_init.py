"""`qualgate init`: from a model's folder and cases of one's own to a gate file that can be planned and run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from qualgate import evalsets
from qualgate.config import load_gate_file
from qualgate.config.starter import Starter, StarterSet, gate_file_text
from qualgate.errors import Exit
from qualgate.evalsets.own_rows import FORMS
from qualgate.refmodel import PATH
from tests.command_line import qualgate


def rows(folder: Path, count: int, extra: dict | None = None) -> Path:
    path = folder / "mine.jsonl"
    lines = [{"question": f"Sort the letters of {n:b}", "expected": f"x{n}", **(extra or {})} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def init(folder: Path, *words: str, code: int = 0, look: bool = False) -> str:
    done = qualgate("init", *words, *([] if look else ["--no-look"]), cwd=folder)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(("count", "margin", "planned"), [(40, 0.1, Exit.UNDECIDED), (150, 0.08, Exit.APPROVE)])
def test_what_it_writes_passes_every_check_and_plan_is_no_dead_end(tmp_path, count, margin, planned):
    rows(tmp_path, count)
    said = init(tmp_path, "--model", str(PATH), "--cases", "mine.jsonl")
    assert "`expected` became `answer`" in said
    assert "written: gate.yaml, own.yaml, own.jsonl" in said
    gate = load_gate_file(tmp_path / "gate.yaml")
    assert [(rule.metric, rule.max_drop) for rule in gate.policy.rules] == [
        ("exact_match", margin),
        ("drift.kl_mean", None),
    ]
    assert qualgate("config", "check", "gate.yaml", cwd=tmp_path).returncode == 0
    assert qualgate("evalset", "check", "./own.yaml", cwd=tmp_path).returncode == 0
    shown = qualgate("plan", "gate.yaml", "--json", cwd=tmp_path)
    body = json.loads(shown.stdout)["policy"]
    assert (shown.returncode, body["decidable"]) == (planned, planned == Exit.APPROVE)
    assert body["decidable"] or body["changes"][0]["kind"] == "more cases"
    if planned == Exit.UNDECIDED:
        assert re.search(r"40 cases: an equal variant passes in \d+% of runs; of 64 cases it would in 9 of 10", said)


def test_the_baseline_is_asked_first_and_its_answers_choose_the_metric(tmp_path):
    cases = evalsets.load("grounded_qa", tmp_path).cases[:40]
    lines = [{"question": one.body["messages"][0]["content"], "answer": one.body["answer"]} for one in cases]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = init(tmp_path, "--model", "reference", "--cases", "mine.jsonl", look=True)
    assert re.search(r"The baseline was asked 12 cases \(own-.*\): by exact_match it is right on 1", said)
    written = (tmp_path / "own.yaml").read_text()
    assert "# The baseline was asked 12 cases (own-" in written
    assert evalsets.load("./own.yaml", tmp_path).metrics == ("exact_match",)


def test_a_set_that_the_baseline_cannot_answer_is_not_written(tmp_path):
    rows(tmp_path, 20)
    said = init(tmp_path, "--model", "reference", "--cases", "mine.jsonl", code=Exit.USAGE, look=True)
    assert "own: the baseline is right on too few cases to lose any: 0 of 12 by exact_match" in said
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mine.jsonl"]


def test_without_references_a_gate_on_the_form_of_answers_is_written_and_says_what_it_misses(tmp_path):
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({"question": f"Ask {n}"}) + "\n" for n in range(60)))
    said = init(tmp_path, "--model", "reference", "--cases", "mine.jsonl")
    assert "It does not see wrong ones" in said
    gate = load_gate_file(tmp_path / "gate.yaml")
    assert {rule.metric for rule in gate.policy.rules if rule.tier == "critical"} == {*FORMS}
    assert gate.noise_floor
    assert qualgate("config", "check", "gate.yaml", cwd=tmp_path).returncode == 0


def test_a_judge_that_is_named_compares_the_answers_as_well(tmp_path):
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({"question": f"Ask {n}"}) + "\n" for n in range(60)))
    (tmp_path / "labels.jsonl").write_text('{"id": "1", "question": "q", "a": "x", "b": "y", "preferred": "a"}\n')
    judge = "endpoint: http://127.0.0.1:9/v1\nmodel: big\nrubric: |\n  The answer that helps wins.\n"
    (tmp_path / "judge.yaml").write_text(judge + "labels: labels.jsonl\n")
    words = ("--model", "reference", "--cases", "mine.jsonl", "--judge")
    assert "--judge none.yaml: cannot be read" in init(tmp_path, *words, "none.yaml", code=Exit.USAGE)
    init(tmp_path, *words, "judge.yaml")
    gate = load_gate_file(tmp_path / "gate.yaml")
    assert gate.labels == tmp_path / "labels.jsonl"
    assert [(rule.metric, rule.max_drop) for rule in gate.policy.rules if rule.metric == "judge.win"] == [
        ("judge.win", 0.05)
    ]


def test_without_cases_a_few_questions_are_written_to_begin_with(tmp_path):
    said = init(tmp_path, "--model", "reference", "--variant", str(PATH), "--quantize", "int8", "--quantize", "mxfp4")
    assert "replace them by cases of yours" in said
    gate = load_gate_file(tmp_path / "gate.yaml")
    assert [arm.name for arm in gate.variants] == ["weights", "int8", "mxfp4"]
    assert qualgate("plan", "gate.yaml", cwd=tmp_path).returncode == Exit.UNDECIDED


def test_every_key_is_explained_on_its_line(tmp_path):
    init(tmp_path, "--model", "reference")
    for name in ("gate.yaml", "own.yaml"):
        for line in (tmp_path / name).read_text().splitlines():
            assert re.search(r"#\s\S", line), line


@pytest.mark.parametrize("name", ["gate.yaml", "own.yaml", "own.jsonl"])
def test_nothing_is_overwritten_and_the_file_is_named(tmp_path, name):
    (tmp_path / name).write_text("mine")
    said = init(tmp_path, "--model", "reference", code=Exit.USAGE)
    assert f"{name}: already here, and nothing is overwritten" in said
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "./none"), "no model folder"),
        (("--model", "reference", "--quantize", "int7"), "qualgate: --quantize: unknown method 'int7'. Did you mean"),
        (("--model", "reference", "--quantize", "awq"), "qualgate: --quantize: awq needs calibration data"),
        (("--model", "reference", "--variant", "./none"), "qualgate: --variant: no model folder"),
        (("--model", "reference", "--cases", "none.jsonl"), "none.jsonl: no such file"),
        (
            ("--model", "reference", "--cases", "mine.jsonl", "--max-new-tokens", "4000"),
            "--max-new-tokens 4000: the model's context is",
        ),
        (
            ("--model", "reference", "--cases", "mine.jsonl", "--max-new-tokens", "1023"),
            "Lower max_new_tokens, shorten",
        ),
        (("--model", "reference", "--cases", "bad.jsonl"), "bad.jsonl:2: `answer` '' is empty"),
    ],
)
def test_what_cannot_run_is_told_and_nothing_is_left_behind(tmp_path, words, said):
    rows(tmp_path, 3)
    lines = [{"question": "a", "answer": "b"}, {"question": "c", "answer": ""}]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert said in init(tmp_path, *words, code=Exit.USAGE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "mine.jsonl"]


@pytest.mark.parametrize("name", ["./a b", "./1e5", './o\'b "c": {d}', "/x/#y", "./t\u202ex\n", "true", "./-"])
def test_whatever_a_folder_is_called_the_file_says_it(name):
    written = gate_file_text(
        Starter(
            model=name, dtype="float32", variants={"1.0": ("model", name), "no": ("quantize", "int8")},
            sets=(StarterSet(name="own", metrics=("exact_match",), cases=3),), margin=0.1, why="3 cases",
        )
    )  # fmt: skip
    read = yaml.safe_load(written)
    assert read["baseline"]["model"] == name
    assert read["variants"] == {"1.0": {"model": name}, "no": {"quantize": "int8"}}
