"""How many answers each case of score files must have: what the gate file states holds both ways, and nothing that is
lost of them approves without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.intake.score_files import external, gate_file, said, written

CASES = 100
Answer = tuple[int, int]  # case and repeat
STATED = "generation: {temperature: 0.7, repeats: 4}"
ANY, MEAN = "repeats: any, max_drop: 0.05", "max_drop: 0.05"


def every(repeats: int, first: int = 0) -> list[Answer]:
    return [(case, repeat) for case in range(CASES) for repeat in range(first, first + repeats)]


def judged(
    folder: Path, baseline: list[Answer], variant: list[Answer], *, stated: str, rule: str = MEAN, lost: int = 0
) -> tuple[int, str]:
    """(code, what is said) of two files with these answers, all right but the variant's to the first `lost` cases."""

    def rows(held: list[Answer], wrong: int):
        for case, repeat in held:
            yield {"id": f"c{case}", "repeat": repeat, "value": int(case >= wrong), "case_hash": f"h{case}"}

    sides = written(folder / "a.jsonl", rows(baseline, 0)), written(folder / "b.jsonl", rows(variant, lost))
    return said((gate_file(folder, external("set"), rule, head=stated), *sides))


@pytest.mark.parametrize("rule", [ANY, MEAN])
@pytest.mark.parametrize(
    ("held", "exit", "told"),
    [
        (every(4), 0, ""),
        (every(4, first=1), 0, ""),
        (every(1), 13, "300 of 400 units missing"),
        (every(3), 13, "100 of 400 units missing"),
        (every(3, first=1), 13, "100 of 400 units missing"),
        (every(5), 64, "a.jsonl:5: the `repeat` of 'c0' is 4, but the gate file states `repeats: 4`"),
    ],
)
def test_as_many_answers_to_a_case_as_the_gate_file_states(tmp_path, rule, held, exit, told):
    found, text = judged(tmp_path, held, held, stated=STATED, rule=rule)
    assert (found, told in text) == (exit, True), text


def test_one_answer_is_what_a_gate_file_may_state_too(tmp_path):
    one = "generation: {repeats: 1}"
    assert judged(tmp_path, every(4), every(4), stated=one)[0] == 64
    assert judged(tmp_path, every(1), every(1), stated=one, rule=ANY)[0] == 0


def test_where_none_is_stated_the_verdict_says_how_many_were_found(tmp_path):
    for first in (0, 1):
        held = every(4, first)
        found, text = judged(tmp_path, held, held, stated="")
        assert (found, "set: 4 answers to each case, as many as the files hold" in text) == (0, True), text
    assert "answers to each case" not in judged(tmp_path, every(1), every(1), stated="")[1]


def test_the_best_of_several_answers_is_not_decided_on_one(tmp_path):
    found, text = judged(tmp_path, every(1), every(1), stated="", rule=ANY)
    assert (found, "is to count any of a case's answers, and the files hold one" in text) == (12, True), text
    assert judged(tmp_path, every(2), every(2), stated="", rule=ANY)[0] == 0


@pytest.mark.parametrize("stated", ["", STATED])
def test_cases_that_lost_most_of_their_answers_do_not_weigh_less(tmp_path, stated):
    """16 of 100 cases lost: 16 points. Asked once where others were asked four times, they would weigh 4.5."""
    uneven = [(case, repeat) for case, repeat in every(4) if case >= 16 or repeat == 0]
    found, text = judged(tmp_path, uneven, uneven, stated=stated, lost=16)
    assert (found, "48 of 400 units missing" in text) == (13, True), text


def test_a_number_far_out_is_a_gap_and_no_endless_list(tmp_path):
    assert judged(tmp_path, [*every(1), (0, 10**12)], every(1), stated="")[0] == 13
