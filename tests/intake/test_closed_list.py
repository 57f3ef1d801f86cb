"""Which cases score files must hold: the same rows lost on both sides are missed, whoever names the cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.named_sets import load_set
from qualgate.records import ExternalCases
from tests.intake.score_files import body, code, external, gate_file, lay, said, written

CASES = 240
BODIES = [body(f"c{i}", f"question {i}") for i in range(CASES)]
EVERY = [one["id"] for one in BODIES]
THREE_WAYS = ("Keep the evalset beside the gate file", "`gate: {expected: FILE}`", "cases: external}]")


def sides(folder: Path, ids: list[str], others: list[str] | None = None, **more: str) -> tuple[Path, Path]:
    """Two files that are right on these ids; others: those of the variant's file, where they differ."""
    a, b = (
        written(folder / file, ({"id": id, "case_hash": HASHES.get(id, "h"), **more} for id in held))
        for file, held in (("a.jsonl", ids), ("b.jsonl", ids if others is None else others))
    )
    return a, b


HASHES: dict[str, str] = {}


@pytest.fixture
def folder(tmp_path) -> Path:
    """With the set `set` in it, and in `few.jsonl` 100 of its ids."""
    HASHES.update(lay(tmp_path, "set", BODIES))
    (tmp_path / "few.jsonl").write_text("".join(json.dumps({"id": id}) + "\n" for id in EVERY[:100]))
    return tmp_path


@pytest.mark.parametrize("name", ["set", "Set", "SET", "set.yaml", "Set.YML", "set.jsonl"])
def test_a_set_that_lies_there_is_not_external_by_other_letters_or_an_ending(folder, name):
    files = gate_file(folder, f"{{name: {name}, cases: external}}"), *sides(folder, EVERY[:100])
    found, text = said(files)
    assert (found, "set.yaml exists. Name that file" in text) == (64, True), text


@pytest.mark.parametrize("reason", ["''", "' '", '"\\t\\u00a0"'])
def test_a_reason_of_blanks_is_none(folder, reason):
    settings = f"expected: few.jsonl, subset: {reason}, "
    files = gate_file(folder, "./set.yaml", gate=settings), *sides(folder, EVERY[:100])
    assert code(files) == 64


@pytest.mark.parametrize(
    ("sets", "settings", "exit", "told"),
    [
        ("./set.yaml", "", 13, "140 of 240 units missing"),
        ("./sett.yaml", "", 64, "did you mean ./set.yaml?"),
        ("./set.yml", "", 64, "did you mean ./set.yaml?"),
        ("./sets/set.yaml", "", 64, "did you mean ./set.yaml?"),
        ("./sett.yaml", "expected: few.jsonl, ", 64, "did you mean ./set.yaml?"),
        ("./elsewhere.yaml", "", 12, "which cases elsewhere has is not known"),
        pytest.param("{lm_eval: gsm8k}", "", 12, "which cases gsm8k has is not known", marks=pytest.mark.proof),
        ("./elsewhere.yaml", "expected: few.jsonl, ", 0, ""),
        (external("set"), "", 64, "set.yaml exists"),
        (external("theirs"), "", 0, "the expected cases of theirs are those of both files together"),
        (external("theirs"), "expected: few.jsonl, ", 0, ""),
        ("./set.yaml", "expected: few.jsonl, ", 64, "names 100 of the 240 cases of the evalset set"),
        ("./set.yaml", "expected: few.jsonl, subset: the German ones, ", 0, "only those of few.jsonl count: the"),
        ("./set.yaml, ./elsewhere.yaml", "", 64, "did you mean"),
    ],
)  # fmt: skip
def test_100_of_240_rows_of_both_sides_approve_only_where_somebody_says_so(folder, sets, settings, exit, told):
    two = sets.startswith("./set.yaml,")
    (folder / "other").mkdir()
    lay(folder / "other", "elsewheres" if two else "unlike", BODIES)
    named = {"evalset": "set"} if two else {}
    files = (gate_file(folder, sets, gate=settings), *sides(folder, EVERY[:100], **named))
    found, text = said(files)
    assert (found, told in text) == (exit, True), text
    if exit == 12:
        assert all(way in text for way in THREE_WAYS), "and what to do about it"


def test_expected_names_cases_that_the_set_and_the_gate_file_have(folder):
    ids = folder / "ids.jsonl"
    for row, told in (
        ({"id": "c7x"}, "no case 'c7x' in the evalset set"),
        ({"id": "c7", "evalset": "sett"}, "names cases of 'sett'; did you mean 'set'?"),
    ):
        ids.write_text("".join(json.dumps(one) + "\n" for one in [*({"id": id} for id in EVERY), row]))
        files = (gate_file(folder, "./set.yaml", gate="expected: ids.jsonl, "), *sides(folder, EVERY))
        found, text = said(files)
        assert (found, told in text) == (64, True), text
    ids.write_text("".join(json.dumps({"id": id}) + "\n" for id in EVERY))
    assert code(files) == 0, "all that there are need no reason"


def test_what_expected_leaves_out_of_one_set_is_not_left_out_of_another(folder):
    """`expected` speaks of one evalset; the other lies there and is whole."""
    lay(folder, "other", [body(f"c{i}", f"another question {i}") for i in range(CASES)])
    (folder / "ids.jsonl").write_text("".join(json.dumps({"id": id, "evalset": "set"}) + "\n" for id in EVERY))
    gate = gate_file(folder, "./set.yaml, ./other.yaml", gate="expected: ids.jsonl, ")
    found, text = said((gate, *sides(folder, EVERY, evalset="set")))
    assert (found, "240 of 480 units missing" in text) == (13, True), text


def test_only_score_files_are_judged_by_cases_that_others_hold(tmp_path):
    with pytest.raises(UsageError, match=r"has no questions to generate answers for.*\./theirs\.yaml"):
        load_set(ExternalCases(name="theirs"), tmp_path)
