"""Whose answers score files hold: `model` in their rows is held against itself and against the gate file, and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.intake.score_files import external, gate_file, said, written

Name = Callable[[int], str | None]
INT4 = "int4: {model: ./models/support-int4}"


def called(name: str | None) -> Name:
    return lambda case: name


def judged(
    folder: Path, baseline: Name, variant: Name, *, variants: str = INT4, more: str = "", wrong: int = 1
) -> tuple[int, str]:
    """(code, what is said) of two files whose rows name these models; the variant's has so many wrong answers."""

    def rows(name: Name, lost: int):
        return ({"id": f"c{i}", "value": int(i >= lost), "case_hash": f"h{i}", "model": name(i)} for i in range(200))

    sides = written(folder / "a.jsonl", rows(baseline, 0)), written(folder / "b.jsonl", rows(variant, wrong))
    gate = gate_file(folder, external("set"), baseline=f"model: ./models/support{more}", variants=variants)
    return said((gate, *sides))


BOTH = ("support", "support-int4")


@pytest.mark.parametrize(
    ("names", "options", "exit", "told"),
    [
        (BOTH, {}, 0, "support-int4 (scores from a file)"),
        ((None, None), {}, 0, "not known (scores from a file)"),
        (("bf16", "awq-4"), {}, 0, "awq-4 (scores from a file)"),
        (("served", "served"), {}, 0, "the rows of baseline and variant name one model, 'served'"),
        (BOTH[::-1], {}, 64, "which the gate file states of int4. Are two files swapped?"),
        ((None, "support"), {}, 64, "b.jsonl:1: variant's rows name the model 'support'"),
        (("int4", None), {}, 64, "a.jsonl:1: baseline's rows name the model 'int4'"),
        (("x", "baseline"), {}, 0, ""),
        (("support", "support"), {"variants": "int4: {quantize: int4}"}, 0, "name one model, 'support'"),
        (("support", "int8"), {"variants": f"{INT4}, int8: {{quantize: int8}}"}, 0, ""),
        (("support", "support"), {"variants": "v: {model: ./support}"}, 0, "name one model, 'support'"),
        (("gpt", "v2"), {"more": ", models: [gpt]"}, 0, ""),
        (("gtp", "v2"), {"more": ", models: [gpt]"}, 64, "the gate file's `models` lists gpt"),
        (("v2", "gpt"), {"more": ", models: [gpt, v2]"}, 64, "which the gate file states of baseline"),
    ],
    ids=str,
)  # fmt: skip
def test_each_side_is_of_the_model_that_the_gate_file_states(tmp_path, names, options, exit, told):
    found, text = judged(tmp_path, *map(called, names), **options)
    assert (found, told in text) == (exit, True), text


@pytest.mark.parametrize("side", ["a", "b"])
def test_one_side_is_one_model(tmp_path, side):
    def two(case: int) -> str:
        return "m2" if case > 120 else "m1"

    one = called("one")
    sides = (two, one) if side == "a" else (one, two)
    found, text = judged(tmp_path, *sides)
    assert (found, f"{side}.jsonl:122: rows of two models, 'm1' and 'm2'" in text) == (64, True), text
    listed = {"more": ", models: [m1, m2]"} if side == "a" else {"variants": INT4[:-1] + ", models: [m1, m2]}"}
    found, text = judged(tmp_path, *sides, **listed)
    assert (found, "m1, m2 (scores from a file)" in text) == (0, True), text
    assert judged(tmp_path, lambda case: "one" if case % 2 else None, called("other"))[0] == 0, "rows may be silent"


def test_two_variants_names_are_not_one_models(tmp_path):
    lists = "int4: {quantize: int4, models: [p, q]}, int8: {quantize: int8, models: [z]}"
    assert judged(tmp_path, called("b"), lambda case: "pq"[case % 2], variants=lists)[0] == 0
    assert judged(tmp_path, called("b"), lambda case: "pz"[case % 2], variants=lists)[0] == 64
    assert judged(tmp_path, called("b"), called("w"), variants=lists)[0] == 64


def test_rows_without_a_model_beside_rows_of_one_are_told(tmp_path):
    code, text = judged(tmp_path, called("support"), lambda case: None if case in {3, 7} else "support-int4")
    assert code == 0
    told = "2 of 200 rows of variant name no model, from line 4 on, and the others 'support-int4'"
    assert told in " ".join(text.split())
    assert "name no model" not in judged(tmp_path, *map(called, BOTH))[1]
