"""Which cases score files must hold: the same rows lost on both sides are missed, whoever names the cases."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.plan import load_set
from qualgate.records import ExternalCases
from tests.intake.score_files import code, external, gated
from tests.intake.test_scores_beside_an_evalset import Row, body, lay

CASES = 240
BODIES = [body(f"c{i}", f"question {i}") for i in range(CASES)]
EVERY = [one["id"] for one in BODIES]
THREE_WAYS = ("Keep the evalset beside the gate file", "`gate: {expected: FILE}`", "cases: external}]")


def gate(folder: Path, sets: str, settings: str = "") -> Path:
    path = folder / "gate.yaml"
    path.write_text(
        "version: 1\nbaseline: {model: ./m}\nvariants: {v: {model: ./m}}\n"
        f"evalsets: [{sets}]\ngate: {{rules: [{{metric: exact_match, max_drop: 0.1}}]{settings}}}\n"
    )
    return path


def sides(folder: Path, ids: list[str], others: list[str] | None = None, **more: str) -> tuple[Path, Path]:
    """Two files that are right on these ids; others: those of the variant's file, where they differ."""
    files = folder / "a.jsonl", folder / "b.jsonl"
    for path, held in zip(files, (ids, ids if others is None else others), strict=True):
        rows: list[Row] = [{"id": id, "metric": "exact_match", "value": 1, "scorer": "s", "model": path.stem,
                            "case_hash": HASHES.get(id, "h"), **more} for id in held]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


HASHES: dict[str, str] = {}


@pytest.fixture
def folder(tmp_path) -> Path:
    """With the set `set` in it, and in `few.jsonl` 100 of its ids."""
    HASHES.update(lay(tmp_path, "set", BODIES))
    (tmp_path / "few.jsonl").write_text("".join(json.dumps({"id": id}) + "\n" for id in EVERY[:100]))
    return tmp_path


def said(files: tuple[Path, ...]) -> str:
    done = gated(files)
    return f"{done.output}{done.exception or ''}"


@pytest.mark.parametrize("name", ["set", "Set", "SET", "set.yaml", "Set.YML", "set.jsonl"])
def test_a_set_that_lies_there_is_not_external_by_other_letters_or_an_ending(folder, name):
    files = gate(folder, f"{{name: {name}, cases: external}}"), *sides(folder, EVERY[:100])
    assert code(files) == 64
    assert "set.yaml lies beside the gate file: name that file" in said(files)


def test_another_external_set_may_lie_near_one_that_is_like_it(folder):
    assert code((gate(folder, "{name: set2, cases: external}"), *sides(folder, EVERY[:100]))) == 0


@pytest.mark.parametrize("reason", ["''", "' '", '"\\t\\u00a0"'])
def test_a_reason_of_blanks_is_none(folder, reason):
    files = gate(folder, "./set.yaml", f", expected: few.jsonl, subset: {reason}"), *sides(folder, EVERY[:100])
    assert code(files) == 64


@pytest.mark.parametrize(
    ("sets", "settings", "exit", "told"),
    [
        ("./set.yaml", "", 13, "140 of 240 units missing"),
        ("./sett.yaml", "", 64, "did you mean ./set.yaml?"),
        ("./set.yml", "", 64, "did you mean ./set.yaml?"),
        ("./sets/set.yaml", "", 64, "did you mean ./set.yaml?"),
        ("./sett.yaml", ", expected: few.jsonl", 64, "did you mean ./set.yaml?"),
        ("./elsewhere.yaml", "", 12, "which cases elsewhere has is not known"),
        pytest.param("{lm_eval: gsm8k}", "", 12, "which cases gsm8k has is not known", marks=pytest.mark.proof),
        ("./elsewhere.yaml", ", expected: few.jsonl", 0, ""),
        (external("set"), "", 64, "set.yaml lies beside the gate file"),
        (external("theirs"), "", 0, "the expected cases of theirs are those of both files together"),
        (external("theirs"), ", expected: few.jsonl", 0, ""),
        ("./set.yaml", ", expected: few.jsonl", 64, "names 100 of the 240 cases of the evalset set"),
        ("./set.yaml", ", expected: few.jsonl, subset: the German ones", 0, "only those of few.jsonl count: the"),
        ("./set.yaml, ./elsewhere.yaml", "", 64, "did you mean"),
    ],
)  # fmt: skip
def test_100_of_240_rows_of_both_sides_approve_only_where_somebody_says_so(folder, sets, settings, exit, told):
    two = sets.startswith("./set.yaml,")
    (folder / "other").mkdir()
    lay(folder / "other", "elsewheres" if two else "unlike", BODIES)
    named = {"evalset": "set"} if two else {}
    files = (gate(folder, sets, settings), *sides(folder, EVERY[:100], **named))
    assert (code(files), told in said(files)) == (exit, True), said(files)
    if exit == 12:
        assert all(way in said(files) for way in THREE_WAYS), "and what to do about it"


def test_expected_names_cases_that_the_set_and_the_gate_file_have(folder):
    ids = folder / "ids.jsonl"
    for row, told in (
        ({"id": "c7x"}, "no case 'c7x' in the evalset set"),
        ({"id": "c7", "evalset": "sett"}, "names cases of 'sett'; did you mean 'set'?"),
    ):
        ids.write_text("".join(json.dumps(one) + "\n" for one in [*({"id": id} for id in EVERY), row]))
        files = (gate(folder, "./set.yaml", ", expected: ids.jsonl"), *sides(folder, EVERY))
        assert (code(files), told in said(files)) == (64, True), said(files)
    ids.write_text("".join(json.dumps({"id": id}) + "\n" for id in EVERY))
    assert code(files) == 0, "all that there are need no reason"


def test_what_expected_leaves_out_of_one_set_is_not_left_out_of_another(folder):
    """`expected` speaks of one evalset; the other lies there and is whole."""
    lay(folder, "other", [body(f"c{i}", f"another question {i}") for i in range(CASES)])
    (folder / "ids.jsonl").write_text("".join(json.dumps({"id": id, "evalset": "set"}) + "\n" for id in EVERY))
    files = (gate(folder, "./set.yaml, ./other.yaml", ", expected: ids.jsonl"), *sides(folder, EVERY, evalset="set"))
    assert code(files) == 13
    assert "240 of 480 units missing" in said(files)


def test_only_score_files_are_judged_by_cases_that_others_hold(tmp_path):
    with pytest.raises(UsageError, match=r"leaves nothing to ask here.*\./theirs\.yaml"):
        load_set(ExternalCases(name="theirs"), tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_rows_are_lost_is_never_approved_unless_expected_says_so(folder, seed):
    """Property: a random part of the rows, lost on one side or on both, under each way of naming the cases."""
    g = random.Random(seed)
    kept = [id for id in EVERY if g.random() > g.choice((0.01, 0.3, 0.6))]
    kept = kept[:-1] if len(kept) == CASES else kept
    files = sides(folder, kept, None if seed % 2 else EVERY)
    if seed % 3 == 0:
        files = files[::-1]
    (folder / "all.jsonl").write_text("".join(json.dumps({"id": id}) + "\n" for id in EVERY))
    (folder / "kept.jsonl").write_text("".join(json.dumps({"id": id}) + "\n" for id in kept))
    ways = [("./set.yaml", ""), ("./sett.yaml", ""), ("./elsewhere.yaml", ""), (external("set"), ""),
            ("./set.yaml", ", expected: all.jsonl"), ("./elsewhere.yaml", ", expected: all.jsonl"),
            (external("theirs"), ", expected: all.jsonl"), ("./set.yaml", ", expected: kept.jsonl")]  # fmt: skip
    for sets, settings in ways:
        assert code((gate(folder, sets, settings), *files)) in (12, 13, 64), (sets, settings)
    both = bool(seed % 2)
    declared = code((gate(folder, "./set.yaml", ", expected: kept.jsonl, subset: why"), *files))
    assert declared == (0 if both else 14), "the other side has rows that were never expected"
    assert code((gate(folder, external("theirs")), *files)) == (0 if both else 13), (
        "a side alone is missed by the other"
    )
