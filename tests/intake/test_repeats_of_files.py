"""How many answers each case of score files must have: what the gate file states holds both ways, and nothing that is
lost of them approves without a word."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.intake.score_files import code, gated

CASES = 200
Answer = tuple[int, int]  # case and repeat
STATED = "generation: {temperature: 0.7, repeats: 4}"
ANY, MEAN = "repeats: any, max_drop: 0.05", "max_drop: 0.05"


def every(repeats: int, first: int = 0) -> list[Answer]:
    return [(case, repeat) for case in range(CASES) for repeat in range(first, first + repeats)]


def judged(
    folder: Path, baseline: list[Answer], variant: list[Answer], *, stated: str, rule: str = MEAN, lost: int = 0
) -> tuple[int, str]:
    """(code, what is said) of two files with these answers, all right but the variant's to the first `lost` cases."""
    gate, files = folder / "gate.yaml", (folder / "a.jsonl", folder / "b.jsonl")
    gate.write_text(
        f"version: 1\nbaseline: {{model: ./m}}\nvariants: {{v: {{model: ./m}}}}\n{stated}\n"
        f"evalsets: [{{name: set, cases: external}}]\ngate: {{rules: [{{metric: exact_match, {rule}}}]}}\n"
    )
    for path, held in zip(files, (baseline, variant), strict=True):
        rows = [{"id": f"c{case}", "repeat": repeat, "metric": "exact_match", "scorer": "s", "model": path.stem,
                 "value": int(path is files[0] or case >= lost), "case_hash": f"h{case}"}
                for case, repeat in held]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = gated((gate, *files))
    return code((gate, *files)), f"{done.output}{done.exception or ''}"


@pytest.mark.parametrize("rule", [ANY, MEAN])
@pytest.mark.parametrize(
    ("held", "exit", "told"),
    [
        (every(4), 0, ""),
        (every(4, first=1), 0, ""),
        (every(1), 13, "600 of 800 units missing"),
        (every(3), 13, "200 of 800 units missing"),
        (every(3, first=1), 13, "200 of 800 units missing"),
        (every(5), 64, "a.jsonl:5: the `repeat` of 'c0' is 4, and the gate file states `repeats: 4`"),
    ],
)
def test_as_many_answers_to_a_case_as_the_gate_file_states(tmp_path, rule, held, exit, told):
    found, said = judged(tmp_path, held, held, stated=STATED, rule=rule)
    assert (found, told in said) == (exit, True), said


def test_one_answer_is_what_a_gate_file_may_state_too(tmp_path):
    one = "generation: {repeats: 1}"
    assert judged(tmp_path, every(4), every(4), stated=one)[0] == 64
    assert judged(tmp_path, every(1), every(1), stated=one, rule=ANY)[0] == 0


def test_where_none_is_stated_the_verdict_says_how_many_were_found(tmp_path):
    for first in (0, 1):
        held = every(4, first)
        found, said = judged(tmp_path, held, held, stated="")
        assert (found, "set: 4 answers to each case, as many as the files hold" in said) == (0, True), said
    assert "answers to each case" not in judged(tmp_path, every(1), every(1), stated="")[1]


def test_the_best_of_several_answers_is_not_decided_on_one(tmp_path):
    found, said = judged(tmp_path, every(1), every(1), stated="", rule=ANY)
    assert (found, "is to count any of a case's answers, and the files hold one" in said) == (12, True), said
    assert judged(tmp_path, every(2), every(2), stated="", rule=ANY)[0] == 0


@pytest.mark.parametrize("stated", ["", STATED])
def test_cases_that_lost_most_of_their_answers_do_not_weigh_less(tmp_path, stated):
    """16 of 200 cases lost: 8 points. Asked once where others were asked four times, they would weigh 2.6."""
    uneven = [(case, repeat) for case, repeat in every(4) if case >= 16 or repeat == 0]
    found, said = judged(tmp_path, uneven, uneven, stated=stated, lost=16)
    assert (found, "48 of 800 units missing" in said) == (13, True), said


def test_a_number_far_out_is_a_gap_and_no_endless_list(tmp_path):
    assert judged(tmp_path, [*every(1), (0, 10**12)], every(1), stated="")[0] == 13


@pytest.mark.parametrize("seed", range(8))
def test_no_answers_lost_on_one_side_or_both_ever_approve_without_a_word(tmp_path, seed):
    """Property: a random part of the answers, or one repeat of all cases, with and without a stated number."""
    g = random.Random(seed)
    whole = every(4)
    gone = g.randrange(4)
    kept = [one for one in whole if one[1] != gone] if seed % 4 == 0 else g.sample(whole, g.randrange(400, 800))
    sides = (kept, kept) if seed % 2 else (whole, kept) if seed % 3 else (kept, whole)
    for rule in (ANY, MEAN):
        assert judged(tmp_path, *sides, stated=STATED, rule=rule)[0] == 13
        found, said = judged(tmp_path, *sides, stated="", rule=rule)
        assert found == 13 or "answers to each case, as many as the files hold" in said, (found, said)
